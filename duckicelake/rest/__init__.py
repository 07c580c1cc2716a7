"""HTTP client of the catalog, with the standard library only; `client` and `pipeline` use it."""
