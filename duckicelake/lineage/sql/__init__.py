"""PURE. Lineage of SQL: what a statement reads and writes, and which column flows where."""
