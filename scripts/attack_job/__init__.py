"""Attacks on a served lake: the machinery of scripts/attack, and of the small part of it that runs in the tests."""
