"""Delta Lake's transaction log: its actions, and how tables are read from and written to it (Delta's PROTOCOL.md)."""
