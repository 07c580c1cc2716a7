"""Events: generated from changes, inferred from reads, and received from other tools."""
