"""Parts of the program, put together from the settings."""
