"""PURE. Column masks of Iceberg's read restrictions, in DuckDB's SQL."""

from collections.abc import Callable, Mapping
from typing import Final

from duckicelake.iceberg.primitives import TypeFamily
from duckicelake.iceberg.read_restrictions import Mask
from duckicelake.iceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name

MIN_SALT_BYTES: Final = 16
_FIXED_VALUES: Final[Mapping[TypeFamily, str]] = {
    "boolean": "false",
    "integer": "999999999",
    "float": "0",
    "decimal": "0",
    "string": "'XXXXXXXX'",
    "date": "'9999-12-31'",
    "time": "'00:00:00'",
    "uuid": "'00000000-0000-0000-0000-000000000000'",
    "bytes": "''",
}
"""The specification's value of each family of types but timestamps; it has to be cast."""
_HEX_DIGITS: Final = {"int": 8, "long": 16}


def write_mask(mask: Mask, column: str, kind: IcebergType, salt: bytes) -> str:
    """Write what DuckDB makes of a column.

    column: its name in SQL, quoted. kind: its type, which the mask fits (`check_mask`). salt: random bytes of this
    query, at least 16.
    """
    assert len(salt) >= MIN_SALT_BYTES
    type_name = format_type_name(DUCKDB, kind)
    masked = _WRITERS[mask](column, kind, salt)
    return f"CASE WHEN {column} IS NULL THEN CAST(NULL AS {type_name}) ELSE CAST({masked} AS {type_name}) END"


def _write_alphanum(text: str) -> str:
    letters = f"regexp_replace({text}, '[^0-9(),.@-]', 'x', 'g')"
    return f"regexp_replace({letters}, '[0-9]', 'n', 'g')"


def _write_first_4(column: str) -> str:
    return f"CASE WHEN length({column}) <= 4 THEN {column} ELSE left({column}, 4) || {_mask_rest(column, 5)} END"


def _mask_rest(column: str, first: int) -> str:
    return _write_alphanum(f"substr({column}, {first})")


def _write_last_4(column: str) -> str:
    hidden = _write_alphanum(f"left({column}, length({column}) - 4)")
    return f"CASE WHEN length({column}) <= 4 THEN {column} ELSE {hidden} || right({column}, 4) END"


def _write_truncated(unit: str, column: str, kind: IcebergType) -> str:
    """Truncate in UTC, whatever the session's zone."""
    is_zoned = isinstance(kind, PrimitiveType) and kind.traits.has_zone
    if not is_zoned:
        return f"date_trunc('{unit}', {column})"
    return f"make_timestamptz(epoch_us(date_trunc('{unit}', make_timestamp(epoch_us({column})))))"


def _write_fixed_value(column: str, kind: IcebergType) -> str:
    """Write the specification's value for a type, whole for a struct."""
    match kind:
        case StructType():
            members = (f"{_quote(part.name)}: {_write_fixed_value(column, part.type)}" for part in kind.fields)
            return f"{{{', '.join(members)}}}"
        case ListType():
            return "[]"
        case MapType():
            return "MAP {}"
        case PrimitiveType(name="fixed"):
            return f"unhex('{'00' * (kind.length or 0)}')"
    return f"CAST({_find_fixed_value(kind)} AS {format_type_name(DUCKDB, kind)})"


def _find_fixed_value(kind: PrimitiveType) -> str:
    if kind.traits.family != "timestamp":
        return _FIXED_VALUES[kind.traits.family]
    year = 2261 if kind.traits.digits == 9 else 9999
    return f"'{year}-12-31 00:00:00{'+00' if kind.traits.has_zone else ''}'"


def _write_hash(column: str, kind: IcebergType, salt: bytes) -> str:
    """Hash the bytes that the specification has for a type, behind the salt, and read the digest as the type."""
    assert isinstance(kind, PrimitiveType)
    digits = _HEX_DIGITS.get(kind.name)
    if digits is not None:
        value = f"unhex({_reverse_bytes(f'right(lpad(hex(CAST({column} AS BIGINT)), 16, {_ZERO}), {digits})', digits)})"
    else:
        value = f"encode({column})" if kind.name == "string" else column
    digest = f"sha256(unhex('{salt.hex()}') || {value})"
    if digits is None:
        return digest if kind.name == "string" else f"unhex({digest})"
    number = f"CAST(CAST('0x' || {_reverse_bytes(digest, digits)} AS UBIGINT) AS HUGEINT)"
    half, whole = 2 ** (4 * digits - 1), 2 ** (4 * digits)
    return f"(({number} + {half}) % {whole} - {half})"


_ZERO: Final = "'0'"


def _reverse_bytes(hex_text: str, digits: int) -> str:
    """Write the first digits of a text in base 16 with its bytes in reverse; the text is written once."""
    pairs = " || ".join(f"substr(h, {place}, 2)" for place in range(digits - 1, 0, -2))
    return f"list_extract(list_transform([{hex_text}], lambda h: {pairs}), 1)"


_Writer = Callable[[str, IcebergType, bytes], str]
_WRITERS: Final[Mapping[Mask, _Writer]] = {
    Mask.ALPHANUM: lambda column, _kind, _salt: _write_alphanum(column),
    Mask.FIXED_VALUE: lambda column, kind, _salt: _write_fixed_value(column, kind),
    Mask.NULL: lambda _column, _kind, _salt: "NULL",
    Mask.FIRST_4: lambda column, _kind, _salt: _write_first_4(column),
    Mask.LAST_4: lambda column, _kind, _salt: _write_last_4(column),
    Mask.YEAR: lambda column, kind, _salt: _write_truncated("year", column, kind),
    Mask.MONTH: lambda column, kind, _salt: _write_truncated("month", column, kind),
    Mask.SHA_256: lambda column, kind, _salt: _write_hash(column, kind, b""),
    Mask.SHA_256_LOCAL: _write_hash,
}


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
