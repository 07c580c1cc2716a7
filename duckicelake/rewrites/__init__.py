"""Rewrite the files of tables without Spark: merged, sorted, without deleted rows."""
