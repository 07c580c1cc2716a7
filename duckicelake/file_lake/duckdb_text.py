"""PURE. Build SQL by which DuckDB turns its values into the texts of inlined rows in Postgres.

DuckDB's own cast of a struct to text loses quotes within strings. These texts keep them.
"""

from typing import Any, Final

_BYTES: Final = frozenset({"varchar", "json", "blob"})
_NUMBERS: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint", "float", "double", "decimal"),
    }
)
"""Types whose texts need no quotes within lists, structs and maps."""


def build_text_sql(expression: str, type_: Any, *, has_bytes: bool) -> str:
    """Build the SQL for a top-level value as a text, or as bytes if `has_bytes` and Postgres keeps them as bytea.

    type_: the DuckDB type of the expression, a `DuckDBPyType`.
    """
    if has_bytes and type_.id in _BYTES:
        return f"CAST({expression} AS BLOB)" if type_.id == "blob" else f"encode(CAST({expression} AS VARCHAR))"
    if type_.id in ("struct", "list", "map", "array"):
        return f"CASE WHEN {expression} IS NOT NULL THEN {_build_part(expression, type_, 0)} END"
    return f"CAST({expression} AS VARCHAR)"


def _build_part(expression: str, type_: Any, depth: int) -> str:
    """Build the SQL for the text of a value within others. depth: of the lambdas around it, whose parameters differ."""
    if type_.id == "struct":
        return _or_null(expression, _build_struct(expression, type_, depth))
    if type_.id in ("list", "array"):
        (_, element), *_ = type_.children
        name = f"v{depth}"
        parts = f"list_transform({expression}, lambda {name}: {_build_part(name, element, depth + 1)})"
        return _or_null(expression, f"'[' || array_to_string({parts}, ', ') || ']'")
    if type_.id == "map":
        (_, key), (_, value) = type_.children
        name = f"v{depth}"
        pair = (
            f"{_build_part(f'{name}.key', key, depth + 1)} || '=' || {_build_part(f'{name}.value', value, depth + 1)}"
        )
        parts = f"list_transform(map_entries({expression}), lambda {name}: {pair})"
        return _or_null(expression, f"'{{' || array_to_string({parts}, ', ') || '}}'")
    text = f"CAST({expression} AS VARCHAR)"
    return _or_null(expression, text if type_.id in _NUMBERS else _build_quoted(text))


def _build_struct(expression: str, type_: Any, depth: int) -> str:
    """Bind the struct to a parameter once, so that the SQL doesn't repeat what computes it."""
    name = f"v{depth}"
    fields = [
        f"{_quote_literal(_build_quoted_name(field) + ': ')} || "
        + _build_part(f"struct_extract({name}, {_quote_literal(field)})", child, depth + 1)
        for field, child in type_.children
    ]
    text = " || ', ' || ".join(fields)
    return f"list_transform([{expression}], lambda {name}: '{{' || {text} || '}}')[1]"


def _or_null(expression: str, text: str) -> str:
    return f"CASE WHEN {expression} IS NULL THEN 'NULL' ELSE {text} END"


def _build_quoted(text: str) -> str:
    """Build the SQL for a text in single quotes, in which backslashes escape."""
    return f"'''' || replace(replace({text}, '\\', '\\\\'), '''', '\\''') || ''''"


def _build_quoted_name(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
