"""PURE. Views in the other engine's SQL."""
