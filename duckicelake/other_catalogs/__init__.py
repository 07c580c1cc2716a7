"""An MCP server: agents look at a lake, and write to branches, with the rights of whoever they act for."""
