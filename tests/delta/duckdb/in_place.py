"""What tests of `read_delta` ask of DuckDB, and schemas of tables made by hand."""

from typing import Any

import pyarrow as pa

from duckicelake.delta.duckdb.connection import DeltaConnection


def rows(connection: Any, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(query, *parameters).fetchall(), key=repr)


def read(duck: DeltaConnection, path: object, version: int | None = None) -> tuple[list[tuple[Any, ...]], list[str]]:
    result = duck.execute("FROM read_delta($path, version => $version)", {"path": str(path), "version": version})
    return sorted(result.fetchall(), key=repr), [column[0] for column in result.description]


def some(first: int, count: int = 3, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), **more})


def struct(*fields: str) -> str:
    return f'{{"type":"struct","fields":[{",".join(fields)}]}}'


def field(name: str, kind: str) -> str:
    return f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{}}}}'


def plain(**kinds: str) -> str:
    """A schema of columns without mapping."""
    return struct(*(field(name, f'"{kind}"') for name, kind in kinds.items()))
