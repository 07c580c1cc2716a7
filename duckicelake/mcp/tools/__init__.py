"""The tools of the MCP server: what each takes and returns, and what it does."""
