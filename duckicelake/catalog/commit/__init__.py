"""A commit, from the request to the transaction that writes it."""
