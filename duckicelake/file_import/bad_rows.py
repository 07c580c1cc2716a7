"""Check every row of the files against the table's columns, and keep the bad ones with their file, line and reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.file_import.column_types import quote_name, quote_text, to_duckdb_type
from duckicelake.file_import.duckdb_session import read_in_order
from duckicelake.file_import.fits import Fit, get_member, repeats_key
from duckicelake.file_import.source_rows import FILE_COLUMN, FileGroup, forget_rejects, has_rejects

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckicelake.file_import.source_files import ReadableFile

_TABLE: Final = "bad_rows"
_REPEATS: Final = "repeated_keys"
_MAX_NAMED: Final = 3
_SHOWN_LETTERS: Final = 60
_LAST_WORD: Final = """CASE error_type
WHEN 'MISSING COLUMNS' THEN column_idx = min(column_idx) OVER (PARTITION BY line, error_type)
WHEN 'TOO MANY COLUMNS' THEN column_idx = max(column_idx) OVER (PARTITION BY line, error_type) ELSE true END"""
"""DuckDB names a wrong number of columns once for each column; only one of these numbers is the line's."""


class BadRows:
    """The bad rows of a load, in a table of its DuckDB."""

    SCHEMA: Final = Schema(
        NestedField(1, "run_id", StringType(), required=False),
        NestedField(2, "epoch", LongType(), required=False),
        NestedField(3, "source", StringType(), required=False),
        NestedField(4, "record", StringType(), required=False),
        NestedField(5, "reason", StringType(), required=False),
        NestedField(6, "quarantined_at", TimestamptzType(), required=False),
    )
    """Columns of the quarantine, which the pipeline's ingest has, too."""

    def __init__(self, duck: DuckDBPyConnection) -> None:
        self._duck = duck
        self.count = 0
        duck.execute(
            f"CREATE OR REPLACE TEMP TABLE {_TABLE} (source VARCHAR, line BIGINT, record VARCHAR, reason VARCHAR)"
        )

    def add(self, query: str) -> None:
        """Add the rows of a query: source, line, record, reason."""
        added = self._duck.execute(f"INSERT INTO {_TABLE} {query}").fetchone()
        self.count += added[0] if added else 0

    def select(self, run_id: str, epoch: int) -> str:
        """Return the query for the rows as the quarantine keeps them."""
        return (
            f"SELECT {quote_text(run_id)} AS run_id, CAST({epoch} AS BIGINT) AS epoch, source, record, "
            f"'line ' || line || ': ' || reason AS reason, now() AS quarantined_at FROM {_TABLE}"
        )

    def list_first(self) -> list[str]:
        """Return the first bad rows for a message."""
        found = self._duck.execute(f"FROM {_TABLE} ORDER BY source, line LIMIT {_MAX_NAMED}").fetchall()
        return [f"{source}, line {line}: {reason}" for source, line, _, reason in found]

    def write_file(self, path: Path) -> None:
        """Write the rows to a file: CSV, or lines of JSON if it is named so."""
        form = "json" if path.suffix in {".json", ".jsonl", ".ndjson"} else "csv"
        query = f"SELECT source, line, reason, record FROM {_TABLE} ORDER BY source, line"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._duck.execute(f"COPY ({query}) TO {quote_text(str(path))} (FORMAT {form})")
        except OSError as error:
            raise BadInputError(f"--bad-rows {path} can't be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What a merge demands of its keys: a value, and no second row of the same. has_repeats: whether there is one."""

    keys: tuple[str, ...] = ()
    has_repeats: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """What the check found. good, bad: numbers of rows; rule: by which rows of a merge are bad; groups: to be read."""

    good: int
    bad: int
    bad_rows: BadRows
    rule: KeyRule
    groups: Sequence[FileGroup] = ()

    @property
    def rows(self) -> int:
        """All rows."""
        return self.good + self.bad


@dataclass(frozen=True, slots=True)
class _Flaw:
    """What makes a row bad: a condition and the reason, in SQL."""

    condition: str
    reason: str


def check_rows(
    duck: DuckDBPyConnection,
    groups: Sequence[FileGroup],
    fields: Sequence[NestedField],
    keys: tuple[str, ...] = (),
    follow: Callable[[Sequence[FileGroup]], Iterable[FileGroup]] = iter,
) -> Check:
    """Read all rows and check them. Raises BadColumnError if a required column isn't in a file.

    follow: yields the groups, and notes how far their check is.
    """
    rule = _find_repeats(duck, groups, fields, keys) if keys and groups else KeyRule(keys)
    bad_rows = BadRows(duck)
    good, checked = 0, []
    for group in follow(groups):
        rows, read = _check_group(duck, group, fields, rule, bad_rows)
        good += rows
        checked.append(read)
    return Check(good, bad_rows.count, bad_rows, rule, checked)


def _find_repeats(
    duck: DuckDBPyConnection, groups: Sequence[FileGroup], fields: Sequence[NestedField], keys: tuple[str, ...]
) -> KeyRule:
    """Keep the keys that more than one row has in a table of their own."""
    parts = [
        f"SELECT {', '.join(f'{value} AS {name}' for name, value in _list_key_values(group, fields, keys).items())} "
        f"FROM {group.read()}" + (" WHERE record IS NOT NULL" if group.kind == "json" else "")
        for group in groups
    ]
    added = duck.execute(
        f"CREATE OR REPLACE TEMP TABLE {_REPEATS} AS "
        f"SELECT * FROM ({' UNION ALL '.join(parts)}) GROUP BY ALL HAVING count(*) > 1"
    ).fetchone()
    return KeyRule(keys, has_repeats=bool(added and added[0]))


def _list_key_values(group: FileGroup, fields: Sequence[NestedField], keys: Sequence[str]) -> dict[str, str]:
    """Return SQL of the values of a key's columns, by names for the table of repeated ones."""
    fits = {column.name: fit for column, fit in _fit_columns(group, fields)}
    found = [fits[key] for key in keys]
    return {f"k{number}": "NULL" if fit is None else fit.value for number, fit in enumerate(found)}


def _check_group(
    duck: DuckDBPyConnection, group: FileGroup, fields: Sequence[NestedField], rule: KeyRule, bad_rows: BadRows
) -> tuple[int, FileGroup]:
    """Check the rows of a group; return the number of good ones, and how they are read: quickly if all are good."""
    quick = group if group.quick is None else group.quick
    flaws = list(_list_flaws(quick, fields, rule))
    if quick.rows and not flaws:
        return quick.rows, replace(quick, is_clean=True)
    if group.quick is not None:
        found = _count_rows(duck, quick, flaws)
        if not any(bad for _, _, bad in found):
            return sum(count for _, count, _ in found), replace(quick, is_clean=True)
        flaws = list(_list_flaws(group, fields, rule))
    forget_rejects(duck)
    found = _count_rows(duck, group, flaws)
    by_path = {str(one.path): one for one in group.files}
    rejected = _keep_rejects(duck, group, bad_rows)
    for path, _, bad in found:
        if bad:
            _keep_flawed(duck, group, by_path[path], flaws, bad_rows, rejected.get(path, []))
    is_clean = not any(bad for _, _, bad in found)
    return sum(count - bad for _, count, bad in found), replace(group, is_clean=is_clean)


def _count_rows(duck: DuckDBPyConnection, group: FileGroup, flaws: Sequence[_Flaw]) -> list[tuple[str, int, int]]:
    """Count all rows and the bad ones of each file, but for lines that are no records."""
    counted = f"count(*) FILTER (WHERE {_combine(flaws)})" if flaws else "0"
    is_record = " WHERE record IS NOT NULL" if group.kind == "json" else ""
    # DuckDB looks for broken UTF-8 in the columns alone that a query needs
    needed = ", ".join(f"count({quote_name(name)})" for name in group.names) if group.kind == "csv" else "0"
    query = f"SELECT {FILE_COLUMN}, count(*), {counted}, [{needed}] FROM {group.read()}{is_record} GROUP BY 1"
    return [(path, count, bad) for path, count, bad, _ in duck.execute(query).fetchall()]


def _list_flaws(group: FileGroup, fields: Sequence[NestedField], rule: KeyRule) -> Iterator[_Flaw]:
    if group.unread:
        yield _Flaw(group.unread, "'no JSON object'")
    for column, fit in _fit_columns(group, fields):
        if fit is None:
            if column.required:
                raise BadColumnError(
                    f"{group.files[0].found.name} has no column {column.name}, which must have a value"
                )
            continue
        if fit.bad:
            shown = f"left(CAST({_get_raw(group, column)} AS VARCHAR), {_SHOWN_LETTERS})"
            reason = f"{quote_text(f'{column.name} is no {column.field_type}: ')} || coalesce({shown}, '')"
            if repeated := _find_repeated_keys(group, column):
                several = quote_text(f"more than one key is {column.name}, regardless of case")
                reason = f"CASE WHEN {repeated} THEN {several} ELSE {reason} END"
            yield _Flaw(fit.bad, reason)
        if column.required or column.name in rule.keys:
            lacks = f"({fit.value} IS NULL{f' AND NOT {fit.bad}' if fit.bad else ''})"
            if group.unread:
                lacks = f"(NOT coalesce({group.unread}, false) AND {lacks})"
            yield _Flaw(lacks, quote_text(f"{column.name} must have a value"))
    if rule.has_repeats:
        values = _list_key_values(group, fields, rule.keys)
        key = ", ".join(f"{name} := {value}" for name, value in values.items())
        kept = ", ".join(f"{name} := {name}" for name in values)
        reason = quote_text(f"more than one row has this {', '.join(rule.keys)}")
        yield _Flaw(f"(struct_pack({key}) IN (SELECT struct_pack({kept}) FROM {_REPEATS}))", reason)


def _get_raw(group: FileGroup, column: NestedField) -> str:
    keys = group.find_keys(column.name)
    return get_member("record", keys) if group.kind == "json" else quote_name(keys[0])


def _find_repeated_keys(group: FileGroup, column: NestedField) -> str:
    return repeats_key("record", group.find_keys(column.name)) if group.kind == "json" else ""


def _fit_columns(group: FileGroup, fields: Sequence[NestedField]) -> Iterator[tuple[NestedField, Fit | None]]:
    for column in fields:
        keys = group.find_keys(column.name)
        # JSON records may have any key
        fit = group.fit(column.name, column.field_type) if keys or group.kind == "json" else None
        if fit is not None and group.unread and not group.is_clean:
            guarded = f"CASE WHEN NOT {group.unread} THEN {fit.value} END"
            bad = f"CASE WHEN NOT {group.unread} THEN {fit.bad} ELSE false END" if fit.bad else ""
            fit = Fit(guarded, bad)
        yield column, fit


def build_good_rows(group: FileGroup, fields: Sequence[NestedField], rule: KeyRule) -> str:
    """Build the query for a group's good rows, in the table's columns."""
    values = [
        f"{'CAST(NULL AS ' + to_duckdb_type(column.field_type) + ')' if fit is None else fit.value} "
        f"AS {quote_name(column.name)}"
        for column, fit in _fit_columns(group, fields)
    ]
    flaws = [] if group.is_clean else list(_list_flaws(group, fields, rule))
    conditions = [f"NOT {_combine(flaws)}"] if flaws else []
    if group.kind == "json" and not group.members:
        conditions.append("record IS NOT NULL")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(values)} FROM {group.read()}{where}"


def build_rows(groups: Sequence[FileGroup], schema: Schema, rule: KeyRule) -> str:
    """Build the query for the rows that are good."""
    parts = [build_good_rows(group, schema.fields, rule) for group in groups]
    if parts:
        return " UNION ALL ".join(parts)
    nulls = ", ".join(
        f"CAST(NULL AS {to_duckdb_type(one.field_type)}) AS {quote_name(one.name)}" for one in schema.fields
    )
    return f"SELECT {nulls} WHERE false"


def _combine(flaws: Sequence[_Flaw]) -> str:
    return "(" + " OR ".join(f"coalesce({flaw.condition}, false)" for flaw in flaws) + ")"


def _keep_rejects(duck: DuckDBPyConnection, group: FileGroup, bad_rows: BadRows) -> dict[str, list[int]]:
    """Keep lines that are no records; return their numbers by path."""
    if group.kind not in {"csv", "json"}:
        return {}
    if not has_rejects(duck):
        return {}
    scans = "(SELECT DISTINCT file_id, scan_id, file_path FROM reject_scans)"
    joined = f"reject_errors JOIN {scans} USING (scan_id, file_id)"
    rejected: dict[str, list[int]] = {}
    for path, line in duck.execute(f"SELECT DISTINCT file_path, line FROM {joined}").fetchall():
        rejected.setdefault(path, []).append(line)
    names = [one for one in group.files if str(one.path) in rejected]
    for one in names:
        bad_rows.add(
            f"SELECT {quote_text(one.found.name)}, line, min(csv_line), "
            "string_agg(DISTINCT error_message, '; ' ORDER BY error_message) FROM ("
            f"SELECT line, csv_line, error_message FROM {joined} WHERE file_path = {quote_text(str(one.path))} "
            f"QUALIFY {_LAST_WORD}) GROUP BY line"
        )
    return rejected


def _keep_flawed(
    duck: DuckDBPyConnection,
    group: FileGroup,
    file: ReadableFile,
    flaws: Sequence[_Flaw],
    bad_rows: BadRows,
    rejected: Sequence[int],
) -> None:
    """Keep a file's bad rows with their lines, which count rejected lines and breaks within records, too."""
    reasons = ", ".join(f"CASE WHEN {flaw.condition} THEN {flaw.reason} END" for flaw in flaws)
    length = f"len({group.text}) - len(replace({group.text}, chr(10), ''))"
    breaks = f"coalesce(sum({length}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
    place = f"row_number() OVER () + {int(group.has_header)}"
    if group.kind == "csv":
        place += f" + {breaks}"
    with read_in_order(duck):
        values = f"{place} AS line, {group.text} AS record, concat_ws('; ', {reasons}) AS reason"
        numbered = f"SELECT * FROM (SELECT {values} FROM {group.read([file])}) WHERE reason <> ''"
        # the rejected line number k (from 0) stands before a row if at most its line less k rows come before it
        shifts = [one - number for number, one in enumerate(sorted(rejected))]
        shift = f"len(list_filter({shifts}::BIGINT[], lambda l: l <= CAST(line AS BIGINT)))" if shifts else "0"
        bad_rows.add(
            f"SELECT {quote_text(file.found.name)}, CAST(line AS BIGINT) + {shift}, record, reason FROM ({numbered})"
        )
