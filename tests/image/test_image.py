"""The image: what is in it, how closed it runs, that it serves a lake, and what it says where it can't."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake import __version__
from scripts.backends_job.stack import Backends
from tests.image.conftest import IMAGE, START_SECONDS, Container, podman
from tests.support.waits import wait_until

pytestmark = [pytest.mark.image, pytest.mark.timeout(600), pytest.mark.usefixtures("image")]
EMBEDDED = "localhost/duckicelake-embedded"
MAX_IMAGE_BYTES = 250_000_000
SERVE_NEW = ("serve", "--create")
USER = 10001
STOP_SECONDS = 40
"""SIGTERM to the end: DUCKICELAKE_SHUTDOWN_SECONDS and 8 seconds, rounded up."""
Make = Callable[..., Container]


def test_image_is_small_and_starts_as_no_root() -> None:
    size, user = podman("image", "inspect", "--format", "{{.Size}} {{.User}}", IMAGE).stdout.split()
    assert int(size) <= MAX_IMAGE_BYTES
    assert user == f"{USER}:{USER}"


def test_image_has_no_shell_no_installer_and_no_program_that_lends_rights(container: Make) -> None:
    code = (
        "import os; found = [os.path.join(d, f) for d, _, fs in os.walk('/') if not d.startswith(('/proc', '/sys')) "
        "for f in fs if f in ('sh', 'bash', 'dash', 'pip', 'apt', 'dpkg') and '/usr/bin' in d "
        "or not os.path.islink(os.path.join(d, f)) and os.lstat(os.path.join(d, f)).st_mode & 0o6000]; print(found)"
    )
    assert container("--entrypoint", "python", command=("-c", code)).run().stdout == "[]\n"


def test_image_has_the_version_of_the_source(container: Make) -> None:
    assert __version__ in container(command=("--version",)).run().stdout


def test_lake_on_s3_is_written_and_read_from_outside_and_kept(container: Make, backends: Backends) -> None:
    server = container(command=SERVE_NEW, **backends.environment())
    server.start()
    keys = {
        "s3.endpoint": backends.minio.endpoint,
        "s3.access-key-id": backends.minio.access_key,
        "s3.secret-access-key": backends.minio.secret_key,
    }
    birds = pa.table({"name": ["penguin", "duck"], "legs": pa.array([2, 2], pa.int32())})
    catalog = RestCatalog("lake", uri=server.uri, **keys)
    catalog.create_namespace("zoo")
    table = catalog.create_table("zoo.birds", birds.schema)
    table.append(birds)
    table.delete("name = 'duck'")

    assert server.python("import os; print(os.getuid(), os.getgid())") == f"{USER} {USER}"
    for place in ("/", "/opt/duckicelake", "/data", "/etc"):
        refused = server.python(f"open('{place}/x', 'w')")
        assert refused.startswith(("OSError: [Errno 30]", "PermissionError")), (place, refused)
    assert server.python("print(open('/proc/1/status').read().split('CapEff:')[1].split()[0])") == "0" * 16
    assert server.python("open('/tmp/x', 'w'); print('written')") == "written"
    assert podman("healthcheck", "run", server.name).returncode == 0

    begun = time.monotonic()
    podman("stop", "--time", str(STOP_SECONDS + 20), server.name)
    assert time.monotonic() - begun < STOP_SECONDS
    assert server.inspect("{{.State.ExitCode}}") == "0"
    assert podman("start", server.name).returncode == 0
    wait_until(server.is_ready, START_SECONDS)
    read = RestCatalog("lake", uri=server.uri, **keys).load_table("zoo.birds").scan().to_arrow()
    assert read.to_pylist() == [{"name": "penguin", "legs": 2}]


def test_embedded_postgres_keeps_a_lake_in_the_volume_and_answers_sql(container: Make, tmp_path: Path) -> None:
    if podman("image", "exists", EMBEDDED).returncode != 0:
        pytest.skip(
            f"there is no {EMBEDDED}: TAG={EMBEDDED} scripts/image build POSTGRES=embedded EXTRAS=s3,arrow,queries"
        )
    os.chown(tmp_path, USER, USER)
    server = container("--volume", f"{tmp_path}:/data", image=EMBEDDED)
    server.start()
    with httpx.Client(base_url=server.uri) as http:
        http.post("/v1/namespaces", json={"namespace": ["zoo"]}).raise_for_status()
        fields = [{"id": 1, "name": "name", "type": "string", "required": False}]
        table = {"name": "birds", "schema": {"type": "struct", "fields": fields}}
        http.post("/v1/namespaces/zoo/tables", json=table).raise_for_status()
        http.post("/v1/namespaces/zoo/tables/birds/rows", json=[{"name": "duck"}]).raise_for_status()
    assert podman("stop", "--time", str(STOP_SECONDS + 20), server.name).returncode == 0
    assert podman("start", server.name).returncode == 0
    wait_until(server.is_ready, START_SECONDS)
    asked = {"sql": "SELECT name FROM zoo.birds"}
    assert "duck" in httpx.post(f"{server.uri}/sql/v1/query", json=asked, timeout=60).raise_for_status().text


def test_health_check_fails_where_no_server_answers(container: Make) -> None:
    asked = container("--entrypoint", "python", command=("-IS", "/opt/duckicelake/healthcheck.py")).run()
    assert asked.returncode == 1
    assert asked.stdout.startswith("no answer at port ")


def test_lake_in_a_volume_is_served_by_whichever_user_owns_it(
    container: Make, backends: Backends, tmp_path: Path
) -> None:
    os.chown(tmp_path, 12345, 0)
    server = container(
        *("--user", "12345:0", "--volume", f"{tmp_path}:/data"),
        command=SERVE_NEW,
        DUCKICELAKE_DATABASE_URL=backends.database_url,
        DUCKICELAKE_WAREHOUSE="/data/warehouse",
    )
    server.start()
    RestCatalog("lake", uri=server.uri).create_namespace("zoo")
    assert (tmp_path / "warehouse" / ".duckicelake-lake").stat().st_uid == 12345


def test_database_that_is_not_set_is_named(container: Make) -> None:
    assert "set DUCKICELAKE_DATABASE_URL to a Postgres 15 or newer" in container().refuse()


def test_warehouse_that_is_not_set_is_named(container: Make, backends: Backends) -> None:
    assert "Set DUCKICELAKE_WAREHOUSE" in container(DUCKICELAKE_DATABASE_URL=backends.database_url).refuse()


def test_database_that_does_not_answer_is_named(container: Make, backends: Backends) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    settings = backends.environment() | {"DUCKICELAKE_DATABASE_URL": f"postgresql://me:secret@127.0.0.1:{port}/lake"}
    line = container(**settings).refuse()
    assert "correct DUCKICELAKE_DATABASE_URL" in line
    assert "secret" not in line


def test_volume_of_another_user_is_named(container: Make, backends: Backends, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    line = container(
        *("--volume", f"{tmp_path}:/data"),
        command=SERVE_NEW,
        DUCKICELAKE_DATABASE_URL=backends.database_url,
        DUCKICELAKE_WAREHOUSE="/data/warehouse",
    ).refuse()
    assert "/data/warehouse" in line
    assert "Permission denied" in line


def test_volume_that_is_not_mounted_is_named(container: Make, backends: Backends) -> None:
    settings = {"DUCKICELAKE_DATABASE_URL": backends.database_url, "DUCKICELAKE_WAREHOUSE": "/data/warehouse"}
    assert "/data/warehouse" in container(command=SERVE_NEW, **settings).refuse()


def test_port_that_is_taken_is_named(container: Make, backends: Backends) -> None:
    server = container(command=SERVE_NEW, **backends.environment())
    with socket.create_server(("127.0.0.1", server.port)):
        assert f"port {server.port} of 127.0.0.1 is in use" in server.refuse()


@pytest.mark.parametrize("name", ["DUCKICELAKE_S3_SECRET_ACCESS_KEY", "DUCKICELAKE_OAUTH_KEYS"])
def test_secret_that_is_empty_is_named(container: Make, backends: Backends, name: str) -> None:
    assert f"{name} is set, but empty" in container(**(backends.environment() | {name: ""})).refuse()
