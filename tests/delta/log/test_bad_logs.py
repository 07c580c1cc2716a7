"""What is wrong with a log is said by file, line, feature and version."""

from pathlib import Path
from uuid import UUID

import pytest

from duckicelake.errors import DamagedLogError, InvalidRequestError, UnsupportedError
from tests.delta.logs import Action, HandMade, add, metadata, paths, protocol, write_parquet

FINE = b'{"add":{"path":"b","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}\n'


@pytest.fixture
def table(tmp_path: Path) -> HandMade:
    table = HandMade(tmp_path / "t")
    table.begin(add("a"))
    return table


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"add":{"path":"c","part', "isn't JSON"),
        (b"\x00\x00\x00", "isn't JSON"),
        (b'{"add":{"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}', "lacks 'path'"),
        (b'{"add":{"path":"c","partitionValues":{},"size":"1","modificationTime":1,"dataChange":true}}', "size is '1'"),
        (b'{"add":{"path":7,"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}', "isn't one of"),
        (b'{"add":{"path":"c","partitionValues":[],"size":1,"dataChange":true}}', "lacks 'modificationTime'"),
        (b'{"remove":{"dataChange":true}}', "lacks 'path'"),
        (b'{"metaData":{"id":"x"}}', "lacks 'schemaString'"),
        (b'{"protocol":{"minReaderVersion":"1","minWriterVersion":2}}', "minReaderVersion is '1'"),
        (b'{"txn":{"appId":"a"}}', "lacks 'version'"),
        (b'{"txn":{"appId":7,"version":1}}', "appId is 7, and must be a text"),
        (b'{"metaData":{"id":"x","schemaString":"","configuration":{"k":true}}}', "k is True, and must be a text"),
        (b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[1]}}', "a feature is 1, and"),
        (FINE.replace(b'"partitionValues":{}', b'"partitionValues":{"p":1}'), "p is 1, and must be a text"),
        (FINE.replace(b'"dataChange"', b'"stats":{},"dataChange"'), "stats is {}, and must be a text"),
        (FINE.replace(b'"b"', b"[]"), "path is [], and must be a text"),
        (FINE.replace(b"true", b"1"), "dataChange is 1, and must be true or false"),
        (FINE.replace(b"}}", b',"baseRowId":"7"}}'), "baseRowId is '7', and must be a whole number"),
        (b'["add"]', "isn't one of Delta's"),
        (b'{"add":"c"}', "isn't one of Delta's"),
        (b'{"commitInfo":[1]}', "isn't one of Delta's"),
    ],
)
def test_corrupt_line_is_named(table: HandMade, line: bytes, why: str) -> None:
    path = table.path(f"{1:020}.json")
    path.write_bytes(FINE + b"\n" + line + b"\n" + FINE)
    for read in (table.log.snapshot, lambda: list(table.log.commits(0, 1))):
        with pytest.raises(DamagedLogError) as caught:
            read()
        assert str(caught.value).startswith(f"file://{path}, line 3: ")
        assert why in str(caught.value)


def test_commit_that_is_too_long_to_be_read_is_named(table: HandMade) -> None:
    path = table.path(f"{1:020}.json")
    with path.open("wb") as file:
        file.truncate(1 << 30)
    for read in (table.log.snapshot, lambda: list(table.log.commits(0, 1))):
        with pytest.raises(InvalidRequestError, match=f"{path} has 1073741824 bytes"):
            read()
    table.commit(2, add("c"))
    write_parquet(table.path(f"{2:020}.checkpoint.parquet"), [protocol(), metadata(), add("b"), add("c")])
    assert paths(table.log) == {"b", "c"}


def test_what_is_not_known_is_passed_over(table: HandMade) -> None:
    table.commit(1, {"someAction": {"x": 1}}, {"cdc": {"path": "_change_data/c"}}, {"add": None}, add("b"))
    assert paths(table.log) == {"a", "b"}


def test_empty_commit_changes_nothing(table: HandMade) -> None:
    table.path(f"{1:020}.json").write_bytes(b"")
    assert [(commit.version, commit.adds) for commit in table.log.commits(0, 1)] == [(1, ())]
    assert paths(table.log) == {"a"}


@pytest.mark.parametrize(("actions", "lacking"), [([metadata()], "protocol"), ([protocol()], "metaData")])
def test_table_that_never_said_how_it_is_read_is_refused(tmp_path: Path, actions: list[Action], lacking: str) -> None:
    table = HandMade(tmp_path / "other")
    table.commit(0, *actions, add("a"))
    with pytest.raises(DamagedLogError, match=f"has no {lacking} up to version 0"):
        table.log.snapshot()


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (protocol(4, 7), r"version 1 or before, protocol version 4, and 3 is the newest"),
        (protocol(3, 7, ["deletionVectors", "warpDrive", "catalogManaged"]), r"catalogManaged and warpDrive, which"),
    ],
)
def test_what_a_table_asks_of_readers_and_is_not_read_is_named(table: HandMade, action: Action, named: str) -> None:
    table.commit(1, action)
    assert paths(table.log, 0) == {"a"}
    for read in (table.log.snapshot, lambda: list(table.log.commits(-1, 1))):
        with pytest.raises(UnsupportedError, match=named) as caught:
            read()
        assert caught.value.feature == "delta-features"


def test_all_features_that_only_writers_have_to_know_are_read(table: HandMade) -> None:
    only_writers = ["appendOnly", "rowTracking", "icebergCompatV2", "clustering", "checkConstraints", "warpDrive"]
    action = protocol(3, 7, [])
    action["protocol"]["writerFeatures"] = only_writers
    table.commit(1, action)
    assert table.log.snapshot().protocol.writer_features == frozenset(only_writers)


def test_names_that_no_writer_gives_cost_nothing(table: HandMade) -> None:
    """Of a checkpoint with so many parts not even a list fits into memory, nor of so many versions."""
    table.path(f"{0:020}.checkpoint.{1:010}.9999999999.parquet").write_bytes(b"")
    for name in ("99999999999999999999", "09223372036854775807", f"{0:019}\u0661"):
        table.path(f"{name}.json").write_bytes(b"{}")
        write_parquet(table.path(f"{name}.checkpoint.parquet"), [protocol(), metadata(), add("z")])
    assert (table.log.oldest(), table.log.newest(), paths(table.log)) == (0, 0, {"a"})


def test_checkpoint_far_away_does_not_stand_for_what_is_missing(table: HandMade) -> None:
    write_parquet(table.path(f"{10**18 - 1:020}.checkpoint.parquet"), [protocol(), metadata(), add("z")])
    with pytest.raises(DamagedLogError, match=r"0{19}1\.json is missing: the changes of version 1 are unknown"):
        list(table.log.commits(0, 10**18 - 1))


@pytest.mark.parametrize("stated", [-1, 2**62, 2**64 - 1, True, 1.5])
def test_time_that_no_commit_has_is_named(table: HandMade, stated: object) -> None:
    table.begin(**{"delta.enableInCommitTimestamps": "true"})
    table.commit(1, {"commitInfo": {"inCommitTimestamp": stated}})
    with pytest.raises(DamagedLogError, match=r"0{19}1\.json .*inCommitTimestamp"):
        list(table.log.commits(0, 1))


def test_time_that_no_calendar_has_is_reported_as_a_number(table: HandMade) -> None:
    with pytest.raises(InvalidRequestError, match=r"wasn't there at -9223372036854775808 ms"):
        table.log.version_at(-(2**63))


@pytest.mark.parametrize("path", ["file:///etc/passwd", "/etc/passwd", "../../../passwd", "s3://other/passwd"])
def test_sidecar_is_read_from_the_logs_own_folder_alone(table: HandMade, path: str) -> None:
    sidecar = {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}
    table.lines(f"{3:020}.checkpoint.{UUID(int=1)}.json", protocol(), metadata(), sidecar)
    with pytest.raises(DamagedLogError, match=rf"{table.folder}/_delta_log/_sidecars/passwd doesn't exist"):
        table.log.snapshot(3)
