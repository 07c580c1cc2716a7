"""DuckDB's transactions that would take the effect of one another's deletes away: who commits last is refused."""

import re

import duckdb
import pytest

from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.table.load import load_current_table

REWRITE = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"
MERGE = "CALL ducklake_merge_adjacent_files('lake', 't')"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
FEW = "DELETE FROM t WHERE i BETWEEN 40 AND 44"
OTHER_FEW = "DELETE FROM t WHERE i BETWEEN 140 AND 144"
UPDATE = "UPDATE t SET i = i + 1000 WHERE i BETWEEN 50 AND 54"
MANY = "DELETE FROM t WHERE i BETWEEN 60 AND 79"
OTHER_MANY = "DELETE FROM t WHERE i BETWEEN 160 AND 179"
START = "DELETE FROM t WHERE i < 2"  # few
START_MANY = "DELETE FROM t WHERE i < 30"
REFUSALS = "Another transaction has|Transaction conflict"


@pytest.fixture
def clients(attach):
    """Two DuckDB clients of a table with two files, 0 to 99 and 100 to 199."""
    first, second = attach(), attach()
    first.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
    first.execute("INSERT INTO t SELECT range FROM range(100, 200)")
    return first, second


def rows(client):
    return sorted(client.execute("FROM t").fetchall())


def run(client, *statements):
    for statement in statements:
        client.execute(statement).fetchall()


def commit(client):
    """What Postgres or DuckDB refuses it with, None if it is committed."""
    try:
        client.execute("COMMIT")
    except duckdb.Error as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("before", "opened", "between"),
    [
        ([], MERGE, FEW),
        ([], MERGE, UPDATE),
        ([], FEW, MERGE),
        ([], UPDATE, MERGE),
        ([START], REWRITE, FEW),
        ([START], REWRITE, UPDATE),
        ([START], FEW, REWRITE),
        ([START], UPDATE, REWRITE),
        ([START_MANY], REWRITE, FEW),
        ([START_MANY], FEW, REWRITE),
        ([START_MANY], MANY, "DELETE FROM t WHERE i BETWEEN 80 AND 95"),
        ([START], MANY, FLUSH),
        ([START], FLUSH, MANY),
        ([START_MANY, FEW], MANY, FLUSH),
    ],
)
def test_transaction_that_would_undo_a_delete_is_refused_and_leaves_it(clients, attach, before, opened, between):
    first, second = clients
    run(first, *before)
    run(first, "BEGIN", opened)
    run(second, between)
    expected = rows(second)

    refused = commit(first)

    assert refused is not None
    assert "Another transaction has" in refused or "Transaction conflict" in refused
    assert rows(attach()) == expected
    run(first, opened)  # as the refusal says
    assert len(rows(attach())) == len(expected) - {FEW: 5, MANY: 20}.get(opened, 0)


@pytest.mark.parametrize(
    ("before", "opened", "between"),
    [
        ([FEW], MERGE, "INSERT INTO t SELECT range FROM range(200, 300)"),
        ([START], REWRITE, OTHER_FEW),
        ([START_MANY, FEW], REWRITE, OTHER_FEW),
        ([START_MANY], MANY, OTHER_MANY),
        ([START_MANY], MANY, OTHER_FEW),
        ([FEW, REWRITE], "DELETE FROM t WHERE i BETWEEN 45 AND 49", OTHER_MANY),
    ],
)
def test_transactions_that_leave_each_other_alone_are_both_committed(clients, attach, before, opened, between):
    first, second = clients
    run(first, *before, "BEGIN", opened)
    mine = set(rows(first))
    run(second, between)
    added = {(i,) for i in range(200, 300)}
    expected = sorted((mine & set(rows(second))) | (set(rows(second)) & added))

    assert commit(first) is None

    assert rows(attach()) == expected


def test_rewrite_merge_flush_and_expiry_go_on_with_deletes_of_all_kinds(clients, attach):
    first, _ = clients
    gone = set()
    for step in range(3):
        few, many = range(step * 5, step * 5 + 3), range(100 + step * 15, 113 + step * 15)
        gone |= {*few, *many}
        run(first, f"DELETE FROM t WHERE i BETWEEN {few[0]} AND {few[-1]}", MERGE, REWRITE)
        run(first, f"DELETE FROM t WHERE i BETWEEN {many[0]} AND {many[-1]}", REWRITE, FLUSH, MERGE)
        run(first, f"UPDATE t SET i = i + 1000 WHERE i = {60 + step}")
    run(first, "CALL ducklake_expire_snapshots('lake', older_than => now())", MERGE, FLUSH, REWRITE, "CHECKPOINT lake")
    changed = {60, 61, 62}
    assert rows(attach()) == [(i,) for i in sorted({*range(200)} - gone - changed | {i + 1000 for i in changed})]


def damaged(first, second, database, opened, between):
    """What doctor finds after two transactions that the triggers would have refused."""
    tables = ("ducklake_data_file", "ducklake_delete_file", "ducklake_snapshot_changes")
    switch(database, "DISABLE", tables)
    run(first, "BEGIN", opened)
    run(second, between)
    assert commit(first) is None
    switch(database, "ENABLE", tables)
    return [finding for finding in examine_tables(database)[0] if finding.name in ("deletes", "delete files")]


def switch(database, how, tables):
    with database.transaction() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} {how} TRIGGER USER")


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize(
    ("opened", "between", "served"), [(MERGE, "", True), ("", MERGE, True), (REWRITE, "", False), ("", REWRITE, False)]
)
def test_doctor_finds_rows_that_are_back_and_its_advice_deletes_them_again(
    clients, attach, database, services, opened, between, served, update
):
    first, second = clients
    if not served:
        run(first, START)  # so that there is something to rewrite
    if served:  # by which the row ids of files that were merged are known
        load_current_table(services, ("main",), "t")
    delete = UPDATE if update else FEW
    gone, come = (range(50, 55), range(1050, 1055)) if update else (range(40, 45), ())
    expected = {*range(0 if served else 2, 200), *come} - {*gone}

    (finding,) = damaged(first, second, database, opened or delete, between or delete)

    assert len(rows(attach())) == len(expected) + 5
    statement = re.search(r"DELETE FROM main\.t WHERE .*?parquet'", finding.advice)
    run(first, statement.group())
    assert rows(attach()) == [(i,) for i in sorted(expected)]
    if "forget" in finding.advice:
        with database.transaction() as cursor:
            cursor.execute(finding.advice.rpartition(": ")[2])
    else:
        run(first, "CALL ducklake_expire_snapshots('lake', older_than => now())")
    assert examine_tables(database)[0] == []


def test_doctor_finds_two_delete_files_of_a_file_and_its_advice_unites_them(clients, attach, database, warehouse):
    first, second = clients
    run(first, START_MANY)
    other = "DELETE FROM t WHERE i BETWEEN 80 AND 95"

    (finding,) = damaged(first, second, database, MANY, other)

    with database.transaction() as cursor:
        cursor.execute(finding.advice.rpartition(": ")[2])
    (ended,) = re.findall(r"others \((.*?)\)", finding.advice)
    (path,) = warehouse.rglob(ended)
    statement = re.search(r"DELETE FROM main\.t WHERE .*?'\)\)?", finding.advice).group()
    run(attach(), statement.replace("<its whole path>", str(path)))
    assert rows(attach()) == [(i,) for i in (*range(30, 60), *range(96, 200))]
    assert examine_tables(database)[0] == []
