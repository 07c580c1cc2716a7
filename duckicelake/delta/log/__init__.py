"""Delta Lake's transaction log: actions, files and versions; PURE but for the store passed in (Delta's PROTOCOL.md)."""
