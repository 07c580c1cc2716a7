"""PURE. Which program made a change: by the summary of the snapshot, else by what the request says of its client."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from duckicelake.lineage.told import Told

_AGENT: Final = re.compile(r"([A-Za-z][\w .-]{0,60}?)[/ ]v?(\d[\w.+-]{0,40})")
_JAVA: Final = "Apache-HttpClient/"
"""With which Iceberg's Java library sends its requests: what engine it is in, only summaries say."""
_LONGEST: Final = 200
_QUERY: Final = "trino_query_id"
_FLINK_JOB: Final = "flink.job-id"
_APPLICATIONS: Final = ("app-id", "spark.app.id", _FLINK_JOB)
_STREAMS: Final = frozenset({_FLINK_JOB, "flink.max-committed-checkpoint-id", "spark.sql.streaming.queryId"})
"""Keys of summaries that programs write which go on until they are stopped."""
_KEPT: Final = 16
"""Engines of the changes that are looked at: each is asked for more than once."""
_ROWS: Final = frozenset({"append_rows", "delete_rows"})
"""Operations of the catalog by which programs send rows in batches, one after the other."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A program. application: the id of what ran in it, which somebody may have given a name. query: an id, too."""

    name: str
    version: str | None = None
    application: str | None = None
    application_name: str | None = None
    query: str | None = None


@lru_cache(_KEPT)
def engine_of(told: Told) -> Engine:
    """Nothing is taken for granted of what clients say: it is cut where it is too long to be meant."""
    if told.change.source == "duckdb":
        return Engine("duckdb")
    summary, client = told.summary, told.client
    application = next((summary[key] for key in _APPLICATIONS if key in summary), client.get("application"))
    name, version = summary.get("engine-name"), summary.get("engine-version")
    if name is None:
        name, version = _by_traces(told)
    return Engine(
        _cut(name) or "unknown",
        _cut(version),
        _cut(application),
        _cut(summary.get("app-name")),
        _cut(summary.get(_QUERY)),
    )


def is_streaming(told: Told) -> bool:
    """Whether the change is one of many that a program makes which goes on: it has no end of its own."""
    return told.change.operation in _ROWS or not _STREAMS.isdisjoint(told.summary)


def _by_traces(told: Told) -> tuple[str | None, str | None]:
    """The name and version of an engine that doesn't say them in the summary."""
    if _QUERY in told.summary:
        return "trino", told.summary.get("trino_version")
    if _FLINK_JOB in told.summary:
        return "flink", None
    agent = told.client.get("engine") or told.change.agent or told.client.get("user-agent") or ""
    if agent.startswith(_JAVA):
        return "iceberg-java", None
    matched = _AGENT.match(agent)
    if matched:
        return matched[1].strip().lower().replace(" ", "-"), matched[2]
    return agent.partition("/")[0].strip().lower() or None, None


def _cut(text: object) -> str | None:
    return text[:_LONGEST] if isinstance(text, str) and text else None
