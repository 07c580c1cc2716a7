"""PURE. Types, values, columns, partitions and statistics in both vocabularies."""
