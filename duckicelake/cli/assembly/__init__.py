"""From settings to the parts of which the program is made."""
