"""Who makes a request, and what the caller may do."""
