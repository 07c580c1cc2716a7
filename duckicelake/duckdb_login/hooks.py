"""What logins of DuckDB add to the core: routes, a command, and the task that ends them."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "duckdb_login",
    routes="duckicelake.duckdb_login.routes:ROUTES",
    commands="duckicelake.duckdb_login.commands:app",
    service="duckicelake.duckdb_login.service:SERVICE",
)
