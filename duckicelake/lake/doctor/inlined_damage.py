"""Damage that only the tables of inlined rows and deletes can tell, which are named by the tables they belong to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from psycopg import sql

from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("damage")


@dataclass(frozen=True, slots=True)
class _Needed:
    """What a table's rows need its table-wide statistics to say; `told` is the next row id that they do say."""

    table_id: int
    records: int
    next_row_id: int
    size: int
    told: int | None


def damaged_inlining(cursor: Transaction, names: Mapping[int, str]) -> list[Finding]:
    """Inlined deletes of others' data files; row ids that would be given again, those of inlined rows included."""
    return [*_dangling_deletes(cursor, names), *_low_row_ids(cursor, names)]


def _dangling_deletes(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    """DuckDB itself leaves those of files that have gone; not so those of another table's files, or of none ever."""
    for table_id, name in cursor.execute(_SQL.inlined_delete_tables).fetchall():
        query = sql.SQL(
            "SELECT file_id, count(*) FROM {} i LEFT JOIN ducklake_data_file d ON d.data_file_id = i.file_id "
            "WHERE d.table_id <> {} "
            "OR i.file_id >= (SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) "
            "GROUP BY file_id ORDER BY file_id"
        ).format(sql.Identifier(name), sql.Literal(table_id))
        rows = cursor.execute(query).fetchall() if table_id in names else []
        for file_id, count in rows:
            yield Finding(
                "inlined rows",
                ok=False,
                detail=f"{names[table_id]}: {name} deletes {count} rows of data file {file_id}, which isn't its",
                advice=f"put its file_id right; if they delete nothing: DELETE FROM {name} WHERE file_id = {file_id};",
            )


def _low_row_ids(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    for each in _needed(cursor):
        name = names.get(each.table_id)
        if name is None or not each.next_row_id or (each.told is not None and each.told >= each.next_row_id):
            continue
        if each.told is None:
            yield Finding(
                "statistics",
                ok=False,
                detail=f"{name}: has rows up to row id {each.next_row_id - 1}, but no row in ducklake_table_stats",
                advice="the next insert would give their row ids again: INSERT INTO ducklake_table_stats VALUES "
                f"({each.table_id}, {each.records}, {each.next_row_id}, {each.size});",
            )
        else:
            yield Finding(
                "statistics",
                ok=False,
                detail=f"{name}: its next row id is {each.told}, but {each.next_row_id - 1} is in use",
                advice="the next insert would give row ids again: UPDATE ducklake_table_stats "
                f"SET next_row_id = {each.next_row_id} WHERE table_id = {each.table_id};",
            )


def _needed(cursor: Transaction) -> Iterator[_Needed]:
    inlined = _inlined(cursor)
    for table_id, records, next_row_id, size, told in cursor.execute(_SQL.row_ids).fetchall():
        count, following = inlined.get(table_id, (0, 0))
        yield _Needed(table_id, records + count, max(next_row_id, following), size, told)


def _inlined(cursor: Transaction) -> dict[int, tuple[int, int]]:
    """(How many rows are inlined, the row id after their highest) by table."""
    found: dict[int, tuple[int, int]] = {}
    for table_id, name in cursor.execute(_SQL.inlined_tables).fetchall():
        query = sql.SQL("SELECT count(*), coalesce(max(row_id) + 1, 0) FROM {}").format(sql.Identifier(name))
        ((count, following),) = cursor.execute(query).fetchall()
        before = found.get(table_id, (0, 0))
        found[table_id] = (before[0] + count, max(before[1], following))
    return found
