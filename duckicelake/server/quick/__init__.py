"""Requests that are answered past FastAPI: loads that memory answers, repeats, and writes that come many at a time."""
