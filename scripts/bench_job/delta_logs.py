"""A Delta table of very many files, quickly: a log as writers write it, and one small Parquet file by many names."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

ROWS: Final = 10
LINKS: Final = 10_000
"""Names of one file; file systems have a bound."""
STARTED_MS: Final = 1_700_000_000_000
MINUTE_MS: Final = 60_000
_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("value", "double"), ("name", "string"))
    ],
}


def write_delta_table(root: Path, files: int, versions: int) -> None:
    """Versions 0 … versions, each but the first adding its share of the files; no checkpoint.

    File k says to hold the ids k * ROWS … (k + 1) * ROWS - 1, by which reads can be pruned.
    """
    log = root / "_delta_log"
    log.mkdir(parents=True)
    each = files // versions
    _write(log, 0, [_information(0, "CREATE TABLE"), *_definition()])
    links = _links(root)
    for version in range(1, versions + 1):
        first = (version - 1) * each
        _write(
            log,
            version,
            [_information(version, "WRITE"), *(_added(k, next(links)) for k in range(first, first + each))],
        )


def _write(log: Path, version: int, actions: list[dict[str, Any]]) -> None:
    file = log / f"{version:020}.json"
    file.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))
    seconds = (STARTED_MS + version * MINUTE_MS) / 1000
    os.utime(file, (seconds, seconds))


def _information(version: int, operation: str) -> dict[str, Any]:
    report = {"timestamp": STARTED_MS + version * MINUTE_MS, "operation": operation, "operationParameters": {}}
    return {"commitInfo": {**report, "engineInfo": "scripts/bench"}}


def _definition() -> list[dict[str, Any]]:
    report = {"id": "5b1d4d63-0000-4000-8000-000000000001", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_SCHEMA), "partitionColumns": [], "configuration": {},
            "createdTime": STARTED_MS}  # fmt: skip
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": report}]


def _added(number: int, file: tuple[str, int]) -> dict[str, Any]:
    path, size = file
    first = number * ROWS
    stats = {"numRecords": ROWS, "minValues": {"id": first, "value": first / 4, "name": f"n{first:08}"},
             "maxValues": {"id": first + ROWS - 1, "value": first / 4 + 1, "name": f"n{first + ROWS - 1:08}"},
             "nullCount": {"id": 0, "value": 0, "name": 0}}  # fmt: skip
    return {"add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": STARTED_MS,
                    "dataChange": True, "stats": json.dumps(stats, separators=(",", ":"))}}  # fmt: skip


def _links(root: Path) -> Iterator[tuple[str, int]]:
    """Data files without end, by name and size."""
    number = 0
    while True:
        original = root / f"part-{number:08}.parquet"
        ids = range(ROWS)
        names = [f"n{each:08}" for each in ids]
        values = pa.array([each / 4 for each in ids])
        parquet.write_table(pa.table({"id": pa.array(ids, pa.int64()), "value": values, "name": names}), original)
        size = original.stat().st_size
        yield original.name, size
        for other in range(number + 1, number + LINKS):
            link = root / f"part-{other:08}.parquet"
            os.link(original, link)
            yield link.name, size
        number += LINKS
