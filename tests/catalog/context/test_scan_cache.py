"""The cache of what plans read of manifests, shared by threads while manifests are forgotten."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from duckicelake.catalog import scan_manifests
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_manifests import ManifestScanner, ScannedManifest
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import scan
from tests.support.client import new_client

MANIFESTS = 6


@pytest.mark.parametrize("least_files", [1, 1_000], ids=["from Postgres", "made anew"])
@pytest.mark.parametrize("most_bytes", [1 << 20, 200, 1])
def test_bytes_stay_exact_while_threads_read_and_forget(
    services: Services, most_bytes: int, least_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_manifests, "_LEAST_KEPT_FILES", least_files)
    client = new_client(services)
    client.create()
    for number in range(MANIFESTS):
        client.append((number, f"n{number}"))
    metadata, cache = load_current_table(services, ("ns",), "t").metadata, ScanCache(most_bytes)
    with services.database.reading() as cursor:
        ids = [id_ for (id_,) in cursor.execute("SELECT manifest_id FROM duckicelake_manifest").fetchall()]
    columns: dict[int, PrimitiveType] = {
        id_: type_ for id_, type_ in metadata.schema().leaves().items() if isinstance(type_, PrimitiveType)
    }

    def read(seed: int) -> None:
        random = Random(seed)
        for _ in range(10):
            wanted = random.sample(ids, 3)
            some = {id_: columns[id_] for id_ in random.sample(sorted(columns), 1)}
            found = ManifestScanner(cache, services.database, metadata).read(wanted, some)
            assert [scanned.manifest.manifest_id for scanned in found] == wanted
            assert all((id_, str(type_)) in scanned.bounds for scanned in found for id_, type_ in some.items())

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, range(8)))
    kept = list(cache._kept.values())
    assert cache.nbytes == sum(scanned.nbytes for scanned in kept)
    assert len(kept) == 1 or cache.nbytes <= most_bytes
    assert most_bytes == 1 << 20 or len(kept) < len(ids)
    again = ScanCache(1 << 20)
    ManifestScanner(again, services.database, metadata).read(ids, {})
    assert again.statistics()["read"] == (0 if least_files == 1 else len(ids))


def test_what_cannot_be_kept_is_logged_once_and_counted(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scan_manifests, "_LEAST_KEPT_FILES", 1)
    client = new_client(services)
    client.create()
    for number in range(2):
        client.append((number, f"n{number}"))
    metadata = load_current_table(services, ("ns",), "t").metadata
    with services.database.transaction() as cursor:
        ids = [id_ for (id_,) in cursor.execute("SELECT manifest_id FROM duckicelake_manifest").fetchall()]
        cursor.execute("ALTER TABLE duckicelake_scan_array ADD CHECK (manifest_id < 0) NOT VALID")
    cache = ScanCache(1 << 20)
    for id_ in ids:
        assert len(ManifestScanner(cache, services.database, metadata).read([id_], {})) == 1
    assert cache.statistics()["unkept"] == len(ids)
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
        ManifestScanner(ScanCache(), services.database, metadata).read(ids, {})
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
    metadata = load_current_table(services, ("ns",), "t").metadata
    with services.database.reading() as cursor:
        ids = [id_ for (id_,) in cursor.execute("SELECT manifest_id FROM duckicelake_manifest").fetchall()]
    cache: ScanCache[ScannedManifest] = ScanCache()
    for field_id, type_ in metadata.schema().leaves().items():
        (found,) = ManifestScanner(cache, services.database, metadata).read(ids, {field_id: type_})
        assert (field_id, str(type_)) in found.bounds
    with services.database.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM duckicelake_scan_array").fetchall() == [(2,)]
