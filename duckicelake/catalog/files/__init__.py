"""Files that a table's metadata names: written, given to those who would misread others, and let go."""
