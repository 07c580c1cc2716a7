"""Options, help and examples of each command; the work is imported when the command runs."""
