"""Reports of engines on scans and commits, as far as they say what was read (REST specification, ReportMetricsRequest).

Engines may send unknown metrics, metadata and kinds of predicates: these are ignored. Of filters only the names of
columns are kept, never a constant.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from duckicelake.iceberg.expressions import MAX_DEPTH, MAX_PREDICATES
from duckicelake.iceberg.model import Long, SpecModel

MAX_COLUMNS: Final = 1000
"""Column names stored of one report."""
MAX_REPORTED_NAME_CHARS: Final = 255
_RESERVED: Final = range(2**31 - 201, 2**31)
"""Ids of columns that tables don't have, such as `_file` and `_pos` (format specification, "Reserved Field IDs")."""


def select_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the different names, those too long and those beyond a number left out."""
    return tuple(name for name in dict.fromkeys(names) if 0 < len(name) <= MAX_REPORTED_NAME_CHARS)[:MAX_COLUMNS]


def _collect_columns(json: Any) -> tuple[str, ...]:
    """Collect the columns that a filter names; ValueError: it is too large."""
    names: list[str] = []
    for number, name in enumerate(_walk_references(json, 0)):
        if number > MAX_PREDICATES:
            raise ValueError(f"a filter has up to {MAX_PREDICATES} predicates")
        names.append(name)
    return select_names(names)


def _walk_references(json: Any, depth: int) -> Iterator[str]:
    """Yield the columns that `term`, `child` or a reference name; other texts, as in `left`, may be constants."""
    if depth > MAX_DEPTH:
        raise ValueError(f"a filter has up to {MAX_DEPTH} predicates inside each other")
    if type(json) is not dict or json.get("type") == "literal":
        return
    for key in ("term", "child", *(("name",) if json.get("type") == "reference" else ())):
        if type(json.get(key)) is str:
            yield json[key]
    for key in ("term", "child", "left", "right"):
        yield from _walk_references(json.get(key), depth + 1)


def _select_texts(json: Any) -> Any:
    """Select the members of an object that are texts."""
    return {key: value for key, value in json.items() if type(value) is str} if type(json) is dict else json


class MetricsReport(SpecModel):
    """A report of a scan, a commit or anything else. filtered: the columns of its filter."""

    report_type: str
    snapshot_id: Long | None = None
    projected_field_ids: tuple[Long, ...] = ()
    projected_field_names: tuple[str, ...] = ()
    filtered: Annotated[Any, AfterValidator(_collect_columns)] = Field(default=(), alias="filter")
    metadata: Annotated[dict[str, str], BeforeValidator(_select_texts)] = Field(default_factory=dict)

    @property
    def projected(self) -> tuple[str, ...]:
        """Columns of the table that were read, those of the filter too, as far as the report names them."""
        ids, names = self.projected_field_ids, self.projected_field_names
        if len(ids) != len(names):
            return select_names(names)
        return select_names(name for field_id, name in zip(ids, names, strict=True) if field_id not in _RESERVED)
