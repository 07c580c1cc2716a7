"""What is written of a log here is read here as what it was."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckicelake.delta.log.actions import (
    AddFile,
    DeletionVector,
    DeltaCommit,
    DeltaSnapshot,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from duckicelake.delta.log.decoder import read_actions
from duckicelake.delta.log.encoder import encode_checkpoint, encode_commit, format_checkpoint_name
from duckicelake.delta.log.paths import decode_path, encode_path, is_absolute, resolve_location
from tests.delta.logs import START_MS, HandMade

PATHS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
NUMBERS = st.integers(0, 2**62)
VALUES = st.dictionaries(PATHS, st.none() | PATHS, max_size=3)
VECTORS = st.builds(
    DeletionVector, st.sampled_from("upi"), PATHS, st.integers(0, 2**31 - 1), NUMBERS, st.none() | st.integers(0, 99)
)
ADDS = st.builds(
    AddFile,
    PATHS,
    VALUES,
    NUMBERS,
    NUMBERS,
    st.just(False),
    st.none() | PATHS,
    st.none() | VECTORS,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    VALUES,
)
REMOVES = st.builds(RemoveFile, PATHS, st.booleans(), NUMBERS, NUMBERS, VALUES, st.none() | VECTORS)
FEATURES = st.none() | st.frozensets(st.sampled_from(["deletionVectors", "columnMapping"]))
PROTOCOLS = st.builds(Protocol, st.integers(1, 3), st.integers(1, 7), FEATURES, FEATURES)
METADATA = st.builds(
    Metadata,
    PATHS,
    PATHS,
    st.lists(PATHS, max_size=2).map(tuple),
    st.dictionaries(PATHS, PATHS, max_size=2),
    st.none() | PATHS,
    st.none() | PATHS,
    NUMBERS,
)
TXNS = st.builds(Txn, PATHS, NUMBERS, st.none() | NUMBERS)


@given(PATHS)
def test_path_is_decoded_as_it_was_encoded(path: str) -> None:
    assert decode_path(encode_path(path)) == path


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("a.parquet", "/t/a.parquet"),
        ("p=10:30/a.parquet", "/t/p=10:30/a.parquet"),
        ("at:10/a.parquet", "/t/at:10/a.parquet"),
        ("/x/a.parquet", "/x/a.parquet"),
        ("file:/x/a.parquet", "file:/x/a.parquet"),
        ("s3a://bucket/a.parquet", "s3a://bucket/a.parquet"),
    ],
)
def test_place_of_a_path(path: str, place: str) -> None:
    assert resolve_location("/t/", path) == place
    assert is_absolute(path) == (place == path)


@pytest.mark.parametrize(
    ("root", "path", "place"),
    [
        ("/d/t", "../x/a", "/d/x/a"),
        ("/d/t", "p=1/../../../../../x/a", "/x/a"),
        ("file:///d/t", "../x/a..b", "file:///d/x/a..b"),
        ("s3://bucket/d/t", "../../x/a", "s3://bucket/x/a"),
        ("s3://bucket/t", "../../../a", "s3://bucket/a"),
        ("/d/t", "a..b/c", "/d/t/a..b/c"),
    ],
)
def test_path_out_of_the_table_s_folder(root: str, path: str, place: str) -> None:
    assert resolve_location(root, path) == place


@given(st.lists(ADDS, max_size=3), st.lists(REMOVES, max_size=3), METADATA, PROTOCOLS, st.lists(TXNS, max_size=2))
def test_commit_is_read_as_it_was_written(
    adds: list[AddFile], removes: list[RemoveFile], metadata: Metadata, protocol: Protocol, txns: list[Txn]
) -> None:
    info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    commit = DeltaCommit(7, START_MS, tuple(adds), tuple(removes), metadata, protocol, tuple(txns), (), info)
    read = read_actions(encode_commit(commit), "x")
    again = (tuple(read.adds), tuple(read.removes), read.metadata, read.protocol, tuple(read.txns), read.info)
    assert again == (commit.adds, commit.removes, metadata, protocol, commit.txns, info)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(ADDS, max_size=4), METADATA, PROTOCOLS, st.lists(TXNS, max_size=2))
def test_checkpoint_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    adds: list[AddFile],
    metadata: Metadata,
    protocol: Protocol,
    txns: list[Txn],
) -> None:
    files = {add.key: add for add in adds}
    counts = {txn.app_id: txn for txn in txns}
    table = HandMade(tmp_path_factory.mktemp("any") / "t")
    path = table.path(format_checkpoint_name(3))
    snapshot = DeltaSnapshot(3, path.parent.stat().st_mtime_ns, protocol, metadata, files, counts)
    path.write_bytes(encode_checkpoint(snapshot))
    read = table.log.snapshot()
    assert (read.files, read.metadata, read.protocol, read.txns) == (files, metadata, protocol, counts)


def test_log_written_here_is_a_table(tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    metadata = Metadata("id", '{"type":"struct","fields":[]}', created_ms=1)
    adds = (AddFile("p=a%2Fb/ä 1.parquet", {"p": "a/b"}, 1, 2, data_change=True),)
    first = DeltaCommit(0, 0, adds, metadata=metadata, protocol=Protocol(1, 2))
    table.path(f"{0:020}.json").write_bytes(encode_commit(first))
    assert list(table.log.snapshot().files.values()) == list(adds)
