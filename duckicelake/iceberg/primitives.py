"""Traits of Iceberg's primitive types (table spec, "Primitive Types", "Partition Transforms", Appendices A and D).

No other module of `iceberg/` switches on the name of a type: code reads the traits, and branches on the family.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

TypeFamily: TypeAlias = Literal[
    "boolean",
    "integer",
    "float",
    "decimal",
    "date",
    "time",
    "timestamp",
    "string",
    "uuid",
    "bytes",
    "geo",
    "variant",
    "unknown",
]
"""Types of one family have the same values in memory, and the same code handles them."""
_OPAQUE: Final[frozenset[TypeFamily]] = frozenset(("geo", "variant", "unknown"))
_COUNTED: Final[frozenset[TypeFamily]] = frozenset(("date", "time", "timestamp"))


@dataclass(frozen=True, slots=True)
class PrimitiveTypeTraits:
    """Facts of the spec about one primitive type, whatever its parameters.

    Attributes:
        size: bytes of a number in a bound, 0 for values that aren't stored as numbers.
        digits: decimals of a second in a time or timestamp.
        has_zone: whether the values are instants, written with an offset from UTC.
        avro: Avro's schema of a partition value, None where it depends on the parameters.
        transforms: names of the partition transforms that take the type.
        promotions: types that files of this one may be read as, with the first format version that allows it.
        first_version: the first format version that has the type.

    """

    name: str
    family: TypeFamily
    size: int = 0
    digits: int = 0
    has_zone: bool = False
    avro: Any = None
    transforms: frozenset[str] = frozenset()
    promotions: Mapping[str, int] = field(default_factory=dict)
    first_version: int = 1

    @property
    def is_opaque(self) -> bool:
        """Whether values have no order, hence no bounds, and no JSON form but null."""
        return self.family in _OPAQUE

    @property
    def is_counted(self) -> bool:
        """Whether values are integers counted from the epoch, or from midnight."""
        return self.family in _COUNTED

    @property
    def has_parameters(self) -> bool:
        """Whether the type's text has parameters, as in `decimal(9, 2)`; those of geo types are optional."""
        return self.avro is None


def _name_transforms(*names: str) -> frozenset[str]:
    return frozenset(("void", "identity", *names))


def _make_avro(kind: str, logical_type: str, **more: bool) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def _make_timestamp(name: str, unit: str, digits: int, *, has_zone: bool, first_version: int) -> PrimitiveTypeTraits:
    avro = _make_avro("long", f"timestamp-{unit}", **{"adjust-to-utc": has_zone})
    transforms = _name_transforms("bucket", "year", "month", "day", "hour")
    return PrimitiveTypeTraits(name, "timestamp", 8, digits, has_zone, avro, transforms, first_version=first_version)


_COMPARED: Final = _name_transforms()
_HASHED: Final = _name_transforms("bucket")
_CUT: Final = _name_transforms("bucket", "truncate")
_DAYS: Final = _name_transforms("bucket", "year", "month", "day")
_VOID: Final = frozenset(("void",))
_DATE: Final = _make_avro("int", "date")
_TIME: Final = _make_avro("long", "time-micros")
_UUID: Final = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}
_DATE_PROMOTIONS: Final = {"timestamp": 3, "timestamp_ns": 3}

_ROWS: Final = (
    PrimitiveTypeTraits("boolean", "boolean", avro="boolean", transforms=_COMPARED),
    PrimitiveTypeTraits("int", "integer", 4, avro="int", transforms=_CUT, promotions={"long": 1}),
    PrimitiveTypeTraits("long", "integer", 8, avro="long", transforms=_CUT),
    PrimitiveTypeTraits("float", "float", 4, avro="float", transforms=_COMPARED, promotions={"double": 1}),
    PrimitiveTypeTraits("double", "float", 8, avro="double", transforms=_COMPARED),
    PrimitiveTypeTraits("decimal", "decimal", transforms=_CUT),
    PrimitiveTypeTraits("date", "date", 4, avro=_DATE, transforms=_DAYS, promotions=_DATE_PROMOTIONS),
    PrimitiveTypeTraits("time", "time", 8, 6, avro=_TIME, transforms=_HASHED),
    _make_timestamp("timestamp", "micros", 6, has_zone=False, first_version=1),
    _make_timestamp("timestamptz", "micros", 6, has_zone=True, first_version=1),
    _make_timestamp("timestamp_ns", "nanos", 9, has_zone=False, first_version=3),
    _make_timestamp("timestamptz_ns", "nanos", 9, has_zone=True, first_version=3),
    PrimitiveTypeTraits("string", "string", avro="string", transforms=_CUT),
    PrimitiveTypeTraits("uuid", "uuid", avro=_UUID, transforms=_HASHED),
    PrimitiveTypeTraits("fixed", "bytes", transforms=_HASHED),
    PrimitiveTypeTraits("binary", "bytes", avro="bytes", transforms=_CUT),
    PrimitiveTypeTraits("geometry", "geo", avro="bytes", transforms=_VOID, first_version=3),
    PrimitiveTypeTraits("geography", "geo", avro="bytes", transforms=_VOID, first_version=3),
    PrimitiveTypeTraits("variant", "variant", avro="bytes", transforms=_VOID, first_version=3),
    PrimitiveTypeTraits("unknown", "unknown", avro="null", transforms=_COMPARED, first_version=3),
)
TRAITS: Final[Mapping[str, PrimitiveTypeTraits]] = {row.name: row for row in _ROWS}
"""The traits of every primitive type, by its name without parameters."""
OPAQUE_NAMES: Final[frozenset[str]] = frozenset(row.name for row in _ROWS if row.is_opaque)
"""Types without order, bounds and JSON form: for code that runs for each column of each file."""


def select_names(*families: TypeFamily) -> frozenset[str]:
    """Return the names of the types of these families, for tests of a name in code that runs often."""
    return frozenset(row.name for row in _ROWS if row.family in families)
