"""Names of partition fields: none is that of another column, and no two fields of a table's specs share one.

Java's library binds all specs to the current schema as it loads a table, and makes one struct of the fields of all
specs for metadata tables and merge-on-read.
"""

from collections.abc import Iterable, Sequence

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.partition import PartitionField, PartitionSpec
from duckicelake.iceberg.schema import Schema


def check_column_names(specs: Iterable[PartitionSpec], schema: Schema) -> bool:
    """Check that no partition field has the name of a column that it isn't made of; InvalidRequest otherwise.

    A field whose source has left the schema may have one, as in Java's library. Gives whether there is such a field:
    not all readers take it, so it needs another name.
    """
    columns, sources = schema.names(), schema.fields_by_id()
    clashing = [
        field for spec in specs for field in spec.fields if columns.get(field.name, field.source_id) != field.source_id
    ]
    for field in clashing:
        if field.source_id in sources:
            raise InvalidRequest(
                f"Cannot create identity partition sourced from different field in schema: {field.name} is a partition "
                f"field made of column {sources[field.source_id].name}; give the new column another name"
            )
    return bool(clashing)


def with_own_names(specs: Sequence[PartitionSpec], schema: Schema) -> tuple[PartitionSpec, ...]:
    """Give the specs with other names for fields that have a column's name or that of an earlier field.

    A field has one id and, where one of its names can't stay, one name in all specs: the newest, if that can.
    """
    columns = {name.lower(): field_id for name, field_id in schema.names().items()}
    taken: set[str] = set()
    changed: dict[int, str] = {}
    newest = {field.field_id: field for spec in sorted(specs, key=_spec_id) for field in spec.fields}
    for field_id, field in sorted(newest.items()):
        others = {name for name, column_id in columns.items() if column_id != field.source_id}
        names = {other.name.lower() for spec in specs for other in spec.fields if other.field_id == field_id}
        name = field.name
        if name.lower() in taken | others:
            name = _free_name(field, taken | columns.keys())
        if name != field.name or names & others:
            changed[field_id] = name
        taken.add(name.lower())
    if not changed:
        return tuple(specs)
    return tuple(_renamed(spec, changed) for spec in specs)


def _spec_id(spec: PartitionSpec) -> int:
    return spec.spec_id


def _free_name(field: PartitionField, taken: set[str]) -> str:
    """The name as Java's library would complete it: by the width, else by the field's id."""
    width = [] if field.transform.width is None else [f"{field.name}_{field.transform.width}"]
    name = next((name for name in (*width, f"{field.name}_{field.field_id}") if name.lower() not in taken), field.name)
    while name.lower() in taken:
        name += "_"
    return name


def _renamed(spec: PartitionSpec, names: dict[int, str]) -> PartitionSpec:
    fields = tuple(
        field.replaced(name=names[field.field_id]) if field.field_id in names else field for field in spec.fields
    )
    return spec if fields == spec.fields else spec.replaced(fields=fields)
