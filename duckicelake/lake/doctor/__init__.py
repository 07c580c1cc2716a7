"""Whether a lake is sound: checks that only read, and the SQL that mends."""
