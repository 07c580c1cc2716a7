"""PURE. What lineage is made of: changes of the chronicle, and what is known of the tables and views they are about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from duckicelake.lineage.naming import DatasetName, Lake, located

Json = dict[str, Any]


class Change(Protocol):
    """A change as the chronicle of the lake has it (`lake.chronicle.entries`), which says what its fields mean."""

    @property
    def snapshot_id(self) -> int: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def previous(self) -> str | None: ...
    @property
    def object_id(self) -> int | None: ...
    @property
    def uuid(self) -> str | None: ...
    @property
    def source(self) -> str: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def request_id(self) -> str | None: ...
    @property
    def operation(self) -> str | None: ...
    @property
    def iceberg_snapshot_id(self) -> int | None: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def resource(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """Iceberg's JSON of a schema. It is itself alone, so that what follows from it can be kept for all who have it."""

    json: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Known:
    """What the catalog knows of a table or view after the change. owner: as its properties say."""

    location: str | None = None
    owner: str | None = None
    schema: Schema | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """A change, and what is known of what it is about. It is itself alone, as a schema is."""

    change: Change
    known: Known = field(default_factory=Known)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.change.facts

    @property
    def client(self) -> Mapping[str, str]:
        """What the request said of its program."""
        return self.facts.get("client") or {}

    @property
    def summary(self) -> Mapping[str, str]:
        """Of the Iceberg snapshot that was made."""
        return self.facts.get("summary") or {}

    @property
    def is_view(self) -> bool:
        return self.change.kind.endswith("-view")

    @property
    def location(self) -> str | None:
        """Where a table lies. Views have a location in Iceberg, too, but nothing is there."""
        return None if self.is_view else self.facts.get("location") or self.known.location

    def dataset(self, lake: Lake) -> DatasetName:
        """What OpenLineage calls it."""
        return lake.named(self.change.resource) if self.location is None else located(self.location)
