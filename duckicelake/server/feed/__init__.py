"""The change feed: one reader of Postgres, many server-sent event streams."""
