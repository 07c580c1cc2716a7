"""Other catalogs on this machine: Nessie, a Hive Metastore, and moto, which answers as AWS Glue does."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from xml.sax.saxutils import escape

from scripts.backends_job.minio import Minio
from scripts.backends_job.servers import HOST, Server, State
from scripts.engines_job.packages import EngineError, catalogs_home, hive_jars, java_home, nessie_jar

_QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_OPENED = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "nio", "util"))


class NessieServer(Server):
    """Without persistence. Its tables are below a folder of MinIO's, that one warehouse is in."""

    name = "nessie"

    def __init__(self, folder: Path, minio: Minio, warehouse: str) -> None:
        super().__init__(folder)
        self._minio = minio
        self._warehouse = warehouse

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        s3 = "nessie.catalog.service.s3.default-options"
        given = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": state.port,
            "quarkus.management.host": HOST,
            "quarkus.management.port": 0,
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": "prod",
            "nessie.catalog.warehouses.prod.location": self._warehouse,
            f"{s3}.endpoint": self._minio.endpoint,
            f"{s3}.region": self._minio.region,
            f"{s3}.path-style-access": "true",
            f"{s3}.access-key": "urn:nessie-secret:quarkus:keys",
            "keys.name": self._minio.access_key,
            "keys.secret": self._minio.secret_key,
        }
        flags = [f"-D{name}={value}" for name, value in given.items()]
        java = str(java_home() / "bin" / "java")
        return [java, *_QUICK, *flags, "-jar", str(nessie_jar())], {"HOME": str(self.folder)}

    def is_ready(self, state: State) -> bool:
        return _answers(f"http://{HOST}:{state.port}/iceberg/v1/config")


class HiveServer(Server):
    """A metastore of Hive 4, which lacks what older clients ask for."""

    name = "hive"

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        java = shutil.which("java")
        if java is None:
            raise EngineError("Java is missing, which runs Hive: apt-get install openjdk-17-jdk-headless")
        self.data.mkdir(exist_ok=True)
        given = {
            "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "metastore.schema.verification": "false",
            "metastore.thrift.bind.host": HOST,
            "metastore.warehouse.dir": str(self.data),
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        }
        lines = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in given.items()
        )
        (self.data / "metastore-site.xml").write_text(f"<configuration>{lines}</configuration>")
        flags = [*_QUICK, *_OPENED, f"-Dderby.stream.error.file={self.folder / 'derby.log'}", "-Dlog4j2.level=warn"]
        classes = f"{self.data}:{hive_jars()}/*"
        main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        return [java, *flags, "-cp", classes, main, "-p", str(state.port)], {"HOME": str(self.folder)}

    def is_ready(self, state: State) -> bool:
        try:
            socket.create_connection((HOST, state.port), timeout=2).close()
        except OSError:
            return False
        return True


class GlueServer(Server):
    """Amazon's Glue as moto imitates it, in memory."""

    name = "glue"

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(state.port)]
        return command, {"PYTHONPATH": str(catalogs_home()), "PATH": os.environ.get("PATH", os.defpath)}

    def is_ready(self, state: State) -> bool:
        return _answers(f"http://{HOST}:{state.port}/moto-api/data.json")


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


@contextmanager
def running_catalog(server: Server) -> Iterator[int]:
    """Run one while the block does; yield its port."""
    server.folder.mkdir(parents=True, exist_ok=True)
    try:
        yield server.up().port
    finally:
        server.down()
