"""What the base installation lacks is imported late: each module that imports such a library is listed here."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow
import pytest

from duckicelake import extras
from duckicelake.errors import MissingExtraError
from duckicelake.extras import EXTRAS, DeferredModule, import_extra
from tests.test_imports import MODULES, PACKAGE, tree_of
from tests.test_packaging import PROJECT

STORES_OF_S3 = {
    f"storage/{name}.py"
    for name in ("connections", "s3", "s3_buckets", "s3_errors", "s3_uploads", "probe", "signer", "sts_vendor")
}
IMPORTED_LATE = {
    "boto3": {"storage/s3.py", "storage/signer.py", "storage/sts_vendor.py"},
    "botocore": STORES_OF_S3,
    "duckdb_extensions": {"file_import/source_rows.py", "pipeline/duckdb_lake.py", "shell/local_duckdb.py"},
    "keyring": set(),  # by its name
    "mcp": {"mcp/answers.py", "mcp/protocol.py", "mcp/transport.py"},
    "numpy": {
        f"bridge/scan/{name}.py"
        for name in ("bounds", "column_metrics", "explanation", "manifests", "partitions", "texts")
    }
    | {"catalog/scan_manifests.py", "catalog/scan_pages.py"}
    | {"other_catalogs/parquet_copy.py", "other_catalogs/row_deletes.py", "rewrites/theta.py"},
    "obstore": {
        f"storage/{name}.py"
        for name in ("azure", "bucket_store", "connections", "failed_requests", "gcs", "s3_buckets")
    }
    | {"other_catalogs/hadoop_source.py"},
    "opentelemetry": {"tracing/spans.py"},
    "prompt_toolkit": {"shell/prompt.py"},
    "pyarrow": {
        *("constraints/duckdb_check.py", "delta/export/field_names.py", "delta/log/encoder.py", "delta/log/files.py"),
        *("file_import/data_files.py", "file_import/merge.py", "pipeline/sensor_bench.py"),
        *("pyiceberg_v3/rows.py", "query/result_formats.py", "query/worker.py"),
        *("other_catalogs/parquet_copy.py", "other_catalogs/row_deletes.py", "other_catalogs/stored_rows.py"),
        *("rewrites/theta.py", "row_changes/worker.py"),
        *(
            f"rows/{name}.py"
            for name in ("arrow_rows", "arrow_values", "columns", "files", "layout", "limits", "row_batch")
        ),
    },
    "pyiceberg": {
        *("other_catalogs/comparison.py", "other_catalogs/pyiceberg_source.py", "pipeline/sensor_bench.py"),
        "other_catalogs/hive_source.py",
        *("other_catalogs/parquet_copy.py", "other_catalogs/row_deletes.py", "other_catalogs/stored_rows.py"),
        *(
            f"file_import/{name}.py"
            for name in (
                "bad_rows",
                "column_types",
                "data_files",
                "file_columns",
                "load_place",
                "fits",
                "load",
                "merge",
                "source_rows",
                "table_columns",
            )
        ),
        *(f"pyiceberg_v3/{name}.py" for name in ("commit", "manifest_io", "rows")),
    },
    "pyspark": set(),
    "zstandard": set(),  # by its name
}
"""The modules that import libraries of extras."""
DEFERRED = {library: modules for library, modules in IMPORTED_LATE.items() if library in EXTRAS}
NOT_OF_THE_SERVER = (
    *("file_import/", "other_catalogs/", "pipeline/", "pyiceberg_v3/"),
    *("query/result_formats.py", "query/worker.py", "row_changes/worker.py"),
)
"""They run in programs that have the library, or in a process that the server starts after a look for it."""


def imported_libraries(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


def test_modules_that_import_libraries_of_extras_are_listed() -> None:
    found: dict[str, set[str]] = {library: set() for library in IMPORTED_LATE}
    for path in MODULES:
        for library in set(imported_libraries(path)) & IMPORTED_LATE.keys():
            found[library].add(path.relative_to(PACKAGE).as_posix())
    found["pyspark"].clear()  # jobs of the pipeline import it, each in its functions (test_imports)
    assert found == IMPORTED_LATE


def test_base_needs_no_library_of_an_extra() -> None:
    names = {re.split(r"[^\w-]", dependency)[0].replace("-", "_") for dependency in PROJECT["dependencies"]}
    assert names & IMPORTED_LATE.keys() == set()


def test_every_message_names_an_extra_that_brings_the_library() -> None:
    for library, (extra, _) in EXTRAS.items():
        assert any(line.startswith(library) for line in PROJECT["optional-dependencies"][extra])
    texts = "".join(path.read_text() for path in MODULES)
    assert set(re.findall(r"pip install 'duckicelake\[(\w+)\]'", texts)) <= set(PROJECT["optional-dependencies"])


@pytest.mark.commands
@pytest.mark.parametrize("library", DEFERRED)
def test_server_imports_without_the_library(library: str) -> None:
    """None in `sys.modules` is what Python itself takes for a module that there isn't."""
    modules = sorted(name for name in DEFERRED[library] if not name.startswith(NOT_OF_THE_SERVER))
    names = [name.removesuffix(".py").replace("/", ".") for name in modules]
    script = f"import sys; sys.modules[{library!r}] = None\n" + "\n".join(
        f"import duckicelake.{name}" for name in names
    )
    subprocess.run([sys.executable, "-c", f"{script}\nimport duckicelake.cli.serve.server"], check=True)


def test_deferred_module_becomes_the_module() -> None:
    module = DeferredModule("pyarrow")
    assert module.int32 is pyarrow.int32
    assert type(module) is ModuleType
    assert module.lib is pyarrow.lib


def test_missing_library_is_named_with_its_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> ModuleType:
        raise ModuleNotFoundError(name, name="pyarrow")

    monkeypatch.setattr(extras, "import_module", import_module)
    for access in (lambda: import_extra("pyarrow.compute"), lambda: DeferredModule("pyarrow").int32):
        with pytest.raises(MissingExtraError, match=r"pip install 'duckicelake\[arrow\]'"):
            access()
