"""Which files of a log tell a version, and that whatever way is taken, the table is the same."""

from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import DamagedLogError, ExpiredError, InvalidRequestError, NoDeltaLogError
from duckicelake.storage.local import LocalStore
from duckicelake.storage.memory import MemoryStore
from tests.delta.logs import HandMade, add, metadata, paths, protocol, remove, write_parquet
from tests.support.examples import count_examples


@pytest.fixture
def table(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t")


def six_versions(table: HandMade) -> None:
    table.begin(add("a"))
    for version, name in enumerate("bcdef", 1):
        table.commit(version, add(name))


def checkpoint(table: HandMade, version: int, *names: str) -> None:
    rows = [protocol(), metadata(), *map(add, names)]
    write_parquet(table.path(f"{version:020}.checkpoint.parquet"), rows)


def test_commits_alone_show_every_version(table: HandMade) -> None:
    six_versions(table)
    log = table.log
    assert (log.oldest(), log.newest()) == (0, 5)
    assert [paths(log, version) for version in (0, 2, 5)] == [{"a"}, set("abc"), set("abcdef")]


def test_news_are_seen_when_asked_for(table: HandMade) -> None:
    table.begin(add("a"))
    log = table.log
    assert not log.has_next(0)
    table.commit(1, add("b"))
    assert log.has_next(0)
    assert paths(log, 1) == {"a", "b"}
    table.commit(2, remove("a"))
    assert (log.newest(), paths(log)) == (2, {"b"})


@pytest.mark.parametrize("hint", [b'{"version":4}', b'{"version":99,"size":1}', b"\x00 not JSON", b""])
def test_wrong_hint_about_the_last_checkpoint_is_passed_over(table: HandMade, hint: bytes) -> None:
    six_versions(table)
    checkpoint(table, 3, *"abcd")
    table.path("_last_checkpoint").write_bytes(hint)
    assert paths(table.log) == set("abcdef")


def test_log_cleaned_up_to_a_checkpoint_begins_there(table: HandMade) -> None:
    six_versions(table)
    checkpoint(table, 3, *"abcd")
    for version in (0, 1):
        table.path(f"{version:020}.json").unlink()
    log = table.log
    assert (log.oldest(), paths(log, 3), paths(log)) == (3, set("abcd"), set("abcdef"))
    with pytest.raises(ExpiredError, match=r"version 2 any more.* oldest version that it still has is 3"):
        log.snapshot(2)


def test_checkpoint_without_the_commit_of_its_version_shows_it(table: HandMade) -> None:
    six_versions(table)
    checkpoint(table, 3, *"abcd")
    for version in range(4):
        table.path(f"{version:020}.json").unlink()
    log = table.log
    assert (log.oldest(), paths(log, 3), paths(log, 4)) == (3, set("abcd"), set("abcde"))
    assert [commit.version for commit in log.commits(3, 5)] == [4, 5]
    with pytest.raises(DamagedLogError, match=r"00003\.json is missing"):
        list(log.commits(2, 5))


def test_missing_commit_is_named(table: HandMade) -> None:
    six_versions(table)
    table.path(f"{3:020}.json").unlink()
    log = table.log
    with pytest.raises(DamagedLogError, match=r"version 3 is missing .*_delta_log/00000000000000000003\.json"):
        log.snapshot()
    with pytest.raises(DamagedLogError, match="version 3 is missing"):
        log.oldest()
    with pytest.raises(DamagedLogError, match="version 3 is missing"):
        list(log.commits(-1, 5))


def test_missing_part_of_a_checkpoint_is_named_where_nothing_stands_in(table: HandMade) -> None:
    six_versions(table)
    rows = [protocol(), metadata(), *map(add, "abcd")]
    write_parquet(table.path(f"{3:020}.checkpoint.{1:010}.{2:010}.parquet"), rows)
    assert paths(table.log) == set("abcdef")
    for version in range(4):
        table.path(f"{version:020}.json").unlink()
    with pytest.raises(DamagedLogError, match=r"checkpoint lacks 0{19}3\.checkpoint\.0{9}2\.0{9}2\.parquet"):
        table.log.snapshot()


@pytest.mark.parametrize("version", [-1, 6, 10**6])
def test_version_that_never_was_is_refused(table: HandMade, version: int) -> None:
    six_versions(table)
    with pytest.raises(InvalidRequestError, match=f"has no version {version}: its newest is 5"):
        table.log.snapshot(version)


def test_folder_without_a_log_is_no_table(table: HandMade) -> None:
    with pytest.raises(NoDeltaLogError, match="isn't a Delta table"):
        DeltaLog(LocalStore(table.folder), "/nowhere/t")
    file = table.path("_last_checkpoint")
    file.write_bytes(b"{}")
    with pytest.raises(NoDeltaLogError):
        _ = table.log
    with pytest.raises(NoDeltaLogError, match="it is a file, and a Delta table is a folder"):
        DeltaLog(LocalStore(table.folder), str(file))


def test_log_in_a_store_that_is_no_file_system_is_read_ahead(table: HandMade) -> None:
    table.begin(add("a"))
    for version in range(1, 30):
        table.commit(version, add(f"f{version}"))
    store = MemoryStore()
    for path in (table.folder / "_delta_log").iterdir():
        store.write(f"s3://bucket/t/_delta_log/{path.name}", path.read_bytes())
    log = DeltaLog(store, "s3://bucket/t/")
    assert [commit.version for commit in log.commits(-1, 29)] == list(range(30))
    assert len(paths(log)) == 30


NAMES = [f"f{number}" for number in range(6)]


@settings(max_examples=count_examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sets(st.sampled_from(NAMES)), min_size=2, max_size=9),
    checkpoints=st.sets(st.integers(0, 8)),
    compactions=st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8))),
    lost=st.integers(0, 8),
)
def test_every_way_leads_to_the_same_table(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[set[str]],
    checkpoints: set[int],
    compactions: set[tuple[int, int]],
    lost: int,
) -> None:
    """A table of files that come and go, with checkpoints and compactions anywhere, its first commits lost."""
    table = HandMade(tmp_path_factory.mktemp("any") / "t")
    states: list[set[str]] = [set(), *steps]
    for version, (before, after) in enumerate(pairwise(states)):
        head = [protocol(), metadata()] if version == 0 else []
        table.commit(version, *head, *map(remove, sorted(before - after)), *map(add, sorted(after - before)))
    last = len(steps) - 1
    for version in checkpoints & set(range(last + 1)):
        checkpoint(table, version, *sorted(steps[version]))
    for first, end in compactions:
        if first < end <= last:
            head = [protocol(), metadata()] if first == 0 else []
            before, after = (steps[first - 1] if first else set()), steps[end]
            actions = [*map(remove, sorted(before - after)), *map(add, sorted(after))]
            table.lines(f"{first:020}.{end:020}.compacted.json", *head, *actions)
    covered = min((version for version in checkpoints if lost <= version <= last), default=None)
    first_reported = 0
    if covered is not None:
        first_reported = covered if lost else 0
        for version in range(lost):
            table.path(f"{version:020}.json").unlink()
    log = table.log
    assert log.oldest() <= first_reported
    for version in range(first_reported, last + 1):
        assert paths(log, version) == steps[version]


def test_checkpoint_names_of_every_kind_are_known(table: HandMade) -> None:
    six_versions(table)
    rows = [protocol(), metadata(), *map(add, "abcde")]
    table.lines(f"{4:020}.checkpoint.{UUID(int=7)}.json", {"checkpointMetadata": {"version": 4}}, *rows)
    for version in range(5):
        table.path(f"{version:020}.json").unlink()
    log = table.log
    assert (log.oldest(), paths(log)) == (4, set("abcdef"))
