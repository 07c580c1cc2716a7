"""PURE. What SQL reads and writes, and which column flows where."""
