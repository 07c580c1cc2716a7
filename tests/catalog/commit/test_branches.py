"""Branches that diverge, and every way of moving main: DuckDB sees main, and snapshots show what they always showed."""

from pathlib import Path

from tests.support.client import Row, data_files, local, set_ref
from tests.support.contents import read_rows
from tests.support.table_history import FLUSH, MERGE, History


def test_duckdb_sees_main_only(history: History) -> None:
    base = history.append()
    history.set_ref("audit", base)
    first = history.append("audit")
    history.check()
    history.insert(2)
    history.delete("audit", history.ids("audit")[:2])
    history.check()
    history.append()
    history.overwrite("audit", [history.ids("audit")[-1]])
    history.check()
    assert history.rows("audit") != history.rows()
    assert first in history.shown


def test_main_is_fast_forwarded(history: History) -> None:
    history.set_ref("audit", history.append())
    history.append("audit")
    history.delete("audit", history.ids("audit")[1:4])
    history.set_ref("main", history.head("audit"))
    history.check()
    history.delete_in_duckdb(history.ids()[:1])
    history.append()
    history.check()


def test_main_is_rolled_back_and_forward(history: History) -> None:
    marks = [history.append(number=5)]
    history.insert(4)
    marks.append(history.head())
    history.rename_in_duckdb(history.ids()[4:7], "renamed")
    marks.append(history.delete("main", history.ids()[2:6]))
    history.delete_in_duckdb(history.ids()[:2])
    marks.append(history.head())
    history.duckdb(FLUSH)
    marks.append(history.overwrite("main", history.ids()[-1:]))
    history.insert(20)
    marks.append(history.head())
    history.duckdb(MERGE)
    marks.append(history.head())
    history.check()
    for mark in (*reversed(marks), *marks, marks[2], marks[5], marks[1]):
        history.set_ref("main", mark)
        history.check_main()
    history.check()


def test_main_is_set_to_snapshots_that_it_never_had(history: History) -> None:
    base = history.append()
    history.set_ref("audit", base)
    middle = history.append("audit")
    history.delete("audit", history.ids("audit")[:2])
    staged = history.append(None)
    history.insert(3)
    history.delete_in_duckdb(history.ids()[:1])
    for target in (middle, staged, history.head("audit"), base, staged):
        history.set_ref("main", target)
        history.check_main()
        history.delete("main", history.ids()[:1])
        history.rename_in_duckdb(history.ids()[:1], f"on{target}-")
        history.check_main()
    history.check()


def test_staged_snapshot_is_cherry_picked(history: History) -> None:
    history.append()
    staged = history.append(None)
    history.insert(2)
    history.append()
    before = history.head()
    history.cherry_pick(staged)
    history.check()
    history.delete("main", history.ids()[3:5])
    history.delete_in_duckdb(history.ids()[-2:])
    history.check()
    history.set_ref("main", before)
    history.set_ref("tag", history.cherry_pick(staged), "tag")
    history.set_ref("main", staged)
    history.check()
    history.set_ref("main", history.head("tag"))
    history.check()


def test_staged_snapshots_are_published_one_on_the_other(history: History) -> None:
    base = history.append()
    first = history.append(None)
    second = history.append(None, built_on=first)
    history.insert(2)
    history.check()
    history.set_ref("main", base)
    history.set_ref("main", first)
    history.insert(1)
    history.check_main()
    history.set_ref("main", second)
    history.check()


def test_branch_is_replaced_by_one_that_diverged(history: History) -> None:
    base = history.append(number=6)
    history.set_ref("audit", base)
    history.delete("audit", history.ids()[:2])
    history.overwrite("audit", history.ids("audit")[:1])
    history.delete("main", history.ids()[1:3])
    history.delete_in_duckdb(history.ids()[-1:])
    ours, theirs = history.head(), history.head("audit")
    kept = {"min-snapshots-to-keep": 2, "max-snapshot-age-ms": 10**9, "max-ref-age-ms": 10**10}
    history.update({**set_ref("main", theirs), **kept}, {**set_ref("audit", ours), **kept})
    history.check()
    history.insert(20)
    history.append("audit")
    history.check()
    refs = history.metadata()["refs"]
    assert refs["main"] == {"snapshot-id": history.head(), "type": "branch", **kept}
    assert refs["audit"] == {"snapshot-id": history.head("audit"), "type": "branch"}, "a commit says all of its ref"


def test_table_without_main_is_empty_and_goes_on(history: History) -> None:
    history.insert(3)
    history.append()
    history.set_ref("kept", history.head(), "tag")
    history.remove_ref("main")
    history.check()
    history.insert(2)
    history.insert(15)
    history.check()
    history.set_ref("main", history.head("kept"))
    history.check()
    history.remove_ref("main")
    history.append()
    history.check()


def test_rewritten_branch_reaches_main(history: History) -> None:
    history.insert(4)
    history.append(number=5)
    history.delete_in_duckdb(history.ids()[3:5])
    history.set_ref("audit", history.head())
    history.compact("audit")
    history.check()
    history.insert(2)
    history.duckdb(FLUSH)
    main = history.head()
    history.set_ref("main", history.head("audit"))
    history.delete_in_duckdb(history.ids()[:2])
    history.check()
    history.set_ref("main", main)
    history.check()


def test_flush_of_deletes_in_a_file_that_has_left_main_keeps_old_versions(history: History) -> None:
    history.insert(12)
    history.delete("main", history.ids()[:3])
    history.delete_in_duckdb(history.ids()[:2])
    history.compact("main")
    history.duckdb(FLUSH)
    history.check()


def test_duckdb_and_a_branch_take_turns(history: History) -> None:
    history.set_ref("audit", history.append())
    for number in range(4):
        history.append("audit")
        history.insert(1 if number % 2 else 12)
        history.delete("audit", history.ids("audit")[number : number + 1])
        history.delete_in_duckdb(history.ids()[-3:-1])
    history.duckdb(FLUSH)
    history.duckdb(MERGE)
    history.append("audit")
    history.check()
    history.set_ref("main", history.head("audit"))
    history.duckdb(FLUSH)
    history.duckdb(MERGE)
    history.check()


def data_files_of(history: History) -> set[Path]:
    """Every data file that is there, of both sides."""
    found = Path(history.services.policy.warehouse).rglob("*.parquet")
    return {path for path in found if "delete" not in path.name}


def rows_in_files(history: History) -> set[Row]:
    return {row for path in data_files_of(history) for row in read_rows(str(path))}


def test_expired_snapshots_leave_what_refs_need_and_the_rest_goes(history: History) -> None:
    gone = [history.append(number=15)]
    gone.append(history.overwrite("main", history.ids()[:1]))
    history.insert(3)
    history.set_ref("audit", history.head())
    history.delete("audit", history.ids()[:2])
    history.set_ref("mark", history.append("audit"), "tag")
    history.remove_ref("audit")
    dead = history.append(None)
    history.overwrite("main", history.ids())
    before = rows_in_files(history)
    history.expire([*gone, dead])
    history.check()
    history.clean_in_duckdb()
    history.check()
    assert {row[0] for row in before - rows_in_files(history)} >= set(range(1, 16))
    history.remove_ref("mark")
    history.append()  # the manifest that names deleted files goes with the snapshot that deleted them
    history.expire(history.snapshot_ids() - {history.head()})
    history.clean_in_duckdb()
    history.check()
    assert rows_in_files(history) == history.rows()


def test_duckdbs_cleaners_leave_what_refs_need(history: History) -> None:
    history.insert(20)
    history.insert(4)
    history.set_ref("audit", history.head())
    history.set_ref("first", history.head(), "tag")
    history.delete_in_duckdb(history.ids()[:3])
    history.delete("audit", history.ids()[5:7])
    history.append("audit")
    history.delete_in_duckdb(history.ids()[:15])
    history.duckdb(FLUSH)
    history.duckdb(MERGE)
    history.set_ref("main", history.head("first"))
    history.delete_in_duckdb(history.ids()[:1])
    history.duckdb("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    for _ in range(2):
        history.clean_in_duckdb()
        history.duck.execute("CALL lake.set_option('delete_older_than', '0 seconds')")
        history.duck.execute("CALL lake.set_option('expire_older_than', '0 seconds')")
        history.duckdb("CHECKPOINT lake")
        history.check()
        history.set_ref("main", history.head("audit"))
        history.check()
        history.duckdb("DELETE FROM lake.ns.t", frozenset())
    history.remove_ref("audit")
    history.remove_ref("first")
    history.insert(12)
    history.expire(history.snapshot_ids() - {history.head()})
    history.clean_in_duckdb()
    history.check()
    assert data_files_of(history) == {local(path) for path in data_files(history.metadata())}
