"""Which files a principal and the server may reach."""
