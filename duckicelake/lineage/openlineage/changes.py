"""PURE. Changes of the catalog as lineage needs them, and the engine that made each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol

from duckicelake.lineage.openlineage.names import DatasetName, NamedLake, name_location

Json = dict[str, Any]
_AGENT: Final = re.compile(r"([A-Za-z][\w .-]{0,60}?)[/ ]v?(\d[\w.+-]{0,40})")
_JAVA: Final = "Apache-HttpClient/"
"""The user agent of Iceberg's Java library; only summaries name the engine."""
_MAX_ENGINE_CHARS: Final = 200
_QUERY: Final = "trino_query_id"
_FLINK_JOB: Final = "flink.job-id"
_APPLICATIONS: Final = ("app-id", "spark.app.id", _FLINK_JOB)
_STREAMS: Final = frozenset({_FLINK_JOB, "flink.max-committed-checkpoint-id", "spark.sql.streaming.queryId"})
"""Summary keys of programs that run until they are stopped."""
_KEPT: Final = 16
"""Cached engines of changes: each is needed several times."""
_ROWS: Final = frozenset({"append_rows", "delete_rows"})
"""Operations by which programs send rows in consecutive batches."""


class LineageChange(Protocol):
    """A change in the changelog; `changelog.entries` documents its fields."""

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
class TableSchema:
    """Iceberg's JSON of a schema. Compared by identity, so that results can be cached for all who share it."""

    json: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownObject:
    """The catalog's facts about a table or view after the change. owner: from its properties."""

    location: str | None = None
    owner: str | None = None
    schema: TableSchema | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CatalogChange:
    """A change, and the facts of its object. Compared by identity, as a schema is."""

    change: LineageChange
    known: KnownObject = field(default_factory=KnownObject)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.change.facts

    @property
    def client(self) -> Mapping[str, str]:
        """The facts about its program in the request."""
        return self.facts.get("client") or {}

    @property
    def summary(self) -> Mapping[str, str]:
        """The summary of the Iceberg snapshot."""
        return self.facts.get("summary") or {}

    @property
    def is_view(self) -> bool:
        return self.change.kind.endswith("-view")

    @property
    def location(self) -> str | None:
        """The location of a table. Views also have one in Iceberg, but nothing is there."""
        return None if self.is_view else self.facts.get("location") or self.known.location

    def dataset(self, lake: NamedLake) -> DatasetName:
        """Return OpenLineage's name of the object."""
        return lake.name_dataset(self.change.resource) if self.location is None else name_location(self.location)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """A program. application: the id of its run, which the user may have named. query: also an id."""

    name: str
    version: str | None = None
    application: str | None = None
    application_name: str | None = None
    query: str | None = None


@lru_cache(_KEPT)
def find_engine(catalog_change: CatalogChange) -> EngineInfo:
    """Find the engine by the client's facts, shortened if too long."""
    if catalog_change.change.source == "duckdb":
        return EngineInfo("duckdb")
    summary, client = catalog_change.summary, catalog_change.client
    application = next((summary[key] for key in _APPLICATIONS if key in summary), client.get("application"))
    name, version = summary.get("engine-name"), summary.get("engine-version")
    if name is None:
        name, version = _find_by_traces(catalog_change)
    return EngineInfo(
        _truncate(name) or "unknown",
        _truncate(version),
        _truncate(application),
        _truncate(summary.get("app-name")),
        _truncate(summary.get(_QUERY)),
    )


def is_streaming(catalog_change: CatalogChange) -> bool:
    """Return whether the change is part of a stream: one of many of a running program, without an end of its own."""
    return catalog_change.change.operation in _ROWS or not _STREAMS.isdisjoint(catalog_change.summary)


def _find_by_traces(catalog_change: CatalogChange) -> tuple[str | None, str | None]:
    """Find name and version of an engine that doesn't write them into the summary."""
    if _QUERY in catalog_change.summary:
        return "trino", catalog_change.summary.get("trino_version")
    if _FLINK_JOB in catalog_change.summary:
        return "flink", None
    agent = (
        catalog_change.client.get("engine")
        or catalog_change.change.agent
        or catalog_change.client.get("user-agent")
        or ""
    )
    if agent.startswith(_JAVA):
        return "iceberg-java", None
    matched = _AGENT.match(agent)
    if matched:
        return matched[1].strip().lower().replace(" ", "-"), matched[2]
    return agent.partition("/")[0].strip().lower() or None, None


def _truncate(text: object) -> str | None:
    return text[:_MAX_ENGINE_CHARS] if isinstance(text, str) and text else None
