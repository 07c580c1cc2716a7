"""Lineage: OpenLineage events of the lake's changes and of other tools, and the graph of both."""
