"""PURE. Delta's vocabulary and both sides' (Delta protocol)."""
