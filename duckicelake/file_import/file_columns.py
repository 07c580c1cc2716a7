"""Find the columns that files have, and the types that all their rows have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    MapType,
    NestedField,
    StringType,
    StructType,
)

from duckicelake.errors import BadSourceError
from duckicelake.file_import.column_types import from_duckdb_type, quote_name, quote_text
from duckicelake.file_import.fits import TEXT_TESTS, build_pointer
from duckicelake.file_import.source_rows import FILE_COLUMN, JSON_SCALARS, FileGroup, forget_rejects, has_rejects
from duckicelake.file_import.table_columns import Path, format_path, join_columns

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckicelake.file_import.source_files import ReadableFile

_SAMPLE_ROWS: Final = 2000
_MAX_TESTS: Final = 200
"""Tests in one query. DuckDB's time for a query grows faster than their number."""
_MAX_FORMS: Final = 1000
"""Of flat records: sets of the types of their fields."""
_JSON_INTEGERS: Final = ("UBIGINT", "BIGINT", "HUGEINT")
"""DuckDB's structures of integers: the last is that of some below and some above zero."""
_JSON_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(_JSON_INTEGERS, "long"),
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
}


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
    found, rows = _infer_types(duck, group, open_names)
    return replace(group, rows=rows, found=found), {
        name: found.get(name) or known[name.lower()] for name in group.names
    }


def _infer_types(
    duck: DuckDBPyConnection, group: FileGroup, names: Sequence[str]
) -> tuple[dict[str, IcebergType], int]:
    """Find the first type that all values have: candidates by a sample, then by all rows until none of them fails.

    Return also the number of rows, if they were counted and none was rejected.
    """
    tests = dict(enumerate(TEXT_TESTS))
    candidates = {name: list(tests) for name in names}
    sample = f"(FROM {group.read()} LIMIT {_SAMPLE_ROWS})"
    failed, _ = _test_rows(duck, sample, [(name, number) for name in names for number in tests])
    for name, number in failed:
        candidates[name].remove(number)
    checked: set[tuple[str, int]] = set()
    rows = 0
    forget_rejects(duck)
    while wanted := [
        (name, kinds[0]) for name, kinds in candidates.items() if kinds and (name, kinds[0]) not in checked
    ]:
        failed, counted = _test_rows(duck, group.read(), wanted, () if checked else group.names)
        rows = rows or counted
        checked.update(wanted)
        for name, number in failed:
            candidates[name].remove(number)
    types = {name: tests[kinds[0]][0] if kinds else StringType() for name, kinds in candidates.items()}
    return types, 0 if has_rejects(duck) else rows


def _test_rows(
    duck: DuckDBPyConnection, rows: str, wanted: Sequence[tuple[str, int]], needed: Sequence[str] = ()
) -> tuple[list[tuple[str, int]], int]:
    """Return the pairs of column and test which some value fails, all of a column without values; and count the rows.

    needed: columns of which DuckDB rejects broken UTF-8, as in those alone that a query reads.
    """
    failed, counted = [], 0
    for first in range(0, len(wanted), _MAX_TESTS):
        part = wanted[first : first + _MAX_TESTS]
        tests = ", ".join(map(_build_type_test, part))
        read = ", ".join(f"count({quote_name(name)})" for name in needed) or "0"
        # DuckDB notes rejects at the end of a query, which fetchone doesn't wait for
        ((*results, counted, _),) = duck.execute(f"SELECT {tests}, count(*), [{read}] FROM {rows}").fetchall()
        failed += [pair for pair, is_true in zip(part, results, strict=True) if not is_true]
        needed = ()
    return failed, counted


def _build_type_test(pair: tuple[str, int]) -> str:
    """Build the test of all values. Measured: `FILTER (WHERE …)` in place of CASE takes five times as long."""
    text = f"nullif(trim({quote_name(pair[0])}), '')"
    return f"bool_and(CASE WHEN {text} IS NOT NULL THEN {TEXT_TESTS[pair[1]][1].format(text)} END)"


def _find_json_columns(duck: DuckDBPyConnection, group: FileGroup) -> tuple[FileGroup, dict[str, IcebergType]]:
    """Find the fields that records have, and types that hold all their values.

    The quick scan fails for a record that is no JSON; then its line is looked for by the other one.
    """
    quick, found, rows = group.quick, None, 0
    if quick is not None:
        with suppress(duckdb.InvalidInputException):
            uniform = _find_uniform(duck, quick)
            found, rows = uniform or (_find_structure(duck, quick.read()), rows)
        quick = None if found is None else _read_members(replace(quick, forms=found), found, rows)
    if found is None:
        found = _find_structure(duck, _list_records(group)) or {}
    return replace(group, quick=quick, forms=found), _parse_columns(found)


def _list_records(group: FileGroup, files: Sequence[ReadableFile] | None = None) -> str:
    """Return what stands behind FROM for the records that are JSON objects."""
    is_read = f"record IS NOT NULL AND NOT {group.unread}" if group.unread else "true"
    return f"(SELECT CAST(record AS JSON) AS record FROM {group.read(files)} WHERE {is_read})"


def _parse_columns(found: Mapping[str, Any]) -> dict[str, IcebergType]:
    ids = count(1)
    return join_columns({name: _parse_structure(form, ids)} for name, form in found.items())


def check_keys(
    duck: DuckDBPyConnection,
    groups: Sequence[FileGroup],
    columns: Mapping[str, IcebergType],
    known: Mapping[str, IcebergType],
) -> None:
    """Raise BadSourceError if JSON objects have an empty key where a column, or a field of a struct, would be made.

    known: types that are given, by lower-case names. Maps and texts may have any keys.
    """
    if _find_unnamed(columns, known) is None:
        return
    for group in groups:
        for one in group.files if group.kind == "json" else ():
            found = _parse_columns(_find_structure(duck, _list_records(group, [one])) or {})
            path = _find_unnamed(found, known)
            if path is not None:
                raise BadSourceError(f'{one.found.name} has an empty key (""){_advise(path)}')


def _advise(path: Path) -> str:
    if not path:
        return ": no column can be called so; rename it"
    return (
        f" in {format_path(path)}: no field can be called so; rename it, or give --schema with {path[0]} as string, "
        "which keeps the JSON"
    )


def _find_unnamed(columns: Mapping[str, IcebergType], known: Mapping[str, IcebergType]) -> Path | None:
    """Find the path of an object with an empty key that isn't kept as a key; None if there is none."""
    for name, type_ in columns.items():
        if not name:
            return ()
        inner = _find_unnamed_part(type_, known.get(name.lower()))
        if inner is not None:
            return (name, *inner)
    return None


def _find_unnamed_part(type_: IcebergType, known: IcebergType | None) -> Path | None:
    if known is not None and (known.is_primitive or isinstance(known, MapType)):
        return None
    if isinstance(type_, ListType):
        inner = _find_unnamed_part(type_.element_type, known.element_type if isinstance(known, ListType) else None)
        return None if inner is None else ("element", *inner)
    if not isinstance(type_, StructType):
        return None
    here = {field.name.lower(): field.field_type for field in known.fields} if isinstance(known, StructType) else {}
    return _find_unnamed({field.name: field.field_type for field in type_.fields}, here)


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


def _find_uniform(duck: DuckDBPyConnection, quick: FileGroup) -> tuple[dict[str, str], int] | None:
    """Find the types of flat records that all have the fields of the first ones, and count them.

    None for others, and where a number is no long. It takes a third of the time for their structures.
    """
    sample = _find_structure(duck, f"(FROM {quick.read()} LIMIT {_SAMPLE_ROWS})")
    if not sample or not _are_columns(sample) or any(form not in JSON_SCALARS for form in sample.values()):
        return None
    paths = ", ".join(map(quote_text, ["$", *map(build_pointer, sample)]))
    numbers = {name: "UBIGINT" for name, form in sample.items() if form in _JSON_INTEGERS}
    spec = quote_text(orjson.dumps(numbers or {next(iter(sample)): "UBIGINT"}).decode())
    greatest = f"max(greatest({', '.join(f'numbers.{quote_name(name)}' for name in numbers)}))" if numbers else "NULL"
    read = (
        f"SELECT json_type(record, [{paths}]) AS kinds, len(json_keys(record)) AS keys, "
        f"json_transform(record, {spec}) AS numbers FROM {quick.read()}"
    )
    query = f"SELECT kinds, keys, count(*), {greatest} FROM ({read}) GROUP BY kinds, keys"
    found = duck.execute(f"{query} LIMIT {_MAX_FORMS + 1}").fetchall()
    if len(found) > _MAX_FORMS or not all(map(_is_flat, found)):
        return None
    types = [_join_kinds(kinds) for kinds in list(zip(*(row[0] for row in found), strict=True))[1:]]
    rows = sum(count_ for *_, count_, _ in found)
    return None if None in types else (dict(zip(sample, map(str, types), strict=True)), rows)


def _are_columns(names: Collection[str]) -> bool:
    return "" not in names and len({name.lower() for name in names}) == len(names)


def _is_flat(found: tuple[Sequence[str | None], int, int, int | None]) -> bool:
    """Return whether records of one kind are objects without other fields, and with no number above the longs."""
    (kind, *kinds), keys, _, greatest = found
    return kind == "OBJECT" and keys == len(kinds) - kinds.count(None) and (greatest or 0) < 1 << 63


def _join_kinds(kinds: Iterable[str | None]) -> str | None:
    """Join the types of a field's values; None if no one of them holds all."""
    found = {kind for kind in kinds if kind not in {None, "NULL"}}
    for joined, narrower in (("BIGINT", {"UBIGINT"}), ("DOUBLE", {"UBIGINT", "BIGINT"})):
        if joined in found:
            found -= narrower
    return found.pop() if len(found) == 1 and found <= {*JSON_SCALARS} else None


def _read_members(quick: FileGroup, found: Mapping[str, Any], rows: int) -> FileGroup:
    """Let a scan parse all fields of a record at once, those of one type as text.

    Fields that differ by case alone aren't among them: DuckDB has no struct of both, and none with an empty name.
    """
    names = Counter(name.lower() for name in found)
    found = {name: form for name, form in found.items() if name and names[name.lower()] == 1}
    if not found:
        return quick
    spec = {name: "VARCHAR" if form in JSON_SCALARS else "JSON" for name, form in found.items()}
    fields = f"json_transform(record, {quote_text(orjson.dumps(spec).decode())}) AS fields"
    return replace(quick, scan=f"(SELECT record, {FILE_COLUMN}, {fields} FROM {quick.scan})", members=found, rows=rows)


def _parse_structure(form: Any, ids: Iterator[int]) -> IcebergType:
    simple: dict[str, IcebergType] = {"long": LongType(), "double": DoubleType(), "boolean": BooleanType()}
    if isinstance(form, dict) and form:
        members = join_columns({name: _parse_structure(inner, ids)} for name, inner in form.items())
        return StructType(*(NestedField(next(ids), name, type_, required=False) for name, type_ in members.items()))
    if isinstance(form, list) and form:
        return ListType(next(ids), _parse_structure(form[0], ids), element_required=False)
    return simple.get(_JSON_TYPES.get(str(form), ""), StringType())
