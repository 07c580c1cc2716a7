"""Files of other columns than the table's are refused: by metrics always, by footers where the table asks for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import DataFile
from tests.support.client import SCHEMA, Client, Draft, Json, append, local, set_properties

STRICT = {"schema.enforcement": "strict"}
REQUIRED: Json = {**SCHEMA, "fields": [{**SCHEMA["fields"][0], "required": True}, SCHEMA["fields"][1]]}
NESTED: Json = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "decimal(9, 2)", "required": False},
        {
            "id": 2,
            "name": "s",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 3, "name": "day", "type": "date", "required": False}]},
        },
    ],
}


def field(name: str, kind: pa.DataType, field_id: int | None) -> pa.Field:
    return pa.field(name, kind, metadata=None if field_id is None else {"PARQUET:field_id": str(field_id)})


def commit(client: Client, *fields: pa.Field, **changes: Any) -> Json:
    """Commit a file of one row of nulls with these columns; `changes` are of its entry."""
    draft = Draft(client.metadata())
    path = f"{draft.metadata['location']}/data/{draft.snapshot_id}.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{}], pa.schema(fields)), local(path))
    plain = draft.data_file([(1, "x")])
    file: DataFile = replace(
        plain, **{"file_path": path, "file_size_in_bytes": local(path).stat().st_size, "record_count": 1, **changes}
    )
    return client.commit(draft.body([draft.manifest([file]), *draft.parent_manifests]))


ID, NAME = field("id", pa.int64(), 1), field("name", pa.string(), 2)


def test_metrics_of_columns_that_the_table_never_had_are_refused(client: Client) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match=r"has metrics of field 7, but the table's columns end at field 2"):
        commit(client, ID, NAME, value_counts={1: 1, 7: 1})
    commit(client, ID, NAME, value_counts={1: 1, 2_147_483_540: 1})


def test_nulls_in_a_required_column_are_refused(client: Client) -> None:
    client.create(schema=REQUIRED)
    with pytest.raises(InvalidRequestError, match="has 1 row without a value of id, which is required"):
        commit(client, ID, NAME, null_value_counts={1: 1, 2: 0})
    client.commit(append(client.metadata(), (1, None)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([ID, NAME, field("more", pa.int32(), 3)], r"its column more \(field 3\) is none of the table's"),
        ([field("id", pa.string(), 1), NAME], "its column id is stored as VARCHAR, but id is long"),
        ([field("name", pa.float64(), 2), ID], "its column name is stored as DOUBLE, but name is string"),
        ([NAME], "it has no column id, which is required"),
        ([field("id", pa.int64(), None), field("nick", pa.string(), None)], r"nick \(no field id\) is none"),
        ([field("id", pa.struct([field("a", pa.int32(), 9)]), 1)], r"its column id\.a \(field 9\) is none"),
    ],
)
def test_footer_of_other_columns_is_refused_where_the_table_is_strict(
    client: Client, fields: list[pa.Field], said: str
) -> None:
    client.create(schema=REQUIRED, properties=STRICT)
    with pytest.raises(InvalidRequestError, match=said):
        commit(client, *fields, value_counts=None, null_value_counts=None)
    client.commit(set_properties(**{"schema.enforcement": "metrics"}))
    commit(client, *fields, value_counts=None, null_value_counts=None)


def test_footers_that_fit_are_taken_with_renamed_and_promoted_columns(client: Client) -> None:
    client.create(properties=STRICT)
    commit(client, field("key", pa.int32(), 1), value_counts=None, null_value_counts=None)
    commit(client, field("ID", pa.int64(), None), field("name", pa.string(), None))
    assert len(client.append((1, "a"))["metadata"]["snapshots"]) == 3


def test_parts_of_structs_and_decimals_are_looked_at(client: Client) -> None:
    client.create(schema=NESTED, properties=STRICT)
    inside = field("s", pa.struct([field("day", pa.date32(), 3)]), 2)
    empty: dict[str, Any] = dict.fromkeys(("value_counts", "null_value_counts", "lower_bounds", "upper_bounds"))
    commit(client, field("id", pa.decimal128(5, 2), 1), inside, **empty)
    for kind in (pa.decimal128(9, 3), pa.decimal128(12, 2)):
        with pytest.raises(InvalidRequestError, match="is stored as DECIMAL"):
            commit(client, field("id", kind, 1), inside, **empty)
    with pytest.raises(InvalidRequestError, match=r"s\.day is stored as INTEGER, but s\.day is date"):
        commit(client, field("s", pa.struct([field("day", pa.int32(), 3)]), 2), **empty)


def test_files_that_a_strict_table_cannot_look_into_are_refused(client: Client) -> None:
    client.create(properties=STRICT)
    with pytest.raises(InvalidRequestError, match="does not exist: upload it before"):
        commit(client, ID, file_path=f"{client.metadata()['location']}/data/none.parquet")
    other = Path(local(client.metadata()["location"]), "data", "text.parquet")
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("no Parquet at all")
    with pytest.raises(InvalidRequestError, match="can't be read as Parquet"):
        commit(client, ID, file_path=f"file://{other}")


def test_other_words_for_strictness_are_refused(client: Client) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match="write strict or metrics"):
        client.commit(set_properties(**{"schema.enforcement": "yes"}))
    with pytest.raises(InvalidRequestError, match="write strict or metrics"):
        client.create("u", properties={"schema.enforcement": "on"})
