"""How each engine that is a library does what the abilities want.

Acts of PyIceberg, Polars and Daft are code, after the snippet of docs/clients.md: `catalog` is PyIceberg's, `answer`
what the test reads. Acts of iceberg-go and iceberg-rust are arguments of the programs in scripts/engines_job.
"""

from typing import Final

from tests.engines.compatibility.acts import Acts, Fails, Lacks

_LOAD: Final = "import pyarrow as pa\ntable = catalog.load_table('{table}')\n"
_NEW: Final = "pa.table({{'id': [{}], 'name': ['{}']}})"


def _build_rows(*rows: tuple[int, str]) -> str:
    ids, names = [number for number, _ in rows], [name for _, name in rows]
    return f"pa.table({{{{'id': {ids}, 'name': {names}}}}})"


EVE: Final = _build_rows((5, "Eve"))
SHOWN: Final = ".sort_by('id').to_pylist()"
_READ: Final = f"{_LOAD}answer = [(row['id'], row['name']) for row in table.scan({{}}).to_arrow(){SHOWN}]"

PYICEBERG: Final[Acts] = {
    "create": (
        "import pyarrow as pa\ncatalog.create_table('{table}', pa.schema([('id', pa.int64()), ('name', pa.string())]))",
    ),
    "read": (_READ.replace("{}", ""),),
    "append": (f"{_LOAD}table.append({EVE})",),
    "delete": (f"{_LOAD}table.delete('id = 2')",),
    "update": (f"{_LOAD}table.overwrite({_build_rows((2, 'Bea'))}, overwrite_filter='id = 2')",),
    "merge": (f"{_LOAD}table.upsert({_build_rows((2, 'Bea'), (6, 'Fay'))}, join_cols=['id'])",),
    "overwrite": (f"{_LOAD}table.overwrite({_build_rows((7, 'Gus'))})",),
    "time_travel": (_READ.replace("{}", "snapshot_id={snapshot}"),),
    "refs": (
        (
            f"{_LOAD}head = table.current_snapshot().snapshot_id\n"
            "with table.manage_snapshots() as manage:\n"
            "    manage.create_branch(head, 'side').create_tag(head, 'first')"
        ),
    ),
    "views": Lacks("reads no view's rows; PyIceberg 0.12 makes views"),
    "schema": (
        (
            f"{_LOAD}from pyiceberg.types import IntegerType\n"
            "with table.update_schema() as update:\n"
            "    update.add_column('legs', IntegerType()).rename_column('name', 'called')\n"
            "table.append(pa.table({{'id': [5], 'called': ['Eve'], 'legs': pa.array([2], pa.int32())}}))"
        ),
    ),
    "partitions": (
        f"{_LOAD}with table.update_spec() as update:\n    update.add_identity('name')\ntable.append({EVE})",
    ),
    "version_3": Fails(
        (
            (
                "import pyarrow as pa\n"
                "schema = pa.schema([('id', pa.int64()), ('name', pa.string())])\n"
                f"catalog.create_table('{{table}}', schema, properties={{{{'format-version': '3'}}}}).append({EVE})"
            ),
        ),
        "V3|version",
        "writes versions 1 and 2, but see [PyIceberg and format version 3](clients.md#pyiceberg-and-format-version-3)",
    ),
    "vectors": (_READ.replace("{}", ""),),
    "row_ids": Lacks("has no column of row ids"),
    "variant": Fails((f"{_LOAD}table.scan().to_arrow()",), "ariant|TableResponse", "has no type for variants"),
}
_FRAME: Final = "table = catalog.load_table('{table}')\n"
_ONE: Final = "{{'id': [5], 'name': ['Eve']}}"
_OTHER: Final = "{{'id': [7], 'name': ['Gus']}}"
_POLARS: Final = (
    "answer = polars.scan_iceberg(table, storage_options=table.io.properties{}).sort('id').collect().rows()"
)
_THROUGH: Final = "changes tables through PyIceberg"
POLARS: Final[Acts] = {
    "read": (_FRAME + _POLARS.format(""),),
    "append": (f"{_FRAME}polars.DataFrame({_ONE}).write_iceberg(table, mode='append')",),
    "overwrite": (f"{_FRAME}polars.DataFrame({_OTHER}).write_iceberg(table, mode='overwrite')",),
    "time_travel": (_FRAME + _POLARS.format(", snapshot_id={snapshot}"),),
    "vectors": (_FRAME + _POLARS.format(""),),
    "variant": Fails((_FRAME + _POLARS.format(""),), "ariant|TableResponse", "has no type for variants"),
    "row_ids": Lacks("has no column of row ids"),
    **dict.fromkeys(
        ("create", "delete", "update", "merge", "refs", "views", "schema", "partitions", "version_3"), Lacks(_THROUGH)
    ),
}
_DAFT: Final = "answer = [(row['id'], row['name']) for row in daft.read_iceberg(table{}).sort('id').to_pylist()]"
DAFT: Final[Acts] = {
    **POLARS,
    "read": (_FRAME + _DAFT.format(""),),
    "append": (f"{_FRAME}daft.from_pydict({_ONE}).write_iceberg(table, mode='append')",),
    "overwrite": (f"{_FRAME}daft.from_pydict({_OTHER}).write_iceberg(table, mode='overwrite')",),
    "time_travel": (_FRAME + _DAFT.format(", snapshot_id={snapshot}"),),
    "vectors": Fails((_FRAME + _DAFT.format(""),), "puffin", "can't read deletion vectors"),
    "variant": Fails((_FRAME + _DAFT.format(""),), "ariant|TableResponse", "has no type for variants"),
}
GO: Final[Acts] = {
    "create": ("create {t}",),
    "read": ("read {t}",),
    "append": ("append {t}",),
    "delete": ("delete {t}",),
    "update": Lacks("has no call that updates rows by a condition"),
    "merge": Lacks("has no call that merges rows"),
    "overwrite": ("overwrite {t}",),
    "time_travel": ("time_travel {t} {snapshot}",),
    "refs": ("refs {t}",),
    "views": Lacks("makes views; reads no view's rows"),
    "schema": ("schema {t}",),
    "partitions": ("partitions {t}",),
    "version_3": ("version_3 {t}",),
    "vectors": ("read {t}",),
    "row_ids": ("row_ids {t}",),
    "variant": Fails(("variant {t}",), "valid nested type", "can't read variants that DuckDB has shredded"),
}
_NO_ROW_CHANGES: Final = Lacks("only appends")
RUST: Final[Acts] = {
    "create": ("create {t}",),
    "read": ("read {t}",),
    "append": ("append {t}",),
    **dict.fromkeys(("delete", "update", "merge", "overwrite"), _NO_ROW_CHANGES),
    "time_travel": ("time_travel {t} {snapshot}",),
    "refs": Lacks("has no call that makes branches or tags"),
    "views": Lacks("has no views"),
    "schema": Lacks("adds and drops columns; has no call that renames one"),
    "partitions": Lacks("has no call that changes partitions"),
    "version_3": ("version_3 {t}",),
    "vectors": Fails(("read {t}",), "Invalid Parquet file", "can't read deletion vectors"),
    "row_ids": Fails(("row_ids {t}",), "Invalid Parquet file", "can't read deletion vectors"),
    "variant": Lacks("has no type for variants"),
}
