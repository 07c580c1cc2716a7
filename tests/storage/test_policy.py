import tracemalloc
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.errors import InvalidRequestError
from duckicelake.storage.local import LocalStore
from duckicelake.storage.policy import LocationPolicy, canonicalize, check_file, is_within

POLICY = LocationPolicy("s3://lake/wh", ("s3://shared/tables", "/mnt/tables"))
TABLE = "s3://lake/wh/data/db/t-12345678"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/x/y", "file:///x/y"),
        ("file:/x/y", "file:///x/y"),
        ("file:///x/y/", "file:///x/y"),
        ("file://localhost/x", "file:///x"),
        ("FILE:///x//y", "file:///x/y"),
        ("/x/./y/../z", "file:///x/z"),
        ("/../../x", "file:///x"),
        ("/", "file:///"),
        ("s3://b/k/", "s3://b/k"),
        ("s3a://b/k", "s3://b/k"),
        ("s3n://b/k/j", "s3://b/k/j"),
        ("s3://b//", "s3://b"),
        ("s3a://b/k//", "s3://b/k"),
        ("S3://b/k", "s3://b/k"),
        ("s3://B/k", "s3://B/k"),
        ("s3://b/%2e%2e/k%2Fj", "s3://b/%2e%2e/k%2Fj"),
        ("/x/%2e%2e/y", "file:///x/%2e%2e/y"),
        ("/x\\..\\y", "file:///x\\..\\y"),
        ("/x/\uff0e\uff0e/y", "file:///x/\uff0e\uff0e/y"),
        ("hdfs://host:8020/a//b", "hdfs://host:8020/a//b"),
        ("s3://b", "s3://b"),
        ("hdfs://b/a b%20c?d#e", "hdfs://b/a b%20c?d#e"),
        ("gcs://b/a%20c/", "gs://b/a%20c"),
        ("wasb://c@account.blob.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a"),
        ("ABFS://C@Account.dfs.core.windows.net/a/", "abfss://c@account.dfs.core.windows.net/a"),
        ("abfss://c@account.dfs.core.windows.net/p", "abfss://c@account.dfs.core.windows.net/p"),
    ],
)
def test_canonical_gives_one_spelling(location: str, expected: str) -> None:
    assert canonicalize(location) == expected


@pytest.mark.parametrize(
    "location",
    [
        "", "x/y", "./x", "file:x", "file://host/x", "s3:/b/k", "s3://", "/x\0y", "/x\ny",
        "s3://b/../k", "s3a://b/k/./j", "s3://b/..", "gs://b/../k", "hdfs://h/a/../b", "gs://b/a//b", "gs://B/x",
        "gs://b/?", "abfss://c/x", "abfss://c@a.dfs.x/y", "wasb://c@account.example/x",
        "s3://user@b/k", "s3://b:9000/k", "s3://b\\@c/k", "s3:///k", "s3://-b/k", "s3://b\u3002c/k", "s3://b?x/k", "s3://.../k",
        "s3://b/k?s3_endpoint=evil.example", "s3://b/k#x", "s3://b/\x7f",
        "s3://b//k", "s3a://b/k//j", "S3N://b///k/",
    ],
)  # fmt: skip
def test_canonical_of_what_is_not_absolute_is_refused_by_name(location: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        canonicalize(location)
    assert repr(location) in str(caught.value)


@pytest.mark.parametrize("root", ["s3a://b/", "/"])
@given(segments=st.lists(st.sampled_from(["a", "..", ".", "", "b%2e", "a b"]), max_size=8))
def test_canonical_is_idempotent_and_never_leaves_the_root(root: str, segments: list[str]) -> None:
    try:
        location = canonicalize(root + "/".join(segments))
    except InvalidRequestError:
        assert root != "/"
        assert {".", "..", ""} & set(segments)
        return
    assert canonicalize(location) == location
    assert is_within(location, root)


@pytest.mark.parametrize(
    ("location", "prefix", "expected"),
    [
        ("s3://b/orders/x", "s3://b/orders", True),
        ("s3a://b/orders/", "s3://b/orders", True),
        ("s3://b/orders2", "s3://b/orders", False),
        ("s3://b/x/orders/x", "s3://b/orders", False),
        ("s3://b/Orders/x", "s3://b/orders", False),
        ("s3://B/orders/x", "s3://b/orders", False),
        ("s3://b/orders%2Fx", "s3://b/orders", False),
        ("hdfs://b/data//orders/x", "hdfs://b/data/orders", False),
        ("/b/orders//x", "/b//orders", True),
        ("/b/orders/../other", "/b/orders", False),
        ("s3://b", "s3://b/orders", False),
        ("s3://bucket", "s3://b", False),
        ("file:/x/y", "/x", True),
        ("/x", "/", True),
        ("s3://x/y", "/x", False),
    ],
)
def test_is_within_goes_by_whole_segments(location: str, prefix: str, expected: bool) -> None:
    assert is_within(location, prefix) is expected


def test_table_location_encodes_names_as_single_segments() -> None:
    uuid = UUID("00000000-0000-0000-0000-000012345678")
    assert POLICY.table_location(("db", "a/b"), "t é", uuid) == "s3://lake/wh/data/db/a%2Fb/t%20%C3%A9-12345678"
    assert POLICY.table_location(("..", "."), "..", uuid) == "s3://lake/wh/data/%2E%2E/%2E/%2E%2E-12345678"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3), st.text(min_size=1))
def test_every_table_location_is_legal_and_fits_a_file_system(namespace: list[str], name: str) -> None:
    location = POLICY.table_location(tuple(namespace), name, "0000-12345678")
    POLICY.check_table_location(location)
    segments = location.removeprefix("s3://lake/wh/data/").split("/")
    assert len(segments) == len(namespace) + 1
    assert all(len(segment.encode()) <= 200 for segment in segments)


def test_long_name_is_cut_between_encoded_characters() -> None:
    folder = POLICY.table_location(("db",), "é" * 300, "12345678").rsplit("/", 1)[1]
    assert folder == "%C3%A9" * 26 + "%C3" + "-12345678"


@pytest.mark.parametrize("location", [TABLE, "s3a://lake/wh/data/x", "s3://shared/tables", "file:/mnt/tables/t"])
def test_table_may_live_in_data_zone_and_allowed_prefixes(location: str) -> None:
    POLICY.check_table_location(location)


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/wh/data",
        "s3://lake/wh",
        "s3://lake/wh/ducklake/main/t",
        "s3://lake",
        "s3://lake/wh/database/t",
        "s3://other/t",
        "/etc",
        "s3://shared/tables2",
    ],
)
def test_table_elsewhere_is_refused_naming_the_zones(location: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"s3://lake/wh/data or s3://shared/tables or /mnt/tables") as caught:
        POLICY.check_table_location(location)
    assert location in str(caught.value)


def test_allowed_prefix_that_holds_the_data_path_does_not_open_it() -> None:
    policy = LocationPolicy("s3://lake/wh", ("s3://lake",))
    policy.check_table_location("s3://lake/elsewhere/t")
    for location in ("s3://lake", "s3://lake/wh/ducklake", "s3://lake/wh/ducklake/t"):
        with pytest.raises(InvalidRequestError, match="overlaps s3://lake/wh/ducklake/"):
            policy.check_table_location(location)


def test_readable_is_the_table_and_what_is_allowed() -> None:
    POLICY.check_readable(f"{TABLE}/metadata/m.avro", TABLE)
    POLICY.check_readable("s3://shared/tables/x/m.avro", TABLE)
    for location in ("s3://lake/wh/data/db/other/m.avro", "s3://lake/wh/data/db/x/t-12345678/m.avro", "/etc/passwd"):
        with pytest.raises(InvalidRequestError, match=TABLE) as caught:
            POLICY.check_readable(location, TABLE)
        assert location in str(caught.value)


@pytest.mark.parametrize("location", ["s3://lake/wh/data/" + "x/" * 430, "/mnt/tables/" + "é" * 128])
def test_location_below_which_files_would_not_fit_is_refused(location: str) -> None:
    with pytest.raises(InvalidRequestError, match="bytes"):
        POLICY.check_table_location(location)


@pytest.mark.parametrize(
    "path", ["s3://b/k?s3_endpoint=evil.example", "s3://b/../k", "s3://u@b/k", "/x\ny", "/" + "x" * 2000, "file://h/x"]
)
def test_file_that_is_not_the_same_to_every_reader_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequestError):
        check_file(path)


@pytest.mark.parametrize(
    "path", ["/path/to/data-a.parquet", "data-a.parquet", "s3://b/a=%3F/x y.parquet", "hdfs://b/?"]
)
def test_files_anywhere_may_be_named(path: str) -> None:
    check_file(path)


def test_long_places_that_clients_name_are_not_kept() -> None:
    store = LocalStore(Path("/lake"))
    tracemalloc.start()
    try:
        for number in range(20):
            store.local_path(f"/lake/{number}{'x' * 1_000_000}")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
