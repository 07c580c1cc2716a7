"""Find the columns that files have, and the types that all their rows have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import duckdb
import orjson
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from duckicelake.file_import.column_types import from_duckdb_type, quote_name, quote_text
from duckicelake.file_import.fits import TEXT_TESTS
from duckicelake.file_import.source_rows import FILE_COLUMN, JSON_SCALARS, FileGroup, check_distinct

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SAMPLE_ROWS: Final = 2000
_MAX_TESTS: Final = 200
"""Tests in one query. DuckDB's time for a query grows faster than their number."""
_JSON_TYPES: Final[Mapping[str, str]] = {"BIGINT": "long", "UBIGINT": "long", "DOUBLE": "double", "BOOLEAN": "boolean"}


def find_columns(
    duck: DuckDBPyConnection, group: FileGroup, known: Mapping[str, IcebergType]
) -> tuple[FileGroup, dict[str, IcebergType]]:
    """Find the columns of a group and their types, over all its rows; return the group as it is read from now on.

    known: types that are given, by lower-case names.
    """
    if group.kind == "json":
        return _find_json_columns(duck, group)
    if group.kind != "csv":
        ids = count(1)
        return group, {name: from_duckdb_type(type_, name, ids) for name, type_ in group.types.items()}
    open_names = [name for name in group.names if name.lower() not in known]
    found = _infer_types(duck, group, open_names)
    return group, {name: found.get(name) or known[name.lower()] for name in group.names}


def _infer_types(duck: DuckDBPyConnection, group: FileGroup, names: Sequence[str]) -> dict[str, IcebergType]:
    """Find the first type that all values have: candidates by a sample, then by all rows until none of them fails."""
    tests = dict(enumerate(TEXT_TESTS))
    candidates = {name: list(tests) for name in names}
    sample = f"(FROM {group.read()} LIMIT {_SAMPLE_ROWS})"
    failed = _find_failures(duck, sample, [(name, number) for name in names for number in tests])
    for name, number in failed:
        candidates[name].remove(number)
    checked: set[tuple[str, int]] = set()
    while wanted := [
        (name, kinds[0]) for name, kinds in candidates.items() if kinds and (name, kinds[0]) not in checked
    ]:
        checked.update(wanted)
        for name, number in _find_failures(duck, group.read(), wanted):
            candidates[name].remove(number)
    return {name: tests[kinds[0]][0] if kinds else StringType() for name, kinds in candidates.items()}


def _find_failures(duck: DuckDBPyConnection, rows: str, wanted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the pairs of column and test which some value fails; all of a column without values."""
    if not wanted:
        return []
    failed = []
    for first in range(0, len(wanted), _MAX_TESTS):
        part = wanted[first : first + _MAX_TESTS]
        tests = ", ".join(map(_build_type_test, part))
        answer = duck.execute(f"SELECT {tests} FROM {rows}").fetchone()
        assert answer is not None
        failed += [pair for pair, is_true in zip(part, answer, strict=True) if not is_true]
    return failed


def _build_type_test(pair: tuple[str, int]) -> str:
    """Build the test of all values. Measured: `FILTER (WHERE …)` in place of CASE takes five times as long."""
    text = f"nullif(trim({quote_name(pair[0])}), '')"
    return f"bool_and(CASE WHEN {text} IS NOT NULL THEN {TEXT_TESTS[pair[1]][1].format(text)} END)"


def _find_json_columns(duck: DuckDBPyConnection, group: FileGroup) -> tuple[FileGroup, dict[str, IcebergType]]:
    """Find the fields that records have, and types that hold all their values.

    The quick scan fails for a record that is no JSON; then its line is looked for by the other one.
    """
    quick, found = group.quick, None
    if quick is not None:
        with suppress(duckdb.InvalidInputException):
            found = _find_structure(duck, quick.read())
        quick = None if found is None else _read_members(quick, found)
    if found is None:
        is_read = f"record IS NOT NULL AND NOT {group.unread}"
        rows = f"(SELECT CAST(record AS JSON) AS record FROM {group.read()} WHERE {is_read})"
        found = _find_structure(duck, rows) or {}
    check_distinct(found, group.files[0].found.name)
    ids = count(1)
    return replace(group, quick=quick), {name: _parse_structure(form, ids) for name, form in found.items()}


def _find_structure(duck: DuckDBPyConnection, rows: str) -> dict[str, Any] | None:
    """Find the structure of all records, first the fields of most; None if one is no object, or there is none."""
    # One record of each structure: json_group_structure first makes an array of all of them, in memory
    some = (
        "(SELECT any_value(record) AS record, json_structure(record) AS form, count(*) AS records "
        f"FROM {rows} GROUP BY form)"
    )
    all_forms = "json_structure(to_json(list(record ORDER BY records DESC, form)))"
    query = f"SELECT CAST({all_forms} AS VARCHAR), bool_and(json_type(record) = 'OBJECT') FROM {some}"
    structure, are_objects = duck.execute(query).fetchone() or (None, None)
    found = orjson.loads(structure) if structure and are_objects else None
    return found[0] if found and isinstance(found[0], dict) else None


def _read_members(quick: FileGroup, found: Mapping[str, Any]) -> FileGroup:
    """Let a scan parse all fields of a record at once, those of one type as text."""
    spec = {name: "VARCHAR" if form in JSON_SCALARS else "JSON" for name, form in found.items()}
    fields = f"json_transform(record, {quote_text(orjson.dumps(spec).decode())}) AS fields"
    return replace(quick, scan=f"(SELECT record, {FILE_COLUMN}, {fields} FROM {quick.scan})", members=found)


def _parse_structure(form: Any, ids: Iterator[int]) -> IcebergType:
    simple: dict[str, IcebergType] = {"long": LongType(), "double": DoubleType(), "boolean": BooleanType()}
    if isinstance(form, dict) and form:
        fields = [
            NestedField(next(ids), name, _parse_structure(inner, ids), required=False) for name, inner in form.items()
        ]
        return StructType(*fields)
    if isinstance(form, list) and form:
        return ListType(next(ids), _parse_structure(form[0], ids), element_required=False)
    return simple.get(_JSON_TYPES.get(str(form), ""), StringType())
