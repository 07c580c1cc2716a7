"""Write the client for asyncio, `async_lake.py` and `async_table.py` of `duckicelake/client`, from the one for threads.

.venv/bin/python -m scripts.async_client           writes them
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "duckicelake" / "client"
TARGETS = {
    "async_table.py": (("table", "Table"), ("table", "View")),
    "async_lake.py": (("lake", "Lake"),),
}
BASES = {"Lake": (("activity", "LakeActivity"),)}
"""Classes whose methods a class inherits, and which stand behind its own."""
TABLE_HEADER = '''"""Tables and views of a lake for asyncio: the methods of `Table` and `View` in threads.

`scripts/async_client.py` writes this file from `table.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from duckicelake.client.diff import TableDiff
from duckicelake.client.models import ColumnMetrics, FileInfo, Json, PartitionInfo, TableInfo, ViewInfo
from duckicelake.client.operations import AppendInfo, ExpireInfo, FlushInfo, RestoreInfo
from duckicelake.client.scan_cost import ExplanationInfo
from duckicelake.client.table import Table, View

_CHUNK_ITEMS: Final = 1000
"""Items of an iterator that one call in a thread brings."""
Item = TypeVar("Item")


async def iterate(items: Iterator[Item], chunk_items: int = _CHUNK_ITEMS) -> AsyncIterator[Item]:
    """Iterate in threads: what comes next may be another request."""
    while chunk := await to_thread(lambda: list(islice(items, chunk_items))):
        for item in chunk:
            yield item
'''
LAKE_HEADER = '''"""The client of a lake for asyncio: the methods of `Lake` in threads.

    async with connect_async("http://localhost:8181") as lake:
        print([one async for one in lake.list("zoo")])

`scripts/async_client.py` writes this file from `lake.py` and `activity.py`.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Self

from duckicelake.client.activity import Time
from duckicelake.client.async_table import AsyncTable, AsyncView, iterate
from duckicelake.client.changes import ChangeInfo, EventInfo, EventPage, JobInfo
from duckicelake.client.lake import Lake, connect
from duckicelake.client.lineage import LineageDirection, LineageInfo
from duckicelake.client.models import CatalogObject, FoundName, Json, ObjectKind, TableInfo, TableSize, ViewInfo
from duckicelake.client.operations import CallerInfo, DroppedInfo, UndropInfo
from duckicelake.client.query_result import PlanInfo, QueryInfo, QueryPage, QueryResult, SavedResultInfo
from duckicelake.client.upkeep import AuditRecord, CheckReport, CheckResult, OrphanInfos, UpkeepInfo


def connect_async(uri: str | None = None, **options: Any) -> AsyncLake:
    """Connect as `duckicelake.connect` does, with the same options."""
    return AsyncLake(connect(uri, **options))
'''
HEADERS = {"async_table.py": TABLE_HEADER, "async_lake.py": LAKE_HEADER}
WRAPPED = {"Table": "AsyncTable", "View": "AsyncView"}
WAITING = {"events"}
"""Iterators whose next item may not be there yet: each is a call of its own."""


def write_client(target: str) -> str:
    """Write a module's text."""
    parts = [HEADERS[target]]
    for module, name in TARGETS[target]:
        bases = [find_class(*base) for base in BASES.get(name, ())]
        parts.append("\n".join(write_class(find_class(module, name), bases)))
    return format_code("\n\n".join(parts), target)


def find_class(module: str, name: str) -> ast.ClassDef:
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def write_class(source: ast.ClassDef, bases: list[ast.ClassDef]) -> Iterator[str]:
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
    for node in [*source.body, *(node for base in bases for node in base.body)]:
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
        made = f"{call.replace(', ', '(', 1) if ', ' in call else call + '('})"
        yield f"        return iterate({made}{', 1' if node.name in WAITING else ''})"
    elif is_lazy:
        yield f"        return {WRAPPED[returned]}({call.replace(', ', '(', 1)}))"
    else:
        target = f"partial({call})" if named or rest else call
        waited = f"await to_thread({target})"
        kept = f"{WRAPPED[returned]}({waited})" if returned in WRAPPED else waited
        yield f"        {'' if returned == 'None' else 'return '}{kept}"


def format_code(text: str, target: str) -> str:
    """Format as ruff does."""
    for command in (["check", "--fix", "--select", "I,F401,UP037", "--quiet"], ["format", "--quiet"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / target), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = ran.stdout
    return text


def main() -> None:
    for target in TARGETS:
        (FOLDER / target).write_text(write_client(target))


if __name__ == "__main__":
    main()
