"""Who may get at which files, and with whose keys."""
