"""A schema as DuckLake's columns and back; DuckDB reads the columns as they were meant."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.bridge.values.columns import to_columns, to_schema
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.schema import Schema, assign_fresh_ids
from duckicelake.iceberg.types import ListType, MapType, NestedField, PrimitiveType, StructType
from duckicelake.lake.model import Column

PRIMITIVES = [
    "boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "string", "uuid", "binary",
    "fixed[2]", "decimal(9, 2)", "decimal(38, 0)", "timestamp_ns", "timestamptz_ns", "variant", "geometry",
    "geometry(EPSG:3857)", "geography", "geography(OGC:CRS84, karney)",
]  # fmt: skip
DEFAULTS = {
    "boolean": [True, False], "int": [0, -(2**31)], "long": [2**63 - 1], "float": [0.1, -0.0], "double": [1e300, 0.1],
    "date": ["2024-02-29", "-0043-03-15", "+12024-01-01"], "time": ["23:59:59.999999", "00:00:00"],
    "timestamp": ["1969-12-31T23:59:59.999999", "2024-02-29T00:00"], "timestamptz": ["2024-02-29T01:02:03.5+00:00"],
    "timestamp_ns": ["2024-02-29T01:02:03.123456789"], "timestamptz_ns": ["1969-12-31T23:59:59.999999999+00:00"],
    "string": ["", "NULL", "it's", "CAST('x' AS VARCHAR)"], "uuid": ["00000000-0000-0000-0000-0000000000FF"],
    "binary": ["", "00FF275c"], "fixed[2]": ["00ff"], "decimal(9, 2)": ["-1.5", "0.00"], "decimal(38, 0)": ["9" * 38],
}  # fmt: skip
IDS = itertools.count(1)  # any unique ids: fresh ones are assigned at the end
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)


def fields(types):
    given_fields = st.lists(
        st.tuples(names, st.booleans(), types.flatmap(with_defaults), st.none() | names),
        min_size=1,
        max_size=3,
        unique_by=lambda f: f[0].lower(),
    )
    return given_fields.map(
        lambda each: tuple(NestedField(id=next(IDS), name=n, required=r, doc=d, **typed) for n, r, typed, d in each)
    )


def with_defaults(type_):
    """A type with an initial and a write default that it has."""
    if isinstance(type_, StructType):
        possible = st.sampled_from([None, {}])
    else:
        values = DEFAULTS.get(str(type_), ()) if isinstance(type_, PrimitiveType) else ()
        possible = st.sampled_from([None, *values])
    return st.fixed_dictionaries({"type": st.just(type_), "initial_default": possible, "write_default": possible})


def nested(types):
    structs = fields(types).map(lambda children: StructType(fields=children))
    lists = st.builds(lambda t, r: ListType(element_id=next(IDS), element=t, element_required=r), types, st.booleans())
    maps = st.builds(
        lambda k, v, r: MapType(key_id=next(IDS), key=k, value_id=next(IDS), value=v, value_required=r),
        types,
        types,
        st.booleans(),
    )
    return structs | lists | maps


UNKNOWN = PrimitiveType.parse("unknown")
NUMBERS = st.integers(0, 2)
any_type = st.recursive(st.sampled_from(PRIMITIVES).map(PrimitiveType.parse), nested, max_leaves=5)


def identifies(type_):
    """Whether a field of the type may identify rows: structs, floats and variants may not."""
    return isinstance(type_, PrimitiveType) and str(type_) not in {"float", "double", "variant"}


@st.composite
def schemas(draw):
    unknown = [
        NestedField(id=next(IDS), name=f"unknown {i}", required=False, type=UNKNOWN) for i in range(draw(NUMBERS))
    ]
    shuffled = draw(st.permutations([*draw(fields(any_type)), *unknown]))
    schema, _ = assign_fresh_ids(Schema(schema_id=0, fields=tuple(shuffled)))
    required = [f.id for f in schema.fields if f.required and identifies(f.type)]
    return schema.replace_fields(identifier_field_ids=tuple(required[:2]))


@given(schemas())
def test_schemas_survive_the_way_through_ducklakes_columns(schema):
    assert to_schema(to_columns(schema), 3, schema) == schema.replace_fields(schema_id=3)


@given(schemas())
def test_columns_alone_say_everything_but_what_ducklake_lacks(schema):
    columns = to_columns(schema)
    found = to_schema(columns, 0)

    assert [*map(essence, to_columns(found))] == [*map(essence, columns)]
    known = {field_id for field_id, field in schema.map_fields_by_id().items() if field.type != UNKNOWN}
    assert {c.column_id for c in columns} == known
    position = {column.column_id: index for index, column in enumerate(columns)}
    assert all(c.parent_column is None or position[c.parent_column] < position[c.column_id] for c in columns)


@given(schemas(), st.randoms())
def test_order_that_an_iceberg_client_gave_survives_a_change_by_duckdb(schema, chance):
    moved = schema.replace_fields(fields=tuple(chance.sample(schema.fields, len(schema.fields))))
    columns = sorted(to_columns(moved), key=lambda column: column.column_id)
    added = Column(1000, None, "added", "int32", nulls_allowed=True)

    found = to_schema([*columns, added], 1, moved)

    assert found.fields[:-1] == moved.fields
    assert found.fields[-1].name == "added"


@given(schemas(), st.data())
def test_default_that_duckdb_changes_is_followed_and_all_others_are_kept(schema, data):
    columns = to_columns(schema)
    position = data.draw(st.integers(0, len(columns) - 1))
    changed = list(columns)
    changed[position] = replace(columns[position], default_value="now()", default_value_type="expression")

    found = to_schema(changed, 1, schema).map_fields_by_id()

    for field_id, field in schema.map_fields_by_id().items():
        was_changed = field_id == columns[position].column_id
        assert found[field_id].initial_default == field.initial_default
        assert found[field_id].write_default == (None if was_changed else field.write_default)


def essence(column):
    return column.column_id, column.parent_column, column.column_name, column.column_type, column.comment


def test_columns_of_duckdbs_own_types_are_read_as_what_holds_them(lake):
    lake.run(
        "CREATE TABLE t (a TINYINT, b USMALLINT, c JSON, d STRUCT(x INTEGER[], y MAP(VARCHAR, STRUCT(z TIMESTAMP_S))),"
        " e DECIMAL(18,3) NOT NULL, f BLOB DEFAULT 'x'::BLOB, g INTEGER DEFAULT 7, h TIMESTAMP DEFAULT now())",
        "COMMENT ON COLUMN t.a IS 'it''s'",
    )

    schema = lake.metadata().schema()

    assert [str(field.type) for field in schema.fields][:3] == ["int", "int", "string"]
    assert [field.required for field in schema.fields] == [False] * 4 + [True] + [False] * 3
    assert schema.fields[0].doc == "it's"
    assert [field.write_default for field in schema.fields][6:] == [7, None]
    names = schema.full_names().values()
    assert {"d.x.element", "d.y.value.z"} <= set(names)


@pytest.mark.parametrize("type_", ["int128", "uint128", "interval", "timetz", "time_ns"])
def test_types_that_iceberg_lacks_are_refused_with_the_columns_name(type_):
    parent = Column(1, None, "s", "struct", nulls_allowed=True)

    with pytest.raises(UnsupportedError, match=r"s\.odd"):
        to_schema([parent, Column(2, 1, "odd", type_, nulls_allowed=True)], 0)


def test_schemas_that_would_keep_duckdb_from_loading_the_lake_are_refused():
    inner = StructType(fields=(NestedField(id=3, name="q", required=False, type=PrimitiveType.parse("int")),))
    outer = StructType(fields=(NestedField(id=2, name="inner", required=False, type=inner),))

    with pytest.raises(InvalidRequestError, match=r"'inner' has the id 2, lower than its parent's \(5\)"):
        to_columns(Schema(schema_id=0, fields=(NestedField(id=5, name="outer", required=False, type=outer),)))
    with pytest.raises(InvalidRequestError, match="no column"):
        to_columns(Schema(schema_id=0, fields=()))
