"""What a Delta log names is only read where a Delta table's files may be: its writers get at nothing of the lake's."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.delta.import_.sync import SYNCER, find_source, sync
from duckicelake.delta.log import vectors
from duckicelake.delta.log.vectors import PORTABLE_MAGIC
from duckicelake.errors import CatalogError, DamagedLogError, InvalidRequestError, NoSuchTableError
from tests.delta.import_.tables import VECTORS, again, new_table, vector
from tests.delta.import_.versions import iceberg_rows
from tests.delta.logs import Action, HandMade, add, metadata, protocol
from tests.support.client import NS, new_client

ELSEWHERE = "leads elsewhere by a symbolic link"
OWN = "where the lake keeps tables of its own"


@pytest.fixture
def table(services: Services, warehouse: Path) -> HandMade:
    """A Delta table of one file, and the lake with the namespace of the tests."""
    new_client(services)
    table = new_table(warehouse / "delta" / "t")
    table.begin(table.rows("a.parquet", 0, 3))
    return table


@pytest.fixture
def secret(warehouse: Path) -> Path:
    """A file of another table of the lake's."""
    return parquet(warehouse / "data" / "secret" / "t" / "x.parquet")


def parquet(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([7], pa.int64())}), path)
    return path


def named(path: str | Path, like: Path) -> Action:
    return add(str(path), like.stat().st_size, stats='{"numRecords":1}')


def imported(services: Services, table: HandMade, *, following: bool = False) -> None:
    import_table(services, DeltaImport(str(table.folder), NS, "t", following=following))


def test_file_of_the_lakes_own_is_not_the_delta_tables(services: Services, table: HandMade, secret: Path) -> None:
    table.commit(1, named(secret, secret))
    with pytest.raises(InvalidRequestError, match=OWN):
        imported(services, table)
    with pytest.raises(NoSuchTableError):
        find_source(services, "ns.t")


def test_link_counts_as_what_it_leads_to(services: Services, table: HandMade, secret: Path, tmp_path: Path) -> None:
    outside = parquet(tmp_path / "outside" / "x.parquet")
    cases: list[tuple[str, Path, str]] = [
        ("one.parquet", outside, ELSEWHERE),
        ("two/x.parquet", outside.parent, ELSEWHERE),
        ("three.parquet", secret, OWN),
        ("_delta_log/_sidecars", outside.parent, ELSEWHERE),
    ]
    for name, target, why in cases:
        link = table.folder / (name if target.is_file() else name.removesuffix("/x.parquet"))
        link.symlink_to(target)
        table.commit(1, named(name if name.endswith("parquet") else "a.parquet", outside))
        with pytest.raises(InvalidRequestError, match=why):
            imported(services, table)
        link.unlink()
    (table.folder / "b.parquet").symlink_to("a.parquet")
    table.commit(1, named("b.parquet", table.folder / "a.parquet"))
    imported(services, table)


def test_delta_table_behind_a_link_is_named_by_its_own_folder(
    services: Services, table: HandMade, tmp_path: Path, warehouse: Path
) -> None:
    table.folder.rename(tmp_path / "moved")
    table.folder.symlink_to(tmp_path / "moved")
    with pytest.raises(InvalidRequestError, match=ELSEWHERE):
        imported(services, table)
    table.folder.unlink()
    (warehouse / "data" / "ns").mkdir(parents=True)
    (tmp_path / "moved").rename(warehouse / "data" / "ns" / "t-12345678")
    with pytest.raises(InvalidRequestError, match=f"{OWN}: to have one of those twice, `duckicelake clone` it"):
        imported(services, HandMade(warehouse / "data" / "ns" / "t-12345678"))


def test_followed_table_gets_no_further_than_an_imported_one(
    services: Services, table: HandMade, secret: Path, tmp_path: Path
) -> None:
    imported(services, table, following=True)
    syncing = replace(services, caller=SYNCER)
    outside = parquet(tmp_path / "outside.parquet")
    (table.folder / "link.parquet").symlink_to(outside)
    for name, why in ((secret, OWN), ("link.parquet", ELSEWHERE), (outside, "must lie in")):
        table.commit(1, named(name, outside))
        with pytest.raises(InvalidRequestError, match=why):
            sync(syncing, find_source(services, "ns.t"), table.log)
    assert iceberg_rows(services, 1 << 62) == ["[0]", "[1]", "[2]"]


def test_followed_clone_goes_on_with_files_of_the_table_that_it_is_of(services: Services, table: HandMade) -> None:
    file = table.rows("a.parquet", 0, 3)
    clone = new_table(table.folder.with_name("clone"))
    there = {"add": file["add"] | {"path": f"file://{table.folder}/a.parquet"}}
    clone.commit(0, protocol(3, 7, VECTORS), metadata({"delta.enableDeletionVectors": "true"}), there)
    imported(services, clone, following=True)
    clone.commit(1, {"remove": {"path": there["add"]["path"], "dataChange": True}}, again(there, vector(1)))
    after = sync(replace(services, caller=SYNCER), find_source(services, "ns.t"), clone.log)
    assert after.position.version == 1
    assert iceberg_rows(services, 1) == ["[0]", "[2]"]


def run(count: int) -> Action:
    """A deletion vector of so many positions in a row, which takes few bytes."""
    bitmap = BitMap()
    bitmap.add_range(0, count)
    bitmap.run_optimize()
    data = PORTABLE_MAGIC.to_bytes(4, "little") + struct.pack("<QI", 1, 0) + bitmap.serialize()
    return {
        "storageType": "i",
        "pathOrInlineDv": vectors.encode_z85(data),
        "sizeInBytes": len(data),
        "cardinality": count,
    }


@pytest.mark.parametrize(
    ("deleted", "why"),
    [
        (vector(1, 3), r"position 3 of .*/a\.parquet is deleted, but it has 3 rows"),
        (run(1 << 31), r"vector of a\.parquet .* it holds 2147483648 positions; this server takes up to 16777216"),
    ],
)
def test_vector_deletes_no_more_than_there_is(services: Services, table: HandMade, deleted: Action, why: str) -> None:
    file = table.rows("a.parquet", 0, 3)
    table.commit(0, protocol(3, 7, VECTORS), metadata(), again(file, deleted))
    with pytest.raises(InvalidRequestError, match=why):
        imported(services, table)


NUL = {"commitInfo": {"operation": "WRITE\0", "userMetadata": "\0", "engineInfo": {"a": "\0"}}}
Make = Callable[[HandMade], object]


def not_unicode(table: HandMade) -> None:
    (table.folder / os.fsdecode(b"\xff.parquet")).write_bytes((table.folder / "a.parquet").read_bytes())
    table.commit(1, named("%ff.parquet", table.folder / "a.parquet"))


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda table: table.commit(1, metadata({"a\0": "b"})), DamagedLogError, "has the text 'a.x00' with a NUL"),
        (
            lambda table: table.commit(1, add("x%0Ay", 1, stats='{"numRecords":1}')),
            InvalidRequestError,
            "control character",
        ),
        (not_unicode, InvalidRequestError, "isn't valid Unicode"),
    ],
)
def test_texts_that_no_catalog_keeps_are_named(
    services: Services, table: HandMade, make: Make, error: type[CatalogError], why: str
) -> None:
    make(table)
    with pytest.raises(error, match=why):
        imported(services, table)


def test_what_a_commit_says_of_itself_may_be_anything(services: Services, table: HandMade) -> None:
    table.commit(
        1,
        NUL,
        table.rows("b.parquet", 3, 1),
        *({"txn": {"appId": app, "version": 1}} for app in ("a" * 100_000, "a\0")),
    )
    imported(services, table)
    assert iceberg_rows(services, 1) == ["[0]", "[1]", "[2]", "[3]"]
