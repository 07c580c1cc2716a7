"""What PyIceberg does to rows, refs and history through the REST catalog."""

from collections.abc import Iterable
from random import Random

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable

from tests.model.choices import (
    foreign_file,
    some_ids,
    structs,
    with_ids,
)
from tests.model.lake import Lake
from tests.model.model import ID, Row, Table, Version
from tests.model.operations import Client, has_rows, has_snapshots
from tests.model.values import named

PYICEBERG = Client("pyiceberg")
IDENTITY = "{}"


def writable(table: Table) -> bool:
    """PyIceberg makes values of other transforms only with its Rust core, which isn't installed."""
    return all(transform == IDENTITY for _, transform in table.partitioned)


def writable_with_rows(table: Table) -> bool:
    return writable(table) and has_rows(table)


def arrow(loaded: IcebergTable, table: Table, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([named(table.columns, row) for row in rows], schema=loaded.schema().as_arrow())


@PYICEBERG.may(weight=5, when=writable)
def append(lake: Lake, table: Table, random: Random) -> None:
    rows = lake.new_rows(table, random.randint(1, 12), random)
    loaded = lake.iceberg(table, f"append {rows}")
    loaded.append(arrow(loaded, table, rows))
    table.main = table.main.having(*rows)


@PYICEBERG.may(weight=3, when=writable_with_rows)
def delete(lake: Lake, table: Table, random: Random) -> None:
    ids = some_ids(table.main, random)
    lake.iceberg(table, f"delete {ids}").delete(with_ids(ids))
    table.main = table.main.lacking(ids)


@PYICEBERG.may(weight=3, when=writable_with_rows)
def overwrite(lake: Lake, table: Table, random: Random) -> None:
    """Delete some rows and append others, two snapshots in one request."""
    ids, rows = some_ids(table.main, random), lake.new_rows(table, random.randint(1, 4), random)
    loaded = lake.iceberg(table, f"overwrite {ids} with {rows}")
    loaded.overwrite(arrow(loaded, table, rows), overwrite_filter=with_ids(ids))
    table.main = table.main.lacking(ids).having(*rows)


@PYICEBERG.may(weight=2, when=lambda table: writable_with_rows(table) and not structs(table))
def upsert(lake: Lake, table: Table, random: Random) -> None:
    """Not with structs, which PyIceberg doesn't compare, nor after the last snapshot's schema, which it reads."""
    loaded = lake.iceberg(table, "upsert")
    snapshot = loaded.current_snapshot()
    if snapshot is None or snapshot.schema_id != loaded.schema().schema_id:
        return
    known = [{**lake.new_row(table, random), ID: id_} for id_ in some_ids(table.main, random)[:4]]
    rows = known + lake.new_rows(table, random.randint(1, 3), random)
    lake.log.append(f"  {rows}")
    loaded.upsert(arrow(loaded, table, rows), join_cols=["id"])
    table.main = table.main.having(*rows)


@PYICEBERG.may(weight=2, when=lambda table: writable(table) and bool(table.partitioned))
def overwrite_partitions(lake: Lake, table: Table, random: Random) -> None:
    keys = [key for key, _ in table.partitioned]
    rows = lake.new_rows(table, random.randint(1, 3), random)
    replaced = {tuple(row[key] for key in keys) for row in rows}
    gone = [id_ for id_, row in table.rows.items() if tuple(row[key] for key in keys) in replaced]
    loaded = lake.iceberg(table, f"overwrite partitions with {rows}")
    loaded.dynamic_partition_overwrite(arrow(loaded, table, rows))
    table.main = table.main.lacking(gone).having(*rows)


@PYICEBERG.may(weight=2, when=writable_with_rows)
def several_updates(lake: Lake, table: Table, random: Random) -> None:
    """One transaction: a property, a delete and an append."""
    ids, rows = some_ids(table.main, random), lake.new_rows(table, random.randint(1, 3), random)
    loaded = lake.iceberg(table, f"transaction: delete {ids}, append {rows}")
    with loaded.transaction() as transaction:
        transaction.set_properties({"touched": str(rows[0][ID])})
        transaction.delete(with_ids(ids))
        transaction.append(arrow(loaded, table, rows))
    table.properties["touched"] = str(rows[0][ID])
    table.main = table.main.lacking(ids).having(*rows)


@PYICEBERG.may(when=lambda table: not table.partitioned and table.names_mean_one and not table.lacks_names)
def add_files(lake: Lake, table: Table, random: Random) -> None:
    """Not where a name has meant two columns: the table's name mapping has it once."""
    rows = lake.new_rows(table, random.randint(1, 12), random)
    loaded = lake.iceberg(table, f"add a file of {rows}")
    path = foreign_file(lake, table, rows, lake.data_folder(table))
    loaded.add_files([f"file://{path}"])
    table.main = table.main.having(*rows)
    table.files_without_ids = True


# Refs and history


@PYICEBERG.may(when=has_snapshots)
def create_tag(lake: Lake, table: Table, random: Random) -> None:
    if not (snapshots := lake.listed(table)):
        return
    target, name = random.choice(snapshots), f"tag{next(lake.numbers)}"
    lake.iceberg(table, f"tag {target} {name}").manage_snapshots().create_tag(target, name).commit()
    table.tags[name] = target


@PYICEBERG.may(when=has_snapshots)
def create_branch(lake: Lake, table: Table, random: Random) -> None:
    if not (snapshots := lake.listed(table)):
        return
    target, name = random.choice(snapshots), f"branch{next(lake.numbers)}"
    lake.iceberg(table, f"branch {target} {name}").manage_snapshots().create_branch(target, name).commit()
    table.branches[name] = usable(table, target)


def usable(table: Table, snapshot_id: int) -> Version:
    """A snapshot under the table's columns of today."""
    return table.snapshots[snapshot_id].shaped(table.columns)


@PYICEBERG.may(when=lambda table: bool(table.branches))
def remove_branch(lake: Lake, table: Table, random: Random) -> None:
    name = random.choice(sorted(table.branches))
    lake.iceberg(table, f"remove branch {name}").manage_snapshots().remove_branch(name).commit()
    del table.branches[name]


@PYICEBERG.may(when=lambda table: bool(table.tags))
def remove_tag(lake: Lake, table: Table, random: Random) -> None:
    name = random.choice(sorted(table.tags))
    lake.iceberg(table, f"remove tag {name}").manage_snapshots().remove_tag(name).commit()
    del table.tags[name]


@PYICEBERG.may(when=lambda table: bool(table.branches) and writable(table))
def append_to_branch(lake: Lake, table: Table, random: Random) -> None:
    name, rows = random.choice(sorted(table.branches)), lake.new_rows(table, random.randint(1, 4), random)
    loaded = lake.iceberg(table, f"append {rows} to {name}")
    loaded.append(arrow(loaded, table, rows), branch=name)
    table.branches[name] = table.branches[name].having(*rows)


@PYICEBERG.may(when=has_snapshots)
def set_current_snapshot(lake: Lake, table: Table, random: Random) -> None:
    if not (snapshots := lake.listed(table)):
        return
    target = random.choice(snapshots)
    lake.iceberg(table, f"set main to {target}").manage_snapshots().set_current_snapshot(target).commit()
    table.main = usable(table, target)


@PYICEBERG.may(when=has_snapshots)
def expire_snapshots(lake: Lake, table: Table, random: Random) -> None:
    loaded = lake.iceberg(table, "expire some snapshots")
    refs = {ref.snapshot_id for ref in loaded.refs().values()}
    loose_ones = [each.snapshot_id for each in loaded.snapshots() if each.snapshot_id not in refs]
    if loose_ones:
        gone = random.sample(loose_ones, random.randint(1, len(loose_ones)))
        loaded.maintenance.expire_snapshots().by_ids(gone).commit()
