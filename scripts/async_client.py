"""Write `duckicelake/client/async_lake.py`: the client for asyncio, from the one for threads, so that both are alike.

.venv/bin/python -m scripts.async_client           writes it
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "duckicelake" / "client"
TARGET = FOLDER / "async_lake.py"
SOURCES = (("table", "Table"), ("table", "View"), ("lake", "Lake"))
HEADER = '''"""The client of a lake for asyncio: `Lake`, `Table` and `View`, whose methods run in threads.

    async with connect_async("http://localhost:8181") as lake:
        print([one async for one in lake.list("zoo")])

`scripts/async_client.py` writes this file from `lake.py` and `table.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Self, TypeVar

from duckicelake.client.diff import TableDiff
from duckicelake.client.lake import Lake, connect
from duckicelake.client.models import (
    CatalogObject,
    ColumnMetrics,
    FileInfo,
    FoundName,
    Json,
    ObjectKind,
    PartitionInfo,
    TableInfo,
    TableSize,
    ViewInfo,
)
from duckicelake.client.query_result import QueryInfo, QueryPage, PlanInfo, QueryResult
from duckicelake.client.operations import CallerInfo, DroppedInfo, ExpireInfo, FlushInfo, RestoreInfo, UndropInfo
from duckicelake.client.table import Table, View
from duckicelake.client.upkeep import AuditRecord, CheckResult, OrphanInfos

_CHUNK_ITEMS: Final = 1000
"""Items of an iterator that one call in a thread brings."""
Item = TypeVar("Item")


def connect_async(uri: str | None = None, **options: Any) -> AsyncLake:
    """Connect as `duckicelake.connect` does, with the same options."""
    return AsyncLake(connect(uri, **options))


async def _iterate(items: Iterator[Item]) -> AsyncIterator[Item]:
    """Iterate in threads: what comes next may be another request."""
    while chunk := await to_thread(lambda: list(islice(items, _CHUNK_ITEMS))):
        for item in chunk:
            yield item
'''
WRAPPED = {"Table": "AsyncTable", "View": "AsyncView"}


def write_client() -> str:
    """Write the module's text."""
    parts = [HEADER]
    for module, name in SOURCES:
        tree = ast.parse((FOLDER / f"{module}.py").read_text())
        found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        parts.append("\n".join(write_class(found)))
    return format_code("\n\n".join(parts))


def write_class(source: ast.ClassDef) -> Iterator[str]:
    """Write the class that runs another's methods in threads."""
    first, *_ = (ast.get_docstring(source) or "").splitlines()
    yield f"class Async{source.name}:"
    yield f'    """{first.removesuffix(".")}, for asyncio."""\n'
    yield f"    def __init__(self, sync: {source.name}) -> None:\n        self.sync = sync"
    if source.name == "Lake":
        yield "\n    async def __aenter__(self) -> Self:\n        return self\n"
        yield "    async def __aexit__(self, *_: object) -> None:\n        await to_thread(self.sync.close)\n"
    else:
        yield "\n    @property\n    def name(self) -> str:\n        return self.sync.name\n"
    for node in source.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in {"name", "close"}:
            yield from write_method(node)


def write_method(node: ast.FunctionDef) -> Iterator[str]:
    """Write a method: lazy ones make objects or iterators, the others wait for a thread."""
    assert node.returns is not None
    returned = ast.unparse(node.returns).strip("'")
    given = [argument.arg for argument in node.args.args[1:]]
    named = [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
    rest = [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    call = ", ".join([f"self.sync.{node.name}", *given, *named, *rest])
    doc = ast.get_docstring(node) or ""
    first = doc.splitlines()[0].replace("; JobConflictError if it isn't there.", ".")
    is_lazy = returned.startswith("Iterator[") or (returned in WRAPPED and node.name in {"table", "view"})
    arguments = ast.unparse(node.args)
    kind = "def" if is_lazy else "async def"
    result = WRAPPED.get(returned, returned.replace("Iterator[", "AsyncIterator["))
    yield f"\n    {kind} {node.name}({arguments}) -> {result}:"
    yield f'        """{first}"""'
    if returned.startswith("Iterator["):
        yield f"        return _iterate({call.replace(', ', '(', 1) if ', ' in call else call + '('}))"
    elif is_lazy:
        yield f"        return {WRAPPED[returned]}({call.replace(', ', '(', 1)}))"
    else:
        target = f"partial({call})" if named or rest else call
        waited = f"await to_thread({target})"
        kept = f"{WRAPPED[returned]}({waited})" if returned in WRAPPED else waited
        yield f"        {'' if returned == 'None' else 'return '}{kept}"


def format_code(text: str) -> str:
    """Format as ruff does."""
    for command in (["check", "--fix", "--select", "I,F401,UP037", "--quiet"], ["format", "--quiet"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = ran.stdout
    return text


def main() -> None:
    TARGET.write_text(write_client())


if __name__ == "__main__":
    main()
