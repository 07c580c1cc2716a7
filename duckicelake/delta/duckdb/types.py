"""PURE. Columns of Delta tables for DuckDB: types, and expressions that turn what files have into what tables have."""

from typing import Final

from duckicelake.delta.log.schema import DeltaArray, DeltaDecimal, DeltaField, DeltaMap, DeltaPrimitive, DeltaStruct
from duckicelake.delta.log.schema import DeltaType as Type
from duckicelake.errors import UnsupportedError

_PRIMITIVES: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "variant": "VARIANT",
    "void": '"NULL"',
}
_INSTANT: Final = "timestamp"


def quote_text(text: str) -> str:
    """Quote a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Quote a name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def format_pointer(name: str) -> str:
    """Format a key of a JSON object for DuckDB, whatever characters it has."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def format_type(kind: Type, *, naive: bool = False, physical: bool = True) -> str:
    """Format DuckDB's name of a type. naive: instants in files are INT96, which DuckDB reads without a zone.

    Fields have their names in files, or with `physical=False` those of the table.
    """
    match kind:
        case DeltaPrimitive():
            return _format_primitive(kind.name, naive=naive)
        case DeltaDecimal():
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case DeltaArray():
            return f"{format_type(kind.element, naive=naive, physical=physical)}[]"
        case DeltaMap():
            inner = (format_type(part, naive=naive, physical=physical) for part in (kind.key, kind.value))
            return f"MAP({', '.join(inner)})"
        case DeltaStruct():
            fields = (
                f"{quote_name(field.physical_name if physical else field.name)} "
                f"{format_type(field.type, naive=naive, physical=physical)}"
                for field in kind.fields
            )
            return f"STRUCT({', '.join(fields)})"


def _format_primitive(name: str, *, naive: bool) -> str:
    if naive and name == _INSTANT:
        return "TIMESTAMP"
    if name not in _PRIMITIVES:
        raise UnsupportedError("delta-features", f"DuckDB has no type for Delta's {name}")
    return _PRIMITIVES[name]


def has_instants(kind: Type) -> bool:
    """Return whether the type contains timestamps with a zone."""
    match kind:
        case DeltaPrimitive():
            return kind.name == _INSTANT
        case DeltaArray():
            return has_instants(kind.element)
        case DeltaMap():
            return has_instants(kind.key) or has_instants(kind.value)
        case DeltaStruct():
            return any(has_instants(field.type) for field in kind.fields)
    return False


def build_expression(source: str, kind: Type, *, naive: bool = False, depth: int = 0) -> str:
    """Build the table's value from the file's: nested fields get their names, instants their zone."""
    if not _has_other_form(kind, naive=naive):
        return source
    match kind:
        case DeltaArray():
            item = f"x{depth}"
            inner = build_expression(item, kind.element, naive=naive, depth=depth + 1)
            return f"list_transform({source}, lambda {item}: {inner})"
        case DeltaMap():
            return _build_map_expression(source, kind, naive=naive, depth=depth)
        case DeltaStruct():
            return _build_struct_expression(source, kind, naive=naive, depth=depth)
    return f"timezone('UTC', {source})"


def _build_map_expression(source: str, kind: DeltaMap, *, naive: bool, depth: int) -> str:
    item = f"x{depth}"
    key = build_expression(f"{item}.key", kind.key, naive=naive, depth=depth + 1)
    value = build_expression(f"{item}.value", kind.value, naive=naive, depth=depth + 1)
    entries = f"list_transform(map_entries({source}), lambda {item}: struct_pack(key := {key}, value := {value}))"
    return f"CASE WHEN {source} IS NOT NULL THEN map_from_entries({entries}) END"


def _build_struct_expression(source: str, kind: DeltaStruct, *, naive: bool, depth: int) -> str:
    fields = ", ".join(
        f"{quote_name(field.name)} := {_build_field(source, field, naive=naive, depth=depth)}" for field in kind.fields
    )
    return f"CASE WHEN {source} IS NOT NULL THEN struct_pack({fields}) END"


def _build_field(source: str, field: DeltaField, *, naive: bool, depth: int) -> str:
    return build_expression(
        f"struct_extract({source}, {quote_text(field.physical_name)})", field.type, naive=naive, depth=depth
    )


def _has_other_form(kind: Type, *, naive: bool) -> bool:
    match kind:
        case DeltaPrimitive():
            return naive and kind.name == _INSTANT
        case DeltaArray():
            return _has_other_form(kind.element, naive=naive)
        case DeltaMap():
            return _has_other_form(kind.key, naive=naive) or _has_other_form(kind.value, naive=naive)
        case DeltaStruct():
            return any(
                field.name != field.physical_name or _has_other_form(field.type, naive=naive) for field in kind.fields
            )
    return False
