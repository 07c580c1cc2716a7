"""Check whether a lake is sound, and print the SQL that repairs it."""
