"""Import Delta tables over their own files, and follow them version by version."""
