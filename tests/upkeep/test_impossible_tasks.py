"""Policies and tables for which a task can't be done: each has a state that says why, and what to do."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.server.app import create_app
from duckicelake.upkeep.planner import request_part, request_tasks
from duckicelake.upkeep.policies import find_policies
from duckicelake.upkeep.queue import QueuedTask
from duckicelake.upkeep.worker import Worker
from tests.support.client import NS, Client, Draft, duckdb_rows, local, set_properties
from tests.support.commands import run_here
from tests.support.seams import fresh
from tests.upkeep.test_queue import LIMITS, jobs, make_ready, only, plan, set_policies, tasks

Duck = duckdb.DuckDBPyConnection
KINDS = ("compact", "sort")
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
        {
            "id": 3,
            "name": "s",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 4, "name": "a", "type": "int", "required": False}]},
        },
    ],
}
WRONG_POLICIES = {
    "a number": ({"maintenance.compaction.min-files": "many"}, "min-files is 'many': it should be a number from 1 on"),
    "a size": ({"write.target-file-size-bytes": "1GB"}, "bytes is '1GB': it should be a number from 1 on"),
    "a share": ({"maintenance.sort.min-share": "2"}, "min-share is '2': it should be a share between 0 and 1"),
    "a flag": ({"maintenance.compaction.enabled": "yes"}, "enabled is 'yes': it should be true or false"),
    "an age": ({"maintenance.flush.max-age": "soon"}, "max-age is 'soon': it should be an age as 90m, 12h or 3d"),
    "an order": ({"maintenance.sort.order": "zorder(id DESC)"}, "it should be columns as `day DESC, id`"),
    "a kind": ({AUTOMATIC: "vacuum"}, "automatic is 'vacuum': it should be none, or kinds of flush, sort"),
    "hours": ({"maintenance.quiet-hours": "9 to 5"}, "it should be hours as 22:00-06:00 Europe/Berlin"),
    "a zone": ({"maintenance.quiet-hours": "22:00-06:00 Mars/Base"}, "it should be hours as 22:00-06:00 Europe/Berlin"),
    "a name": ({"maintenance.compact.enabled": "true"}, "did you mean maintenance.compaction.enabled?"),
    "a name in capitals": (
        {"maintenance.compaction.Min_Files": "9"},
        "did you mean maintenance.compaction.min-files?",
    ),
    "orphans too young": ({"maintenance.orphans.older-than": "5m"}, "it should be an age of an hour or more, as 3d"),
}
BLOCKING_POLICIES = {
    "a column that is gone": ({"maintenance.sort.order": "gone"}, "names gone, which is no column", "sort"),
    "a struct": ({"maintenance.sort.order": "zorder(s, id)"}, "names s, which is no column", "sort"),
    "a field of a struct": ({"maintenance.sort.order": "s.a"}, "change maintenance.sort.order", "sort"),
    "a codec": (
        {"write.parquet.compression-codec": "lzo"},
        "codec is 'lzo': rewrites write brotli, gzip, lz4",
        "compact",
    ),
}


@pytest.fixture
def lake(client: Client, ducklake: Duck) -> Client:
    """A lake that compacts and sorts by itself, with a table of small files."""
    set_policies(client.services, {AUTOMATIC: ",".join(KINDS)})
    client.create(schema=SCHEMA)
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(6):
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'x', {{'a': range}} FROM range({number}, {number} + 20)")
    return client


@pytest.fixture
def http(lake: Client, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(create_app(lake.services))


@pytest.mark.parametrize("name", WRONG_POLICIES)
def test_wrong_policy_is_named_wherever_one_looks(lake: Client, http: httpx.Client, name: str) -> None:
    policies, says = WRONG_POLICIES[name]
    lake.commit(set_properties(**policies))
    assert says in str(find_policies(lake.services, NS, "t").problem)
    assert [says in problem for problem in http.get("/pipeline/v1/plan").json()["problems"]] == [True]
    asked = http.post("/pipeline/v1/upkeep", json={}).raise_for_status().json()
    assert (asked["tasks"], [says in problem for problem in asked["problems"]]) == ([], [True])
    plan(lake.services)
    (task,) = http.get("/pipeline/v1/upkeep").json()["tasks"]
    assert (task["kind"], task["state"], says in task["message"]) == ("policy", "blocked", True), task
    assert task["why"] not in task["message"], task
    lake.commit({"requirements": [], "updates": [{"action": "remove-properties", "removals": [*policies]}]})
    plan(lake.services)
    assert [(found.kind, found.state) for found in tasks(lake.services)] == [("compact", "queued")]


def test_command_says_what_is_wrong_with_a_policy(lake: Client, http: httpx.Client) -> None:
    lake.commit(set_properties(**{"maintenance.compaction.min-files": "many"}))
    for command in (("run", "ns.t"), ("run", "--no-wait"), ("plan",)):
        ended = run_here("upkeep", *command, "--uri", str(http.base_url))
        assert "ns.t is left alone: the property maintenance.compaction.min-files is 'many'" in ended.stderr, ended
        assert (ended.returncode, "nothing to do" in ended.stdout) == (1, False), ended


@pytest.mark.parametrize("name", BLOCKING_POLICIES)
def test_policy_that_does_not_fit_the_table_blocks_its_task_until_it_does(
    lake: Client, ducklake: Duck, name: str
) -> None:
    policies, says, kind = BLOCKING_POLICIES[name]
    lake.commit(set_properties(**policies))
    before = duckdb_rows(ducklake)
    plan(lake.services)
    found = work(lake.services, kind)
    assert (found.state, says in str(found.message)) == ("blocked", True), found.message
    others = [(task.kind, task.state) for task in tasks(lake.services) if task.kind != kind]
    assert others == ([("compact", "done")] if kind == "sort" else []), "nothing is left to a sort that can't be"
    assert duckdb_rows(ducklake) == before
    lake.commit({"requirements": [], "updates": [{"action": "remove-properties", "removals": [*policies]}]})
    request_tasks(lake.services, None, None, ("compact",))
    assert work(lake.services, "compact").state == "done"
    assert duckdb_rows(ducklake) == before


def test_rewritten_files_have_the_codec_of_the_table(lake: Client, ducklake: Duck) -> None:
    lake.commit(set_properties(**{"write.parquet.compression-codec": "brotli"}))
    plan(lake.services)
    assert work(lake.services).state == "done"
    ((path,),) = list_files(ducklake)
    assert ducklake.sql(f"SELECT DISTINCT compression FROM parquet_metadata('{path}')").fetchall() == [("BROTLI",)]


def cut_out(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(len(data) // 3) + data[4 + len(data) // 3 :])


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def encrypt(path: Path) -> None:
    path.write_bytes(b"PARE" + path.read_bytes()[4:-4] + b"PARE")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def encrypt_by_duckdb(path: Path) -> None:
    with duckdb.connect() as duck:
        duck.execute("PRAGMA add_parquet_key('key', '0123456789abcdef')")
        duck.execute(f"CREATE TABLE t AS FROM '{path}'")
        duck.execute(f"COPY t TO '{path}' (FORMAT parquet, ENCRYPTION_CONFIG {{footer_key: 'key'}})")


def spoil_footer(path: Path) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -size - 8] + b"\xff" * (size // 2) + data[-size - 8 + size // 2 :])


def exaggerate_footer(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1")


def compress_by_lzo(path: Path) -> None:
    """Have the footer say LZO for the column id: its codec follows its name, and is Snappy, which is 1, doubled."""
    data = path.read_bytes()
    assert data.count(b"id\x15\x02") == 1
    path.write_bytes(data.replace(b"id\x15\x02", b"id\x15\x06"))


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, cut_off, encrypt, empty, encrypt_by_duckdb, spoil_footer, exaggerate_footer],
    ids=lambda act: act.__name__,
)
def test_file_that_can_not_be_opened_is_left_out_by_name(
    lake: Client, ducklake: Duck, damage: Callable[[Path], None]
) -> None:
    before = duckdb_rows(ducklake)
    path = local(str(list_files(ducklake)[3][0]))
    data = path.read_bytes()
    damage(path)
    plan(lake.services)
    found = work(lake.services)
    assert (found.state, found.counts["rewritten files"], len(list_files(ducklake))) == ("done", 5, 2), found
    for text in ("Left out: ", path.name, "Restore the file", "missing" if damage is Path.unlink else "can't be read"):
        assert text in str(found.message), found.message
    plan(lake.services)
    assert [task.kind for task in tasks(lake.services) if task.state == "queued"] == []
    request_part(lake.services, NS, "t", (), "id >= 0")
    found = work(lake.services)
    assert (found.state, path.name in str(found.message), len(list_files(ducklake))) == ("blocked", True, 2), found
    path.write_bytes(data)
    request_part(lake.services, NS, "t", (), "id >= 0")
    found = work(lake.services)
    assert (found.state, found.message, len(list_files(ducklake))) == ("done", None, 1), found
    assert duckdb_rows(ducklake) == before


def test_files_of_all_damages_are_left_out_together(lake: Client, ducklake: Duck) -> None:
    """Rows that are deleted in the others stay so, inlined deletes among them."""
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 10)")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 3")
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(6, 10):
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'x', {{'a': range}} FROM range({number}, {number} + 20)")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 12")
    before = duckdb_rows(ducklake)
    paths = [local(str(path)) for path, *_ in list_files(ducklake)]
    kept = dict(zip(paths[1::2], (path.read_bytes() for path in paths[1::2]), strict=True))
    damages: tuple[Callable[[Path], object], ...] = (Path.unlink, Path.unlink, spoil_footer, empty, cut_out)
    for path, damage in zip(kept, damages, strict=True):
        damage(path)
    request_tasks(lake.services, None, None, ("compact",))
    found = work(lake.services)
    assert (found.state, found.counts["rewritten files"], len(list_files(ducklake))) == ("done", 5, 6), found
    assert all(path.name in str(found.message) or "and 1 more" in str(found.message) for path in kept), found.message
    for path, data in kept.items():
        path.write_bytes(data)
    assert duckdb_rows(ducklake) == before


@pytest.mark.parametrize("damage", [cut_out, compress_by_lzo], ids=lambda act: act.__name__)
def test_file_whose_values_can_not_be_read_is_left_out_by_name(
    lake: Client, ducklake: Duck, damage: Callable[[Path], None]
) -> None:
    before = duckdb_rows(ducklake)
    path = local(str(list_files(ducklake)[3][0]))
    data = path.read_bytes()
    damage(path)
    plan(lake.services)
    found = work(lake.services)
    assert (found.state, found.counts["rewritten files"], len(list_files(ducklake))) == ("done", 5, 2), found
    for text in ("Left out: ", path.name, "can't be read", "Restore the file"):
        assert text in str(found.message), found.message
    path.write_bytes(data)
    request_part(lake.services, NS, "t", (), "id >= 0")
    found = work(lake.services)
    assert (found.state, found.message, len(list_files(ducklake))) == ("done", None, 1), found
    assert duckdb_rows(ducklake) == before


def test_files_whose_values_can_not_be_read_are_left_out_of_a_sort_and_not_sorted_again_and_again(
    lake: Client, ducklake: Duck
) -> None:
    before = duckdb_rows(ducklake)
    paths = [local(str(list_files(ducklake)[number][0])) for number in (1, 4)]
    kept = [path.read_bytes() for path in paths]
    for path in paths:
        cut_out(path)
    lake.commit(set_properties(**{"maintenance.sort.order": "id DESC"}))
    plan(lake.services)
    found = work(lake.services)
    assert (found.kind, found.state, len(list_files(ducklake))) == ("sort", "done", 3), found
    assert all(path.name in str(found.message) for path in paths), found.message
    plan(lake.services)
    assert work(lake.services).attempts == found.attempts
    assert len(list_files(ducklake)) == 3
    for path, data in zip(paths, kept, strict=True):
        path.write_bytes(data)
    assert duckdb_rows(ducklake) == before


@pytest.mark.parametrize(
    ("kind", "damage"), [("compact", Path.unlink), ("statistics", encrypt), ("statistics", cut_out)]
)
def test_files_that_can_not_be_read_have_no_task_tried_again_after_each_change(
    lake: Client, ducklake: Duck, kind: str, damage: Callable[[Path], None]
) -> None:
    services = lake.services
    set_policies(services, {AUTOMATIC: kind, "maintenance.compaction.min-files": "5"})
    kept = {path: path.read_bytes() for path in (local(str(path)) for path, *_ in list_files(ducklake))}
    for path in kept:
        damage(path)

    def change_table() -> None:
        ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'y', {'a': 1})")

    def count_tries() -> int:
        """Plan as some minutes later, and do what is due; how many jobs there have been."""
        plan_later(services)
        work(services)
        return len(jobs(services))

    assert count_tries() == 1
    assert (only(services).state, only(services).kind) == ("blocked", kind)
    change_table()
    tries = count_tries()
    assert tries <= 2, "it is tried once more, as what can't be read is known since"
    for _ in range(2):
        change_table()
        assert count_tries() == tries
    assert only(services).state == "blocked"
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_unreadable_file SET noted = noted - interval '1 day'")
    assert count_tries() == tries + 1
    for path, data in kept.items():
        path.write_bytes(data)
    request_tasks(services, None, None, (kind,))
    assert work(services).state == "done"


def plan_later(services: Services) -> None:
    """Plan as some minutes after the last task."""
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_upkeep_task SET changed = changed - interval '10 minutes'")
    plan(services)


def test_files_beside_some_that_can_not_be_read_are_rewritten_once_they_are_many(lake: Client, ducklake: Duck) -> None:
    services = lake.services
    set_policies(services, {AUTOMATIC: "compact", "maintenance.compaction.min-files": "3"})
    for path, *_ in list_files(ducklake):
        local(str(path)).unlink()
    plan(services)
    assert work(services).state == "blocked"
    for count in range(1, 4):
        assert work(services).state == "blocked"
        ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'y', {'a': 1})")
        plan_later(services)
        assert len(list_files(ducklake)) == 6 + count
    assert work(services).state == "done"
    assert len(list_files(ducklake)) == 6 + 1


@pytest.mark.parametrize("damage", [Path.unlink, spoil_footer, empty], ids=lambda act: act.__name__)
def test_file_that_can_not_be_read_is_never_taken_for_another(
    lake: Client, ducklake: Duck, damage: Callable[[Path], None]
) -> None:
    path = local(str(list_files(ducklake)[5][0]))
    data = path.read_bytes()
    damage(path)
    request_part(lake.services, NS, "t", (), "id < 2")
    found = work(lake.services)
    assert found.state == "done" or f"{path.name}, a data file of the table" in str(found.message), found.message
    path.write_bytes(data)
    request_part(lake.services, NS, "t", (), "id < 2")
    assert work(lake.services).state == "done"


def test_wrong_count_of_rows_blocks_a_rewrite(lake: Client, ducklake: Duck) -> None:
    client = Client(lake.services)
    client.create("u")
    draft = Draft(client.metadata("u"))
    rows = [(number, "n") for number in range(5)]
    files = [draft.data_file(rows), replace(draft.data_file(rows), record_count=3)]
    client.commit(draft.body([draft.manifest(files)]), "u")
    request_part(lake.services, NS, "u", (), "id >= 0")
    found = work(lake.services)
    assert (found.state, "DuckDB reads 10 rows in 2 files" in str(found.message)) == ("blocked", True), found
    assert ducklake.sql("SELECT count(*) FROM ducklake_list_files('lake', 'u', schema => 'ns')").fetchall() == [(2,)]


def test_task_of_a_newer_server_is_blocked_and_keeps_no_other_from_being_done(lake: Client) -> None:
    plan(lake.services)
    newer: Mapping[str, Any] = {"maintenance.of-the-future": "1"}
    with lake.services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE duckicelake_upkeep_task SET policies = %(policies)s::json, "
            "estimate = (estimate::jsonb || '{\"of-the-future\": 1}')::json",
            {"policies": json.dumps(newer)},
        )
    found = work(lake.services)
    assert (found.state, "is of another version" in str(found.message)) == ("blocked", True), found


def test_table_of_a_format_version_of_the_future_is_left_alone_until_the_server_knows_it(
    lake: Client, ducklake: Duck
) -> None:
    set_version = "UPDATE duckicelake_table SET format_version = %(version)s"
    kinds = ("compact", "rewrite-deletes", "pack-manifests", "statistics", "remove-orphans")
    lake.commit(set_properties(**{"maintenance.delete-files.min-excess": "1", "maintenance.manifests.min-small": "1"}))
    before = duckdb_rows(ducklake)
    with lake.services.database.transaction() as cursor:
        cursor.execute(set_version, {"version": 4})
    services = fresh(lake.services)
    request_tasks(services, None, None, kinds)
    work(services, "compact")
    found = tasks(services)
    assert {task.kind for task in found} >= {"compact", "pack-manifests", "statistics"}
    for task in found:
        text = "has format version 4, which a newer server gave it, and this one reads 1 to 3: update it"
        assert (task.state, text in str(task.message)) == ("blocked", True), task
    with lake.services.database.transaction() as cursor:
        cursor.execute(set_version, {"version": 2})
    request_tasks(services, None, None, ("compact",))
    assert work(services, "compact").state == "done"
    assert duckdb_rows(ducklake) == before


def list_files(ducklake: Duck) -> list[tuple[object, ...]]:
    query = "SELECT data_file FROM ducklake_list_files('lake', 't', schema => 'ns') ORDER BY ALL"
    return ducklake.execute(query).fetchall()


def work(services: Services, kind: str | None = None) -> QueuedTask:
    """Do all tasks; return the one, or that of a kind."""
    make_ready(services)
    while Worker(LIMITS).work(services):
        pass
    return only(services) if kind is None else next(task for task in tasks(services) if task.kind == kind)
