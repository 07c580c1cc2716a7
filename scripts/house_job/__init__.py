"""Measures how the code reads: the house in figures, and the walks of requests through it."""
