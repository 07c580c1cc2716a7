"""Delete columns as DuckDB compares them: one type and one meaning, whatever the file that they are read from holds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.storage.parquet_fields import ParquetField

_SMALL: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"})
_READ_FROM: Final = {
    "BOOLEAN": frozenset({"BOOLEAN"}),
    "INTEGER": _SMALL,
    "BIGINT": _SMALL | {"UINTEGER", "BIGINT"},
    "FLOAT": frozenset({"FLOAT"}),
    "DOUBLE": frozenset({"FLOAT", "DOUBLE"}),
    "DATE": frozenset({"DATE"}),
    "TIME": frozenset({"TIME", "TIME WITH TIME ZONE"}),
    "TIMESTAMP": frozenset({"DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}),
    "TIMESTAMP_NS": frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NS"}),
    "TIMESTAMP WITH TIME ZONE": frozenset({"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}),
    "VARCHAR": frozenset({"VARCHAR", "JSON", "BLOB"}),
    "BLOB": frozenset({"BLOB", "VARCHAR"}),
    "UUID": frozenset({"UUID", "BLOB"}),
}
"""What a file may hold for each type: what was promoted, and what other writers than Iceberg's don't annotate."""
_DECIMAL: Final = re.compile(r"DECIMAL\(\d+, ?(\d+)\)")
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})
_FROM_TEXT: Final = {"BLOB": "unhex({})"}
_CONVERSIONS: Final = {("BLOB", "VARCHAR"): "decode({})", ("VARCHAR", "BLOB"): "encode({})"}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A delete column: its type as DuckDB spells it, and the ids of the structs it is in, outermost first."""

    field_id: int
    parents: tuple[int, ...]
    type: str

    @property
    def types(self) -> tuple[str, ...]:
        """The types of what is compared."""
        return (self.type, "BOOLEAN") if self.type in _FLOATS else (self.type,)

    def compared(self, value: str) -> tuple[str, ...]:
        """What is compared of a value, an expression; DuckDB alone would take -0.0 for 0.0."""
        return (value, f"({value} = 0 AND signbit({value}))") if self.type in _FLOATS else (value,)

    def read(self, field: ParquetField) -> str:
        """The column's value where a file has it; InvalidRequest if what it has is of another type."""
        if field.type is None or not self._reads(field.type):
            raise InvalidRequest(f"column {'.'.join(field.names)} is a {field.type or 'group'}, not a {self.type}")
        conversion = _CONVERSIONS.get((field.type, self.type), f"CAST({{}} AS {self.type})")
        return conversion.format(field.expression)

    def substitute(self, fields: Mapping[int, ParquetField], text: str) -> str:
        """The column's value where a file lacks it, from an expression of its text; null in a struct that is null."""
        value = f"CAST({_FROM_TEXT.get(self.type, '{}').format(text)} AS {self.type})"
        if not self.parents:
            return value
        struct = fields.get(self.parents[-1])
        return f"CASE WHEN {'false' if struct is None else f'{struct.expression} IS NOT NULL'} THEN {value} END"

    def _reads(self, type_: str) -> bool:
        wanted, found = _DECIMAL.fullmatch(self.type), _DECIMAL.fullmatch(type_)
        if wanted and found:
            return wanted[1] == found[1]
        return type_ in _READ_FROM.get(self.type, ())
