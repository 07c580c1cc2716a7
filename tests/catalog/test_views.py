"""Views through the use cases: names, versions, files, places, and what happens when several change one."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from duckicelake.catalog import views
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.catalog.tables import create_table, rename_table
from duckicelake.errors import (
    AlreadyExistsError,
    CommitFailedError,
    FileMissingError,
    InvalidRequestError,
    InvalidViewError,
    NoSuchNamespaceError,
    NoSuchViewError,
)
from duckicelake.iceberg.rest import CreateTableRequest, RenameTableRequest
from tests.support.seams import Fuse, Killed, fused
from tests.support.view_requests import (
    CITY,
    DROPPING,
    ID,
    SPARK,
    commit,
    create,
    current,
    load,
    queries,
    register,
    rename,
    replacement,
    schema,
    set_properties,
    version,
    written,
)

TRINO = {"trino": "SELECT 2"}


@pytest.fixture
def roomy(services: Services, tmp_path: Path) -> Services:
    """Services that let views live in `elsewhere` too."""
    return replace(services, policy=replace(services.policy, allowed=(f"file://{tmp_path}/elsewhere",)))


def create_a_table(services: Services, name: str) -> None:
    create_table(services, ("main",), CreateTableRequest.model_validate({"name": name, "schema": schema()}))


def snapshots(services: Services) -> int:
    with services.database.reading() as cursor:
        ((newest,),) = cursor.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()
    return int(newest)


def test_created_view_has_ids_time_and_place_of_the_servers_choice(services: Services) -> None:
    answer = create(services, "v", SPARK | TRINO, properties={"comment": "why"})
    metadata = answer["metadata"]
    assert metadata["format-version"] == 1
    assert metadata["location"] == f"{services.policy.data_zone}/main/v-{metadata['view-uuid'][-8:]}"
    assert metadata["properties"] == {"comment": "why"}
    (only,) = metadata["versions"]
    assert (only["version-id"], only["schema-id"], only["summary"]) == (1, 0, {"engine-name": "test"})
    assert only["timestamp-ms"] > 1_700_000_000_000
    assert metadata["version-log"] == [{"version-id": 1, "timestamp-ms": only["timestamp-ms"]}]
    assert queries(answer) == SPARK | TRINO
    assert load(services, "v") == answer


def test_metadata_file_is_below_the_location_and_says_what_is_answered(services: Services) -> None:
    first = create(services, "v")
    second = commit(services, "v", set_properties(a="1"))
    folder = f"{first['metadata']['location']}/metadata/"
    assert first["metadata-location"].startswith(f"{folder}00000-")
    assert second["metadata-location"].startswith(f"{folder}00001-")
    assert written(first) == first["metadata"]
    assert written(second) == second["metadata"] == load(services, "v")["metadata"]


def test_request_that_changes_nothing_makes_no_file_and_no_snapshot(services: Services) -> None:
    before = create(services, "v", properties={"a": "1"})
    newest = snapshots(services)
    assert commit(services, "v", set_properties(a="1"), *replacement(SPARK)) == before
    assert commit(services, "v") == before
    assert snapshots(services) == newest
    assert len(list(Path(before["metadata-location"].removeprefix("file:")).parent.iterdir())) == 1


def test_replacing_keeps_the_history(services: Services) -> None:
    first = create(services, "v")
    answer = commit(services, "v", DROPPING, *replacement(TRINO, ID), uuid=first["metadata"]["view-uuid"])
    assert queries(answer) == TRINO
    assert current(answer)["version-id"] == 2
    assert [each["schema-id"] for each in answer["metadata"]["versions"]] == [0, 1]
    assert [each["version-id"] for each in answer["metadata"]["version-log"]] == [1, 2]
    back = commit(services, "v", {"action": "set-current-view-version", "view-version-id": 1})
    assert queries(back) == SPARK
    assert [each["version-id"] for each in back["metadata"]["version-log"]] == [1, 2, 1]


def test_history_is_as_long_as_the_property_says(services: Services) -> None:
    create(services, "v", properties={"version.history.num-entries": "3"})
    for number in range(2, 7):
        answer = commit(services, "v", *replacement({"spark": f"SELECT {number}"}))
    assert [each["version-id"] for each in answer["metadata"]["versions"]] == [4, 5, 6]
    assert [each["version-id"] for each in answer["metadata"]["version-log"]] == [4, 5, 6]


@pytest.mark.parametrize(
    ("updates", "problem"),
    [
        (replacement(TRINO), "loss of view dialects"),
        ([{"action": "assign-uuid", "uuid": "11111111-7681-40c8-86dc-e36561f83385"}], "Cannot reassign uuid"),
        ([{"action": "add-view-version", "view-version": version(SPARK, schema_id=9)}], "unknown schema: 9"),
        ([set_properties(**{"version.history.num-entries": "0"})], "must be positive but was 0"),
    ],
)
def test_refused_commit_changes_nothing(services: Services, updates: list[object], problem: str) -> None:
    before = create(services, "v")
    with pytest.raises(InvalidViewError, match=problem):
        commit(services, "v", *updates)
    assert load(services, "v") == before


def test_commit_on_another_uuid_is_a_conflict(services: Services) -> None:
    create(services, "v")
    with pytest.raises(CommitFailedError, match=r"^Requirement failed: view UUID does not match: expected "):
        commit(services, "v", set_properties(a="1"), uuid="11111111-7681-40c8-86dc-e36561f83385")


def test_view_of_a_namespace_that_is_missing(services: Services) -> None:
    with pytest.raises(NoSuchNamespaceError, match=r"^Namespace does not exist: nope$"):
        create(services, "v", namespace="nope")
    with pytest.raises(NoSuchNamespaceError):
        views.list_views(services, ("nope",), PageRequest())
    with pytest.raises(NoSuchViewError, match=r"^View does not exist: nope\.v$"):
        load(services, "v", "nope")


def test_missing_view_is_missing_whatever_is_asked_of_it(services: Services) -> None:
    create_a_table(services, "t")
    create_namespace(services, ("s",), {})
    for act in (
        lambda: load(services, "t"),
        lambda: views.view_exists(services, ("main",), "t"),
        lambda: commit(services, "t", set_properties(a="1")),
        lambda: views.drop_view(services, ("main",), "t"),
        lambda: rename(services, "main.t", "s.u"),
        lambda: rename(services, "main.t", "main.t"),
    ):
        with pytest.raises(NoSuchViewError, match=r"^View does not exist: main\.t$"):
            act()


def test_names_are_shared_with_tables(services: Services) -> None:
    create(services, "v")
    create_a_table(services, "t")
    with pytest.raises(AlreadyExistsError, match=r"^View already exists: main\.v$"):
        create(services, "v")
    with pytest.raises(AlreadyExistsError, match=r"^Table with same name already exists: main\.t$"):
        create(services, "t")
    with pytest.raises(AlreadyExistsError, match=r"^View with same name already exists: main\.v$"):
        create_a_table(services, "v")
    with pytest.raises(AlreadyExistsError, match=r"^Table already exists: main\.t$"):
        create_a_table(services, "t")


def test_rename_moves_the_view_and_never_onto_another(services: Services) -> None:
    create_namespace(services, ("s",), {})
    before = create(services, "v")
    create(services, "w")
    create_a_table(services, "t")
    for target, problem in (
        ("main.w", r"^Cannot rename main\.v to main\.w\. View already exists$"),
        ("main.t", r"^Cannot rename main\.v to main\.t\. Table already exists$"),
    ):
        with pytest.raises(AlreadyExistsError, match=problem):
            rename(services, "main.v", target)
    with pytest.raises(NoSuchNamespaceError, match=r"^Namespace does not exist: nope$"):
        rename(services, "main.v", "nope.v")
    names = {"source": {"namespace": ["main"], "name": "t"}, "destination": {"namespace": ["main"], "name": "v"}}
    with pytest.raises(AlreadyExistsError, match=r"^Cannot rename main\.t to main\.v\. View already exists$"):
        rename_table(services, RenameTableRequest.model_validate(names))
    rename(services, "main.v", "main.v")
    rename(services, "main.v", "s.t")
    assert load(services, "t", "s") == before
    assert views.list_views(services, ("main",), PageRequest()).items == ("w",)


def test_pages_of_views_are_complete_while_others_create_and_drop(services: Services) -> None:
    for name in ("b", "d", "f", "h"):
        create(services, name)
    first = views.list_views(services, ("main",), PageRequest("", 2))
    views.drop_view(services, ("main",), "b")
    create(services, "a")
    second = views.list_views(services, ("main",), PageRequest(first.next_token, 2))
    assert first.items + second.items == ("b", "d", "f", "h")
    assert second.next_token is None
    assert views.list_views(services, ("main",), PageRequest()).items == ("a", "d", "f", "h")


def test_dropped_view_can_be_registered_again(services: Services) -> None:
    create(services, "v")
    before = commit(services, "v", *replacement(SPARK | TRINO))
    views.drop_view(services, ("main",), "v")
    assert register(services, "w", before["metadata-location"]) == before
    assert load(services, "w") == before
    after = commit(services, "w", set_properties(a="1"))
    assert after["metadata"]["view-uuid"] == before["metadata"]["view-uuid"]
    assert written(after) == after["metadata"]


def test_registering_is_refused_where_creating_would_be(services: Services, tmp_path: Path) -> None:
    before = create(services, "v")
    location = before["metadata-location"]
    outside = tmp_path / "copy.metadata.json"
    shutil.copy(location.removeprefix("file:"), outside)
    elsewhere = Path(location.removeprefix("file:")).parent / "moved.json"
    elsewhere.write_text(json.dumps(before["metadata"] | {"location": f"file://{tmp_path}/secret"}))
    create_a_table(services, "t")
    with pytest.raises(AlreadyExistsError, match=r"^View already exists: main\.v$"):
        register(services, "v", location)
    with pytest.raises(AlreadyExistsError, match=r"^Table with same name already exists: main\.t$"):
        register(services, "t", location)
    with pytest.raises(NoSuchNamespaceError):
        register(services, "w", location, namespace="nope")
    with pytest.raises(FileMissingError):
        register(services, "w", f"{location}.nope")
    for bad in (f"file://{outside}", f"file://{elsewhere}", "nonsense", f"{location}/../../../../../ducklake/x"):
        with pytest.raises(InvalidRequestError):
            register(services, "w", bad)
    assert views.list_views(services, ("main",), PageRequest()).items == ("v",)


def test_location_that_a_client_gives_is_kept_if_it_is_allowed(roomy: Services, tmp_path: Path) -> None:
    place = f"file:{tmp_path}/elsewhere"
    first = create(roomy, "v", location=f"{place}/one/")
    assert first["metadata"]["location"] == f"{place}/one"
    assert first["metadata-location"].startswith(f"{place}/one/metadata/")
    moved = commit(roomy, "v", {"action": "set-location", "location": f"{place}/two"})
    assert moved["metadata-location"].startswith(f"{place}/two/metadata/")
    custom = commit(roomy, "v", set_properties(**{"write.metadata.path": f"{place}/three/"}))
    assert custom["metadata-location"].startswith(f"{place}/three/00002-")
    assert written(custom) == custom["metadata"]


@pytest.mark.parametrize("outside", ["/tmp/x", "s3://bucket/x", "relative", "{warehouse}/ducklake/v", "{warehouse}"])
def test_location_outside_of_what_is_allowed_is_refused(services: Services, outside: str, warehouse: Path) -> None:
    place = outside.format(warehouse=warehouse)
    create(services, "v")
    for act in (
        lambda: create(services, "w", location=place),
        lambda: create(services, "w", properties={"write.metadata.path": place}),
        lambda: commit(services, "v", {"action": "set-location", "location": place}),
        lambda: commit(services, "v", set_properties(**{"write.metadata.path": place})),
    ):
        with pytest.raises(InvalidRequestError):
            act()
    assert views.list_views(services, ("main",), PageRequest()).items == ("v",)


def test_commits_of_many_at_once_are_all_kept(services: Services) -> None:
    uuid = create(services, "v", SPARK, ID, CITY)["metadata"]["view-uuid"]

    def change(number: int) -> None:
        if number % 3:
            commit(services, "v", set_properties(**{f"k{number}": str(number)}), uuid=uuid)
        else:
            commit(services, "v", *replacement({"spark": f"SELECT {number}"}), uuid=uuid)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(12)))
    metadata = load(services, "v")["metadata"]
    assert metadata["properties"] == {f"k{n}": str(n) for n in range(12) if n % 3}
    assert [each["version-id"] for each in metadata["version-log"]] == [1, 2, 3, 4, 5]
    assert {q["representations"][0]["sql"] for q in metadata["versions"][1:]} == {f"SELECT {n}" for n in (0, 3, 6, 9)}


def test_two_creators_of_one_name_give_one_view_and_one_conflict(services: Services) -> None:
    def attempt(_: int) -> str:
        try:
            create(services, "contested")
        except AlreadyExistsError:
            return "conflict"
        return "created"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(attempt, range(2))) == ["conflict", "created"]


def test_many_that_look_at_a_view_of_duckdbs_for_the_first_time_see_the_same(services: Services, ducklake) -> None:
    ducklake.execute("CREATE VIEW v AS SELECT 1 AS one")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: load(services, "v"), range(12)))
    assert all(answer == answers[0] for answer in answers)
    ducklake.execute("CREATE OR REPLACE VIEW v AS SELECT 2 AS two")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: load(services, "v"), range(12)))
    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]["metadata"]["version-log"]) == 2


def test_server_that_dies_anywhere_in_a_commit_leaves_the_old_view_or_the_new_one(services: Services) -> None:
    before = create(services, "v")
    for left in range(100):
        fuse = Fuse(left)
        try:
            commit(fused(services, fuse), "v", *replacement({"spark": f"SELECT {left}"}))
        except Killed:
            after = load(services, "v")
            assert queries(after) in (queries(before), {"spark": f"SELECT {left}"})
            assert written(after) == after["metadata"]
            before = after
        else:
            break
    assert left > 3
    assert queries(load(services, "v")) == {"spark": f"SELECT {left}"}
