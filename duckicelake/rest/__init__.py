"""HTTP client, of the catalog and of any server; `client`, `pipeline` and `server` use it."""
