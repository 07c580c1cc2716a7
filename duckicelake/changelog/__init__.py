"""One ordered log of the lake's changes, made by REST or in DuckDB: writer, reader, feed, history."""
