"""Keep a Delta log beside a table of the lake, a version for each state of main."""
