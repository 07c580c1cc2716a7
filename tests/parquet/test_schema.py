"""Names in Parquet schemas, as different writers nest them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet.schema import read_names

NESTED = pa.schema(
    [
        pa.field("a", pa.int32(), metadata={"PARQUET:field_id": "7"}),
        ("element", pa.list_(pa.struct([("key", pa.list_(pa.list_(pa.int8()))), ("list", pa.int8())]))),
        ("m", pa.map_(pa.string(), pa.map_(pa.int8(), pa.struct([("x", pa.int8())])))),
        ("after", pa.string()),
    ]
)
PATHS = [
    ("a",),
    ("element",),
    ("element", "element"),
    ("element", "element", "key"),
    ("element", "element", "key", "element"),
    ("element", "element", "key", "element", "element"),
    ("element", "element", "list"),
    ("m",),
    ("m", "key"),
    ("m", "value"),
    ("m", "value", "key"),
    ("m", "value", "value"),
    ("m", "value", "value", "x"),
    ("after",),
]


@pytest.mark.parametrize("compliant", [True, False])
def test_every_field_has_the_path_that_name_mappings_give_it(tmp_path: Path, compliant: bool) -> None:
    file = tmp_path / "f.parquet"
    pq.write_table(NESTED.empty_table(), file, use_compliant_nested_type=compliant)
    names = read_names(file)
    assert [name.path for name in names] == PATHS
    assert [name.field_id for name in names] == [7, *[None] * 13]
    assert [name.source for name in names] == [
        "a", "element", "list", "key", "list", "list", "list", "m", "key", "value", "key", "value", "x", "after",
    ]  # fmt: skip


def test_file_that_is_no_parquet_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(b"no")
    with pytest.raises(InvalidRequestError, match="Parquet"):
        read_names(tmp_path / "f.parquet")
