"""What PyIceberg does to tables and their columns through the REST catalog."""

from dataclasses import replace
from random import Random

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from tests.model.choices import (
    has_more_columns,
    has_room,
    loose,
    new_place,
    renamable,
    structs,
    widenable,
)
from tests.model.lake import FIELD_TYPES, NAMESPACES, Lake
from tests.model.model import Column, Table
from tests.model.operations import Client
from tests.model.operations_pyiceberg import IDENTITY
from tests.model.values import WIDER, some_value

PYICEBERG_TABLES = Client("pyiceberg")
TYPES: dict[str, IcebergType] = {
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "decimal(5, 2)": DecimalType(5, 2),
    "decimal(9, 2)": DecimalType(9, 2),
}


def iceberg_type(column: Column) -> IcebergType:
    if not column.children:
        return TYPES[column.type]
    fields = (NestedField(1000 + c.key, c.name, iceberg_type(c), required=False) for c in column.children)
    return StructType(*fields)


@PYICEBERG_TABLES.may(weight=2)
def create(lake: Lake, _: Table, random: Random) -> None:
    if place := new_place(lake, random):
        columns = lake.new_columns(random)
        fields = (NestedField(n, c.name, iceberg_type(c), required=False) for n, c in enumerate(columns, 1))
        by = [PartitionField(2, 1000, IdentityTransform(), "by")] if random.random() < 0.3 else []
        if columns[1].children:
            by = []
        version = random.choice([2, lake.format_version])
        lake.log.append(f"pyiceberg create {place} {columns} partitioned by {by} version {version}")
        properties = {"format-version": str(version)}
        lake.catalog.create_table(place, Schema(*fields), partition_spec=PartitionSpec(*by), properties=properties)
        table = lake.add_table(*place, columns, version)
        if by:
            table.begins_unpartitioned = False
            table.partition_by(((columns[1].key, IDENTITY),))


@PYICEBERG_TABLES.may(tables_needed=2)
def drop(lake: Lake, table: Table, random: Random) -> None:
    lake.log.append(f"pyiceberg drop {table.identifier}")
    if random.random() < 0.5:
        lake.catalog.drop_table(table.identifier)
    else:
        lake.catalog.purge_table(table.identifier)
    lake.tables.remove(table)


@PYICEBERG_TABLES.may()
def rename(lake: Lake, table: Table, random: Random) -> None:
    """Also into another namespace."""
    namespace = random.choice(NAMESPACES)
    if free := lake.free_names(namespace):
        name = random.choice(free)
        lake.log.append(f"pyiceberg rename {table.identifier} to {namespace}.{name}")
        lake.catalog.rename_table(table.identifier, (namespace, name))
        table.namespace, table.name = namespace, name


@PYICEBERG_TABLES.may()
def set_properties(lake: Lake, table: Table, random: Random) -> None:
    value = str(random.randint(1, 99))
    with lake.iceberg(table, f"set colour {value}").transaction() as transaction:
        transaction.set_properties({"colour": value})
    table.properties["colour"] = value


@PYICEBERG_TABLES.may(when=lambda table: "colour" in table.properties)
def remove_properties(lake: Lake, table: Table, random: Random) -> None:
    with lake.iceberg(table, "remove colour").transaction() as transaction:
        transaction.remove_properties("colour")
    del table.properties["colour"]


@PYICEBERG_TABLES.may(when=lambda table: table.format_version == 2)
def upgrade(lake: Lake, table: Table, random: Random) -> None:
    if lake.format_version > 2:
        with lake.iceberg(table, "upgrade to 3").transaction() as transaction:
            transaction.upgrade_table_version(3)
        table.format_version = 3


# Columns


@PYICEBERG_TABLES.may(weight=2, when=has_room)
def add_column(lake: Lake, table: Table, random: Random) -> None:
    column = lake.new_column(table.columns, random, unheard=table.files_without_ids)
    if table.format_version > 2 and column.type in {"int", "long", "string"}:
        column = replace(column, default=some_value(column, random, required=True))
    with lake.iceberg(table, f"add {column}").update_schema() as update:
        update.add_column(column.name, iceberg_type(column), default_value=column.default)
    table.reshape((*table.columns, column))


@PYICEBERG_TABLES.may(when=has_more_columns)
def drop_column(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(loose(table))
    with lake.iceberg(table, f"drop {column.name}").update_schema() as update:
        update.delete_column(column.name)
    table.forget(column)


@PYICEBERG_TABLES.may(when=lambda table: bool(renamable(table)))
def rename_column(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(renamable(table))
    name = lake.new_column(table.columns, random, unheard=table.files_without_ids).name
    with lake.iceberg(table, f"rename {column.name} to {name}").update_schema() as update:
        update.rename_column(column.name, name)
    table.change(replace(column, name=name))


@PYICEBERG_TABLES.may(when=lambda table: bool(widenable(table)))
def widen_type(lake: Lake, table: Table, random: Random) -> None:
    column = random.choice(widenable(table))
    wider = WIDER[column.type]
    with lake.iceberg(table, f"widen {column.name} to {wider}").update_schema() as update:
        update.update_column(column.name, TYPES[wider])
    table.change(replace(column, type=wider))


@PYICEBERG_TABLES.may(when=lambda table: len(table.columns) > 2)
def move_column(lake: Lake, table: Table, random: Random) -> None:
    """The model knows no order: DuckDB's next change of the column puts it back."""
    one, other = random.sample(table.columns, 2)
    with lake.iceberg(table, f"move {one.name} after {other.name}").update_schema() as update:
        update.move_after(one.name, other.name)


@PYICEBERG_TABLES.may(when=lambda table: bool(structs(table)))
def add_field(lake: Lake, table: Table, random: Random) -> None:
    parent = random.choice(structs(table))
    if len(parent.children) < 4:
        child = lake.new_column(parent.children, random, FIELD_TYPES, unheard=table.files_without_ids)
        with lake.iceberg(table, f"add {parent.name}.{child.name}").update_schema() as update:
            update.add_column((parent.name, child.name), iceberg_type(child))
        table.change(replace(parent, children=(*parent.children, child)))


@PYICEBERG_TABLES.may(when=lambda table: bool(structs(table)))
def rename_field(lake: Lake, table: Table, random: Random) -> None:
    parent = random.choice(structs(table))
    child, name = (
        random.choice(parent.children),
        lake.new_column(parent.children, random, unheard=table.files_without_ids).name,
    )
    with lake.iceberg(table, f"rename {parent.name}.{child.name} to {name}").update_schema() as update:
        update.rename_column((parent.name, child.name), name)
    children = tuple(replace(each, name=name) if each == child else each for each in parent.children)
    table.change(replace(parent, children=children))


@PYICEBERG_TABLES.may(when=lambda table: bool(table.required))
def make_optional(lake: Lake, table: Table, random: Random) -> None:
    column = table.main.column(random.choice(sorted(table.required)))
    with lake.iceberg(table, f"make {column.name} optional").update_schema() as update:
        update.make_column_optional(column.name)
    table.required -= {column.key}


@PYICEBERG_TABLES.may()
def partition(lake: Lake, table: Table, random: Random) -> None:
    """Add a key, or take all away."""
    known = {key for key, _ in table.partitioned}
    free = [column for column in table.columns if not column.children and column.key not in known]
    loaded = lake.iceberg(table, "change the partition spec")
    if table.partitioned:
        with loaded.update_spec() as update:
            for each in loaded.spec().fields:
                update.remove_field(each.name)
        table.partition_by(())
    elif free:
        column = random.choice(free)
        with loaded.update_spec() as update:
            update.add_field(column.name, IdentityTransform(), f"by{next(lake.numbers)}")
        table.partition_by(((column.key, IDENTITY),))
