"""What came from what: events of the lake's changes, those that others send, and the graph of both."""
