"""The law of what a commit leaves in memory: it equals, byte for byte, what a server reads that has nothing cached."""

import pytest

from duckicelake.catalog.commit.apply import base_of
from duckicelake.catalog.table.load import load_current_table
from duckicelake.lake.side_tables import reader
from tests.support.client import NS, local
from tests.support.seams import fresh
from tests.support.table_history import History


def check(history: History) -> None:
    """Compare the version that the history's server remembers with what another one reads; then what both add to it."""
    services, other = history.services, fresh(history.services)
    remembered, read = load_current_table(services, NS, "t"), load_current_table(other, NS, "t")
    assert remembered == read
    assert base_of(services, remembered, read.metadata) == base_of(other, read, read.metadata)
    head = remembered.state.current()
    listed = head.manifest_ids if head else ()
    known = remembered.known.manifests_of(services.database, listed)
    assert known == read.known.manifests_of(other.database, listed)


def test_what_a_commit_leaves_in_memory_is_what_another_server_reads(history: History) -> None:
    base = history.append()
    check(history)
    history.set_ref("audit", base)
    check(history)
    for number in range(12):
        history.append("main" if number % 3 else "audit", number=1)
        check(history)
    history.delete("main", history.ids()[1:3])
    check(history)
    history.overwrite("main", history.ids()[:1])
    check(history)
    history.insert(3)
    history.append()
    check(history)
    staged = history.append(None)
    check(history)
    history.set_ref("main", base)
    check(history)
    history.set_ref("main", staged)
    check(history)
    history.compact("main")
    check(history)
    history.expire([staged])
    check(history)
    history.remove_ref("audit")
    check(history)
    history.check()


def test_definitions_and_properties_follow_as_they_are_read(history: History) -> None:
    history.append()
    schema = {**history.metadata()["schemas"][0], "schema-id": 1}
    schema["fields"] = [*schema["fields"], {"id": 3, "name": "extra", "type": "int", "required": False}]
    for updates in (
        [{"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "3", "ä": "é\u2028"}}],
        [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}],
        [{"action": "set-properties", "updates": {"comment": "a comment"}}],
        [{"action": "set-properties", "updates": {"write.metadata.previous-versions-max": "7"}}],
        [{"action": "remove-properties", "removals": ["ä", "write.metadata.previous-versions-max"]}],
        [{"action": "set-properties", "updates": {"write.metadata.delete-after-commit.enabled": "true"}}],
    ):
        history.update(*updates)
        check(history)
        history.update({"action": "set-properties", "updates": {"again": str(updates)}})
        check(history)
    location = history.metadata()["location"]
    history.update({"action": "set-location", "location": f"{location}-moved"})
    check(history)


def test_version_3_follows_as_it_is_read(history: History) -> None:
    history.append()
    check(history)
    history.update({"action": "upgrade-format-version", "format-version": 3})
    history.format_version = 3
    check(history)
    history.append()
    check(history)
    history.delete("main", history.ids()[:2])
    check(history)
    history.delete("main", history.ids()[1:2])
    check(history)


@pytest.mark.parametrize("is_remembered", [True, False])
def test_what_catching_up_leaves_in_memory_is_what_another_server_reads(history: History, is_remembered: bool) -> None:
    def catch_up(statement: str) -> None:
        history.duck.execute(statement)
        if not is_remembered:
            history.services.cache.forget(table_id)
        load_current_table(history.services, NS, "t")
        check(history)

    history.append()
    table_id = load_current_table(history.services, NS, "t").row.table_id
    catch_up("INSERT INTO lake.ns.t SELECT id + 100, name FROM lake.ns.t")
    catch_up("CALL lake.set_option('data_inlining_row_limit', 0)")
    catch_up("INSERT INTO lake.ns.t SELECT id + 1000, name FROM lake.ns.t")
    catch_up("DELETE FROM lake.ns.t WHERE id > 1100")
    catch_up("ALTER TABLE lake.ns.t ADD COLUMN more INTEGER")
    catch_up("UPDATE lake.ns.t SET more = id WHERE id > 100")
    catch_up("CALL ducklake_merge_adjacent_files('lake')")
    history.client.commit({"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]})
    catch_up("DELETE FROM lake.ns.t")


def test_files_are_those_that_another_server_writes_from_the_rows(history: History) -> None:
    """Whether they were encoded of a commit, before it or after it, or of what DuckDB did."""
    history.append()
    history.insert(12)
    history.delete("main", history.ids()[1:3])
    history.insert(3)
    history.delete_in_duckdb(history.ids()[:1])
    history.overwrite("main", history.ids()[:1])
    history.append(number=1)
    before = recorded(history)
    contents = {path: local(path).read_bytes() for path in before}
    with history.services.database.statement() as cursor:
        cursor.execute(
            "DELETE FROM duckicelake_artifact a USING duckicelake_table t WHERE a.table_id = t.table_id "
            "AND (a.kind <> 'metadata' OR a.object_id = t.version)"
        )
    for path in contents:
        local(path).unlink()
    load_current_table(fresh(history.services), NS, "t")
    again = recorded(history)
    assert again
    assert again <= before
    assert {path: local(path).read_bytes() for path in again} == {path: contents[path] for path in again}


def recorded(history: History) -> set[str]:
    """The paths of what was written, older metadata aside."""
    table = load_current_table(history.services, NS, "t")
    with history.services.database.reading() as cursor:
        return set(reader.read_artifacts(cursor, table.row.table_id))
