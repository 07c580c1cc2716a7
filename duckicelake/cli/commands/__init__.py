"""One command a module: a function and its EXAMPLES, imported when it is called (`cli/by_name.py`)."""
