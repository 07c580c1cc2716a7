"""What happens in a lake: its history, events, jobs, lineage, audit trail, and what its upkeep needs."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import BinaryIO, Final

from duckicelake.client.changes import ChangeInfo, EventInfo, EventPage, JobInfo, parse_event
from duckicelake.client.lineage import LineageDirection, LineageInfo
from duckicelake.client.models import TableSize
from duckicelake.client.operations import CallerInfo, parse_caller
from duckicelake.client.records import parse_record
from duckicelake.client.upkeep import AuditRecord, CheckReport, CheckResult, OrphanInfos, UpkeepInfo
from duckicelake.errors import CatalogUnreachableError
from duckicelake.rest.client import CatalogClient, encode_namespace, encode_segment
from duckicelake.rest.names import parse_name, parse_table

_UPKEEP_SECONDS: Final = 3600.0
"""Timeout of requests that look at each file of the lake."""
_JSON_LINES: Final = "application/x-ndjson"
_WAIT_SECONDS: Final = 20.0
"""How long the server may wait for an event, before it answers that there is none."""
Time = datetime | str
"""A time; texts are in ISO form, in UTC unless they have an offset."""


class LakeActivity:
    """Methods of `Lake` about what happens in it. Another Iceberg catalog than this server has no such routes."""

    client: CatalogClient

    def history(
        self,
        name: str = "",
        *,
        kinds: Sequence[str] = (),
        since: Time | None = None,
        until: Time | None = None,
        principal: str | None = None,
        engine: str | None = None,
        source: str | None = None,
        page_size: int = 100,
    ) -> Iterator[ChangeInfo]:
        """Yield what changed in the lake, a namespace or a table, newest first.

        engine: its name or a part of it. source: rest, pipeline or duckdb.
        """
        levels = parse_name(name) if name else ()
        path = ["namespaces", encode_namespace(levels)] if levels else []
        if len(levels) > 1 and not self.client.namespace_exists(levels):
            path = ["namespaces", encode_namespace(levels[:-1]), "tables", encode_segment(levels[-1])]
        filters = {"principal": principal, "engine": engine, "source": source, "kind": ",".join(kinds)}
        filters |= {"since": _format_time(since), "until": _format_time(until), "limit": str(page_size)}
        query = {key: one for key, one in filters.items() if one}
        while True:
            page = self.client.get(self.client.iceberg(*path, "history"), query)
            yield from (parse_record(ChangeInfo, entry) for entry in page["history"])
            if page.get("next-before") is None:
                return
            query["before"] = str(page["next-before"])

    def events(
        self,
        name: str = "",
        *,
        after: str | None = None,
        kinds: Sequence[str] = (),
        is_following: bool = False,
    ) -> Iterator[EventInfo]:
        """Yield events of the change feed in their order: of the lake, or of a namespace, table or view.

        Args:
            name: all that a namespace has, or a table or view.
            after: a position of an event, DuckLake's number, or `newest`; None: from the first that is kept.
            kinds: of Iceberg's draft, as update-table, or this server's finer ones, as append.
            is_following: wait for events that come, without end.

        """
        wait = _WAIT_SECONDS if is_following else 0.0
        while True:
            page = self.read_events(name, after=after, kinds=kinds, wait=wait)
            yield from page.events
            if page.position == after and not is_following:
                return
            after = page.position

    def read_events(
        self,
        name: str = "",
        *,
        after: str | None = None,
        kinds: Sequence[str] = (),
        wait: float = 0.0,
        limit: int = 1000,
        has_retries: bool = True,
    ) -> EventPage:
        """Return the next events behind a position, at most so many. wait: seconds for one, if there is none.

        The server answers 503 while the feed hasn't come to the position. has_retries: ask again then, for a minute.
        """
        query = {"limit": str(limit), "wait": f"{wait:g}"} | ({"from": after} if after else {})
        query |= {"kind": ",".join(kinds)} if kinds else {}
        levels = parse_name(name) if name else ()
        if len(levels) > 1 and not self.client.namespace_exists(levels):
            query |= {"namespace": "\x1f".join(levels[:-1]), "table": levels[-1]}
        elif levels:
            query["namespace"] = "\x1f".join(levels)
        answer = self.client.get(
            self.client.iceberg("events"), query, seconds=wait + _WAIT_SECONDS, has_retries=has_retries
        )
        return EventPage(tuple(map(parse_event, answer["events"])), answer["continuation-token"])

    def lineage(
        self,
        node: str,
        *,
        direction: LineageDirection = "both",
        depth: int = 5,
        at: Time | None = None,
        has_columns: bool = False,
        limit: int = 200,
    ) -> LineageInfo:
        """Return what a table, or a column as `sales.orders#amount`, comes from and what comes from it.

        depth: edges from the node. has_columns: with the edges between fields. limit: nodes.
        """
        query = {"node": node, "direction": direction, "depth": str(depth), "limit": str(limit)}
        query |= {"columns": str(has_columns).lower()} | ({} if at is None else {"at": _format_time(at) or ""})
        return parse_record(LineageInfo, self.client.get(self.client.own("lineage", "graph"), query))

    def jobs(
        self, name: str = "", *, kind: str | None = None, run_id: str | None = None, result: str | None = None
    ) -> Iterator[JobInfo]:
        """Yield jobs of the pipeline, newest first: all, or those on a table."""
        query = {key: one for key, one in {"kind": kind, "run-id": run_id, "result": result}.items() if one}
        if name:
            namespace, query["table"] = parse_table(name)
            query["namespace"] = "\x1f".join(namespace)
        for page in self.client.pages(self.client.own("pipeline", "jobs"), query):
            yield from (parse_record(JobInfo, job) for job in page["jobs"])

    def statistics(self, namespace: str = "", table: str = "") -> Iterator[UpkeepInfo]:
        """Yield what decides about the upkeep of a table, or of the tables of a namespace and of those below it.

        table: its name in the namespace, without it.
        """
        query = {"namespace": "\x1f".join(parse_name(namespace))} if namespace else {}
        query |= {"table": table} if table else {}
        for page in self.client.pages(self.client.own("pipeline", "tables"), query):
            yield from (parse_record(UpkeepInfo, one) for one in page["tables"])

    def sizes(self, namespace: str = "") -> Iterator[TableSize]:
        """Yield how large the tables of a namespace and of those below it are, or of the whole lake.

        Nothing where the catalog is another one: Iceberg's REST API has no such route.
        """
        if self.client.is_duckicelake():
            yield from (one.size for one in self.statistics(namespace))

    def whoami(self) -> CallerInfo:
        """Return who the caller is for this server: principal, groups, roles, scopes, what it may do."""
        return parse_caller(self.client.get(self.client.iceberg("whoami")))

    def audit(
        self,
        *,
        limit: int = 100,
        after: int = 0,
        before: int | None = None,
        since: datetime | None = None,
        principal: str | None = None,
        resource: str | None = None,
        operation: str | None = None,
        result: str | None = None,
    ) -> Sequence[AuditRecord]:
        """Return the newest entries of the audit trail, the newest last, of those after an id and before another."""
        filters = {"principal": principal, "resource": resource, "operation": operation, "result": result}
        filters["since"] = None if since is None else since.isoformat()
        filters["before"] = None if before is None else str(before)
        query = {"limit": str(limit), "after": str(after)} | {key: one for key, one in filters.items() if one}
        answer = self.client.get(self.client.iceberg("audit"), query)
        return [parse_record(AuditRecord, one) for one in answer["entries"]]

    def doctor(
        self, *, has_files: bool = True, report: Callable[[CheckReport], None] = lambda _: None
    ) -> Sequence[CheckResult]:
        """Have the server examine the lake; return all findings.

        has_files: look for each data file in the store. report: called as each check begins and ends.
        """

        def read(body: BinaryIO) -> Sequence[CheckResult]:
            for line in body:
                answer = json.loads(line)
                if "check" not in answer:
                    return [parse_record(CheckResult, one) for one in answer["findings"]]
                report(parse_record(CheckReport, answer))
            raise CatalogUnreachableError("The server ended its answer before the last check was done")

        path = f"{self.client.iceberg('doctor')}?files={str(has_files).lower()}"
        found: Sequence[CheckResult] = self.client.get_streamed(path, _JSON_LINES, _UPKEEP_SECONDS, read).content
        return found

    def orphans(self, older_than: datetime) -> OrphanInfos:
        """List files last written before a moment that no table needs. Nothing is deleted."""
        query = {"older-than": older_than.isoformat()}
        answer = self.client.get(self.client.iceberg("orphans"), query, seconds=_UPKEEP_SECONDS)
        return parse_record(OrphanInfos, answer)

    def delete_orphans(self, locations: Sequence[str], older_than: datetime) -> Sequence[str]:
        """Delete files that `orphans` listed, at most 10,000; return those that were orphans still, and are gone."""
        body = {"files": list(locations), "older-than": older_than.isoformat()}
        gone: list[str] = self.client.change("DELETE", self.client.iceberg("orphans"), body, seconds=_UPKEEP_SECONDS)[
            "files"
        ]
        return gone


def _format_time(time: Time | None) -> str | None:
    return time.isoformat() if isinstance(time, datetime) else time
