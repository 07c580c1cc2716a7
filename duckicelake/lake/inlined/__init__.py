"""Posted rows: inlined into Postgres or written as files, and the flush of inlined rows."""
