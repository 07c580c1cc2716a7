"""What clients uploaded for accepted commits goes when it is due, and nothing that anybody may still need."""

from collections.abc import Callable
from pathlib import Path

import pytest

from duckicelake.catalog import gc, tables
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.gc import collect_uploads
from duckicelake.errors import CatalogError, CommitFailedError
from tests.support.client import NS, Client, Draft, append, assert_whole, local, pyiceberg_rows, set_properties, set_ref
from tests.support.engine import append as append_request
from tests.support.engine import then
from tests.support.seams import fresh


def uploaded(client: Client, name: str = "t") -> set[Path]:
    """The files that the client has left in the table's place."""
    return set(local(client.metadata(name)["location"]).rglob("client-*"))


def grow_due(services: Services) -> int:
    """Let all uploads be due; how many there are."""
    with services.database.transaction() as cursor:
        return cursor.execute("UPDATE duckicelake_upload SET due_at = now() - interval '1 s'").rowcount


def recorded(services: Services) -> int:
    with services.database.reading() as cursor:
        row = cursor.execute("SELECT count(*) FROM duckicelake_upload").fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_uploads_of_accepted_commits_go_after_a_week_and_all_else_stays(
    services: Services, client: Client, version: str
) -> None:
    client.create(properties={"format-version": version})
    for number in range(3):
        client.commit(append_request((number, "a"))(client.metadata()))
    client.commit(then(append_request((3, "a")), append_request((4, "a")))(client.metadata()))
    files = {path for path in local(client.metadata()["location"]).rglob("*") if path.is_file()}
    assert len(uploaded(client)) == 10
    assert collect_uploads(services) == 0
    assert len(uploaded(client)) == 10
    with services.database.reading() as cursor:
        days = cursor.execute("SELECT extract(day FROM min(due_at) - now()) FROM duckicelake_upload").fetchone()
    assert days in {(6,), (7,)}
    left = uploaded(client)
    assert grow_due(services) == 5
    assert collect_uploads(services) == 5
    assert {path for path in files if path.exists()} == files - left
    assert recorded(services) == 0
    answer = Client(fresh(services)).load()
    assert_whole(answer)
    assert pyiceberg_rows(answer) == [(number, "a") for number in range(5)]


def test_uploads_of_a_create_transaction_of_staged_snapshots_and_of_branches_go_but_not_the_snapshots(
    services: Services, client: Client
) -> None:
    client.create()
    client.append((1, "a"))
    staged = Draft(client.metadata(), branch=None)
    client.commit(staged.body([staged.manifest([staged.data_file([(2, "b")])]), *staged.parent_manifests]))
    branched = Draft(client.metadata(), branch="dev", built_on=client.metadata()["current-snapshot-id"])
    client.commit(branched.body([branched.manifest([branched.data_file([(3, "c")])]), *branched.parent_manifests]))
    grow_due(services)
    assert collect_uploads(services) == 3
    assert uploaded(client) == set()
    for snapshot_id, rows in {
        staged.snapshot_id: [(1, "a"), (2, "b")],
        branched.snapshot_id: [(1, "a"), (3, "c")],
    }.items():
        client.commit({"requirements": [], "updates": [set_ref("main", snapshot_id)]})
        assert pyiceberg_rows(client.load()) == rows
    assert_whole(client.load())


def test_refused_commits_leave_their_files_to_whoever_may_try_again(services: Services, client: Client) -> None:
    client.create()
    late = append(client.metadata(), (2, "b"))
    client.append((1, "a"))
    with pytest.raises(CommitFailedError):
        client.commit(late)
    assert grow_due(services) == 1
    collect_uploads(services)
    assert len(uploaded(client)) == 2
    assert recorded(services) == 0


def drop(services: Services, client: Client) -> None:
    tables.drop_table(services, NS, "t", purge=False)


def forbid(services: Services, client: Client) -> None:
    client.commit(set_properties(**{"gc.enabled": "false"}))


def move(services: Services, client: Client) -> None:
    location = f"{client.metadata()['location']}-moved"
    client.commit({"requirements": [], "updates": [{"action": "set-location", "location": location}]})


def name(services: Services, client: Client) -> None:
    """As a manifest of a registered table is named, which is listed where it is."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms)"
            " SELECT table_id, 'manifest', 1000000 + n, path, 1, '', 0"
            " FROM duckicelake_upload, unnest(paths) WITH ORDINALITY AS u (path, n)"
        )


def refer(services: Services, client: Client) -> None:
    """As a file is held that another's snapshot needs."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_file_ref (table_id, path, reason)"
            " SELECT table_id, duckicelake_canonical_path(unnest(paths)), 'clone' FROM duckicelake_upload"
        )


@pytest.mark.parametrize("keep", [drop, forbid, move, name, refer])
def test_what_is_named_or_may_be_anothers_stays_and_is_looked_at_again_later(
    services: Services, client: Client, keep: Callable[[Services, Client], None]
) -> None:
    client.create()
    client.append((1, "a"))
    files = uploaded(client)
    assert len(files) == 2
    keep(services, client)
    assert grow_due(services) == 1
    assert collect_uploads(services) == 1
    assert all(path.exists() for path in files)
    assert (recorded(services), collect_uploads(services)) == (1, 0)


def test_what_lies_outside_of_the_tables_metadata_folder_stays(services: Services, client: Client) -> None:
    client.create()
    draft = Draft(client.metadata())
    listed = local(draft.manifest_list([draft.manifest([draft.data_file([(1, "a")])])]))
    (listed.parent / "deeper").mkdir()
    moved = listed.rename(listed.parent / "deeper" / listed.name)
    client.commit(draft.body(f"file:{moved}"))
    grow_due(services)
    collect_uploads(services)
    assert moved.exists()


def test_a_link_is_not_followed(services: Services, client: Client, tmp_path: Path) -> None:
    client.create()
    client.append((1, "a"))
    kept = []
    for path in uploaded(client):
        kept.append(path.rename(tmp_path / path.name))
        path.symlink_to(kept[-1])
    grow_due(services)
    collect_uploads(services)
    assert all(path.exists() for path in kept)


def test_a_round_is_bounded_and_what_is_gone_already_is_no_error(
    services: Services, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create()
    for number in range(3):
        client.append((number, "a"))
    for path in list(uploaded(client))[:3]:
        path.unlink()
    monkeypatch.setattr(gc, "MAX_BATCH_FILES", 2)
    grow_due(services)
    assert [collect_uploads(services) for _ in range(3)] == [2, 1, 0]
    assert uploaded(client) == set()


def test_a_store_that_fails_keeps_the_record(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "a"))
    for path in uploaded(client):
        path.unlink()
        path.mkdir()
    assert grow_due(services) == 1
    with pytest.raises((CatalogError, OSError)):
        collect_uploads(services)
    assert recorded(services) == 1


def test_commit_that_takes_over_a_manifest_of_a_lost_snapshot_fails_as_after_any_conflict(client: Client) -> None:
    """After a failover that lost commits, DuckDB's next snapshot may have the number of a lost one."""
    client.create()
    client.commit(append_request((1, "a"))(client.metadata()))
    base = client.metadata()
    lost, draft, numbers = Draft(base), Draft(base), {"sequence_number": 1, "min_sequence_number": 1}
    manifests = [draft.manifest([draft.data_file([(3, "c")])]), lost.manifest([lost.data_file([(2, "b")])], **numbers)]
    with pytest.raises(CommitFailedError, match="builds on another state than this table's"):
        client.commit(draft.body([*manifests, *draft.parent_manifests]))
    assert pyiceberg_rows(client.load()) == [(1, "a")]
