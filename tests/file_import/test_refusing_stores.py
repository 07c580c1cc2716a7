"""A table's bucket that takes no files, or loses its answers: a load says so, leaves nothing, and runs again once."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.gc import find_orphans
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.storage.s3 import S3Store
from tests.storage.s3_proxy import BREAK_OFF, Proxy, Request, proxy_of
from tests.support.backends import Bucket
from tests.support.commands import invoke
from tests.support.s3_lakes import s3_lake
from tests.support.seams import fresh
from tests.support.servers import running

pytestmark = pytest.mark.commands
Spoil = Callable[[Request], int | None]
EVER = 2**62
ROWS = 20_000


@dataclass(frozen=True, slots=True)
class Refusing:
    """A served lake whose clients reach its bucket through a proxy; the server reaches the bucket itself."""

    services: Services
    proxy: Proxy
    uri: str

    def load(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        ran = invoke("load", *arguments, "--uri", self.uri, "--yes", "--json")
        assert ran.exit_code == code, ran.output
        found: dict[str, Any] = json.loads(ran.stdout if code == 0 else ran.stderr.splitlines()[-1])
        return found

    def list_orphans(self) -> list[str]:
        """List data files that no table has; a client's own manifests are always left to the server's cleaning."""
        found = (file.location for file in find_orphans(fresh(self.services), EVER))
        return [location for location in found if location.endswith(".parquet")]

    def count_snapshots(self) -> int:
        with self.services.database.reading() as cursor:
            ((count,),) = cursor.execute("SELECT count(*) FROM duckicelake_snapshot").fetchall()
        return int(count)


@pytest.fixture
def refusing(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Refusing]:
    with (
        proxy_of(bucket.minio.endpoint) as proxy,
        s3_lake(postgres, bucket) as opened,
        closing(S3Store(opened.policy.warehouse, bucket.options())) as store,
    ):
        client = {**opened.access.client, "s3.endpoint": f"{proxy.endpoint}/"}
        services = replace(opened, store=store, access=replace(opened.access, client=client))
        with running(create_app(services)) as uri:
            yield Refusing(services, proxy, uri)


def spoil_writes(status: int, *, also_deletes: bool = False) -> Spoil:
    methods = {"PUT", "POST", "DELETE"} if also_deletes else {"PUT", "POST"}

    def spoil(request: Request) -> int | None:
        is_delete = request.method == "POST" and "delete" in request.path.partition("?")[2]
        return status if request.method in methods and (also_deletes or not is_delete) else None

    return spoil


@pytest.mark.parametrize("exists", [True, False], ids=["a table that is there", "a new table"])
@pytest.mark.parametrize("kind", [403, 503, BREAK_OFF], ids=["denied", "busy", "answers lost"])
def test_load_into_a_store_that_takes_no_files(refusing: Refusing, tmp_path: Path, kind: int, exists: bool) -> None:
    first, file = tmp_path / "first.csv", tmp_path / "a.csv"
    first.write_text("id,x\n0,z\n")
    file.write_text("id,x\n" + "".join(f"{number},{number:x}\n" for number in range(ROWS)))
    if exists:
        refusing.load(str(first), "--table", "ns.t")
    before = refusing.count_snapshots()
    load = (str(file), "--table", "ns.t", "--run-id", "once")
    refusing.proxy.spoil = spoil_writes(kind)
    error = refusing.load(*load, code=1)["error"]
    refusing.proxy.spoil = lambda _: None
    assert "takes no files, nothing was committed" in error["message"], error
    assert refusing.count_snapshots() == before
    assert refusing.list_orphans() == []
    assert refusing.load(*load)["rows"] == ROWS
    assert refusing.load(*load)["result"] == "unchanged"
    assert refusing.count_snapshots() == before + 1
    assert refusing.list_orphans() == []


@pytest.mark.parametrize("refuses_deletes", [True, False], ids=["and deletes nothing", "and deletes"])
def test_files_before_the_refused_one_are_removed_or_orphans(
    refusing: Refusing, tmp_path: Path, refuses_deletes: bool
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,day\n" + "".join(f"{number},{number % 5}\n" for number in range(ROWS)))
    spoil = spoil_writes(403, also_deletes=refuses_deletes)
    lock, taken = Lock(), set[str]()

    def spoil_third(request: Request) -> int | None:
        """Take the first two files, of which each has several requests at the same time as others."""
        path, _, query = request.path.partition("?")
        with lock:
            if query == "uploads" and len(taken) < 2:
                taken.add(path)
        return None if path in taken and request.method != "DELETE" else spoil(request)

    load = (str(file), "--table", "ns.t", "--partition-by", "day", "--run-id", "once")
    refusing.proxy.spoil = spoil_third
    refusing.load(*load, code=1)
    refusing.proxy.spoil = lambda _: None
    left = refusing.list_orphans()
    assert len(left) == (2 if refuses_deletes else 0)
    assert refusing.load(*load)["rows"] == ROWS
    assert refusing.list_orphans() == left
