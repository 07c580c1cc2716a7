"""The cache of what plans read of manifests, shared by threads while manifests are forgotten."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from duckicelake.catalog import scan_manifests
from duckicelake.catalog.context.scan_cache import EncodedFiles, ScanCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_manifests import ManifestScanner
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import scan
from duckicelake.lake.state import ManifestRow
from tests.support.client import new_client

MANIFESTS = 6


def list_rows(services: Services, name: str = "t") -> list[ManifestRow]:
    table = load_current_table(services, ("ns",), name)
    current = table.state.current()
    assert current is not None
    rows = table.known.manifests_of(services.database, current.manifest_ids).values()
    return sorted(rows, key=lambda row: row.manifest_id)


@pytest.mark.parametrize("least_files", [1, 1_000], ids=["from Postgres", "made anew"])
@pytest.mark.parametrize("most_bytes", [1 << 20, 2_000, 1])
def test_bytes_stay_exact_while_threads_read_and_forget(
    services: Services, most_bytes: int, least_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_manifests, "_LEAST_KEPT_FILES", least_files)
    client = new_client(services)
    client.create()
    for number in range(MANIFESTS):
        client.append((number, f"n{number}"))
    metadata, cache, rows = (
        load_current_table(services, ("ns",), "t").metadata,
        ScanCache(most_bytes),
        list_rows(services),
    )
    columns: dict[int, PrimitiveType] = {
        id_: type_ for id_, type_ in metadata.schema().leaves().items() if isinstance(type_, PrimitiveType)
    }

    def read(seed: int) -> None:
        random = Random(seed)
        for _ in range(10):
            wanted = random.sample(rows, 3)
            some = {id_: columns[id_] for id_ in random.sample(sorted(columns), 1)}
            scanner = ManifestScanner(cache, services.database, metadata)
            for found in (scanner.read(wanted, some), scanner.read_each(wanted, some)):
                ids = [id_ for bounded in found for id_ in bounded.block.manifest_ids]
                assert ids == [row.manifest_id for row in wanted]
                assert all(len(bounded.bounds[id_].states) == len(bounded.block) for bounded in found for id_ in some)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(8)))
    kept = dict(cache._blocks)
    assert cache.nbytes == sum(size for _, size in kept.values())
    assert len(kept) == 1 or cache.nbytes <= most_bytes
    assert {key for key, _ in cache._places.values()} == set(kept), "no block whose manifests all are in newer ones"
    again = ScanCache(1 << 20)
    ManifestScanner(again, services.database, metadata).read(rows, {})
    assert again.statistics()["read"] == (0 if least_files == 1 else len(rows))
    assert again.statistics()["manifests"] == len(rows)


def test_one_more_manifest_is_joined_to_those_in_memory(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    client = new_client(services)
    client.create()
    for number in range(3):
        client.append((number, f"n{number}"))
    metadata, cache, rows = load_current_table(services, ("ns",), "t").metadata, ScanCache(), list_rows(services)
    columns = {1: metadata.schema().leaves()[1]}
    scanner = ManifestScanner(cache, services.database, metadata)
    scanner.read(rows, columns)
    assert cache.statistics()["read"] == 3
    client.append((3, "n3"))
    (found,) = scanner.read(list_rows(services), columns)
    assert cache.statistics()["read"] == 4
    assert (len(found.block), len(found.bounds[1].states)) == (4, 4)
    assert len(cache._blocks) == 2, "the shorter ones have left"
    monkeypatch.setattr(services.database, "statement", None)
    (old,) = scanner.read(rows, columns)
    assert old.block.manifest_ids == tuple(row.manifest_id for row in rows)
    for before, after in zip(scanner.read_each(rows, columns), found.block.manifests, strict=False):
        assert before.block.files.file_ids.tolist() == after.files.file_ids.tolist()


def test_encoded_files_that_plans_name_stay_up_to_a_size() -> None:
    encoded = EncodedFiles(20 * 300)
    for number in range(100):
        encoded.add("form", {number: b"x" * 100})
        assert encoded.find("form", [0, number]) == {0: b"x" * 100, number: b"x" * 100}
        assert encoded.nbytes <= 20 * 300
    assert encoded.find("form", range(1, 50)) == {}
    assert encoded.find("another form", [0]) == {}


def test_what_cannot_be_kept_is_logged_once_and_counted(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scan_manifests, "_LEAST_KEPT_FILES", 1)
    client = new_client(services)
    client.create()
    for number in range(2):
        client.append((number, f"n{number}"))
    metadata = load_current_table(services, ("ns",), "t").metadata
    rows = list_rows(services)
    with services.database.transaction() as cursor:
        cursor.execute("ALTER TABLE duckicelake_scan_array ADD CHECK (manifest_id < 0) NOT VALID")
    cache = ScanCache(1 << 20)
    for row in rows:
        assert len(ManifestScanner(cache, services.database, metadata).read([row], {})) == 1
    assert cache.statistics()["unkept"] == len(rows)
    (record,) = (record for record in caplog.records if record.name == scan_manifests.__name__)
    assert "can't be kept in Postgres" in record.getMessage()


def test_what_is_kept_goes_with_its_manifest(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_manifests, "_LEAST_KEPT_FILES", 1)
    client = new_client(services)
    for name in ("t", "u"):
        client.create(name)
        client.append((1, "a"), name=name)
        metadata = load_current_table(services, ("ns",), name).metadata
        with services.database.reading() as cursor:
            ids = [id_ for (id_,) in cursor.execute("SELECT manifest_id FROM duckicelake_manifest").fetchall()]
        ManifestScanner(ScanCache(), services.database, metadata).read(list_rows(services, name), {})
    with services.database.reading() as cursor:
        assert cursor.execute("SELECT manifest_id FROM duckicelake_scan_array ORDER BY 1").fetchall() == sorted(
            (id_,) for id_ in ids
        )
    with services.database.statement() as cursor:
        cursor.execute("DELETE FROM duckicelake_manifest WHERE manifest_id = %s", (min(ids),))
    with services.database.reading() as cursor:
        left = cursor.execute("SELECT manifest_id FROM duckicelake_scan_array").fetchall()
    assert left == [(max(ids),)]


def test_filters_by_all_columns_keep_no_more_than_a_limit(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_manifests, "_LEAST_KEPT_FILES", 1)
    monkeypatch.setattr(scan, "MAX_KEPT_ARRAYS", 2)
    client = new_client(services)
    client.create()
    client.append((1, "a"))
    metadata, cache, rows = load_current_table(services, ("ns",), "t").metadata, ScanCache(), list_rows(services)
    for field_id, type_ in metadata.schema().leaves().items():
        (found,) = ManifestScanner(cache, services.database, metadata).read(rows, {field_id: type_})
        assert field_id in found.bounds
    with services.database.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM duckicelake_scan_array").fetchall() == [(2,)]
