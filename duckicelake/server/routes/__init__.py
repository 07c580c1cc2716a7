"""Routes by resource, with their dependencies and their guard."""
