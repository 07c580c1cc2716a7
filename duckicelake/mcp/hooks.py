"""What the MCP server adds to the core: a command, and routes that record what agents do and examine the lake."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("mcp", routes="duckicelake.mcp.routes:ROUTES", commands="duckicelake.mcp.commands:app")
