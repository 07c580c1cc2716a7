"""DuckLake's own tables: the commit protocol, reads, and writes."""
