"""What is too much, refused before any work is done on it: bodies, rates and load."""
