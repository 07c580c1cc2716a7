"""Look at a lake over REST, and change it: with a URL and a token alone. docs/client.md shows how."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, Self

from duckicelake.client.activity import LakeActivity
from duckicelake.client.alteration import build_view
from duckicelake.client.models import (
    CatalogObject,
    FoundName,
    Json,
    ObjectKind,
    TableInfo,
    ViewInfo,
    build_name,
    parse_found,
)
from duckicelake.client.operations import DroppedInfo, UndropInfo, parse_dropped, parse_undrop
from duckicelake.client.query_result import (
    ARROW_STREAM,
    GRACE_SECONDS,
    JSON_LINES,
    QUERY_SECONDS,
    PlanInfo,
    QueryInfo,
    QueryPage,
    QueryResult,
    SavedResultInfo,
    parse_plan,
)
from duckicelake.client.records import parse_record
from duckicelake.client.schema_text import parse_columns, parse_partition_fields, parse_sort_fields
from duckicelake.client.table import Table, View
from duckicelake.errors import MissingTableError
from duckicelake.rest.client import CatalogClient, encode_namespace, encode_segment
from duckicelake.rest.connection import Connection
from duckicelake.rest.login import LoginKeeper
from duckicelake.rest.names import Namespace, parse_name, parse_table
from duckicelake.rest.profiles import read_connection

_MAX_SUGGESTIONS: Final = 3


def connect(
    uri: str | None = None,
    *,
    profile: str | None = None,
    credential: str | None = None,
    token: str | None = None,
    warehouse: str | None = None,
    oauth2_server_uri: str | None = None,
    scope: str | None = None,
) -> "Lake":
    """Connect to a catalog by its URI, or by a profile of `profiles.toml`. The first request logs in.

    Args:
        uri: without `/v1`; or the name of a profile, if it has no `://`.
        credential: `<id>:<secret>`.
        token: instead of a credential.
        warehouse: its name, for a server with several.
        profile: options beside it take the place of the profile's.
        oauth2_server_uri: the token endpoint; None takes the catalog's.
        scope: None asks for all scopes of the client.

    Raises:
        BadInputError: there is no such profile.

    """
    if uri is not None and "://" not in uri:
        uri, profile = None, uri
    connection = read_connection(
        profile,
        uri=uri,
        credential=credential,
        token=token,
        warehouse=warehouse,
        oauth2_server_uri=oauth2_server_uri,
        scope=scope,
    )
    return Lake(connection)


class Lake(LakeActivity):
    """A lake behind its catalog's REST API. Threads may share it.

    Names are as in SQL: `sales.orders`, a level with dots in backticks. Methods raise the errors of
    `duckicelake.rest.client`: MissingTableError, JobConflictError, NotAllowedError and so on.
    """

    def __init__(self, connection: Connection) -> None:
        self.client = CatalogClient(connection, LoginKeeper(connection.uri))
        """Sends requests, also those that have no method here."""

    def close(self) -> None:
        """Close the connections to the server."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def list(self, namespace: str = "", *, is_recursive: bool = False) -> Iterator[CatalogObject]:
        """Yield the namespaces, tables and views directly in a namespace, or at the top level.

        is_recursive: those below, too, each behind the namespace that it is in.
        """
        levels = parse_name(namespace) if namespace else ()
        yield from self._list(levels, is_recursive=is_recursive)

    def namespaces(self, parent: str = "") -> Iterator[str]:
        """Yield the names of the direct children of a namespace, or of the top level."""
        for levels in self.client.namespaces(parse_name(parent) if parent else ()):
            yield build_name(levels)

    def tables(self, namespace: str) -> Iterator[str]:
        """Yield the full names of a namespace's tables."""
        levels = parse_name(namespace)
        for name in self.client.tables(levels):
            yield build_name(levels, name)

    def views(self, namespace: str) -> Iterator[str]:
        """Yield the full names of a namespace's views."""
        levels = parse_name(namespace)
        for name in self.client.views(levels):
            yield build_name(levels, name)

    def search(self, text: str, namespace: str = "") -> Iterator[FoundName]:
        """Yield what holds a text, in any case: in its name, its comment, its columns or their comments.

        namespace: in it and below it; empty: in the lake.
        """
        query = {"q": text} | ({"namespace": "\x1f".join(parse_name(namespace))} if namespace else {})
        for page in self.client.pages(self.client.iceberg("search"), query):
            yield from map(parse_found, page["objects"])

    def create_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace. Raises JobConflictError if it exists."""
        body = {"namespace": list(parse_name(name)), "properties": dict(properties or {})}
        self.client.change("POST", self.client.iceberg("namespaces"), body)

    def drop_namespace(self, name: str) -> None:
        """Drop an empty namespace. Raises JobConflictError if it isn't empty."""
        self.client.drop_namespace(parse_name(name))

    def namespace_properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of a namespace."""
        properties: Mapping[str, str] = self.client.namespace_properties(parse_name(name))
        return properties

    def update_namespace(
        self, name: str, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> None:
        """Set and remove properties of a namespace."""
        path = self.client.iceberg("namespaces", encode_namespace(parse_name(name)), "properties")
        self.client.change("POST", path, {"updates": dict(updates or {}), "removals": list(removals)})

    def table(self, name: str) -> Table:
        """Return a table, which is looked up when one of its methods is called."""
        return Table(self.client, *parse_table(name))

    def view(self, name: str) -> View:
        """Return a view, which is looked up when one of its methods is called."""
        return View(self.client, *parse_table(name))

    def find(self, name: str) -> TableInfo | ViewInfo:
        """Load the table or view of a name. Raises MissingTableError, which names those with like names."""
        namespace, last = parse_table(name)
        try:
            return Table(self.client, namespace, last).load()
        except MissingTableError as missing:
            try:
                return View(self.client, namespace, last).load()
            except MissingTableError:
                raise MissingTableError(f"{missing}{self.suggest(name)}") from missing

    def suggest(self, name: str) -> str:
        """Return "; did you mean …?" with names like this one where it would be; empty if there are none."""
        *namespace, last = parse_name(name)
        return self._suggest(tuple(namespace), last)

    def _suggest(self, namespace: Namespace, last: str) -> str:
        try:
            names = {one.name for one in self._list(namespace)}
        except MissingTableError:
            near = get_close_matches(build_name(namespace), list(self.namespaces()), n=_MAX_SUGGESTIONS)
            return f"; did you mean the namespace {' or '.join(near)}?" if near else "; there is no such namespace"
        name = build_name(namespace, last)
        near = [] if name in names else get_close_matches(name, names, n=_MAX_SUGGESTIONS)
        return f"; did you mean {' or '.join(near)}?" if near else ""

    def create_table(
        self,
        name: str,
        schema: str | Json,
        *,
        partition_by: str = "",
        order_by: str = "",
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create an empty table.

        Args:
            name: in a namespace that exists.
            schema: columns, as `id long not null, name string`; or Iceberg's schema, as JSON.
            partition_by: fields, as `day(time), bucket(16, id)`.
            order_by: fields, as `region, time desc nulls last`.
            location: its folder; None: one in the warehouse.
            properties: of the table.

        Raises:
            BadInputError, JobConflictError: it exists already.

        """
        namespace, last = parse_table(name)
        columns = parse_columns(schema) if isinstance(schema, str) else schema
        body: dict[str, Json] = {"name": last, "schema": columns, "properties": dict(properties or {})}
        if partition_by:
            body["partition-spec"] = parse_partition_fields(partition_by, columns)
        if order_by:
            body["write-order"] = parse_sort_fields(order_by, columns)
        if location is not None:
            body["location"] = location
        self.client.change("POST", self.client.iceberg("namespaces", encode_namespace(namespace), "tables"), body)
        return Table(self.client, namespace, last)

    def create_view(self, name: str, sql: str, *, spark: str | None = None) -> View:
        """Create a view of a query in DuckDB's SQL, whose columns the server finds without reading rows.

        spark: the same query in Spark's SQL; None: engines read it in DuckDB's alone. Raises BadInputError.
        """
        namespace, last = parse_table(name)
        body = {"name": last, "properties": {}, **self._build_view(namespace, sql, spark)}
        self.client.change("POST", self.client.iceberg("namespaces", encode_namespace(namespace), "views"), body)
        return View(self.client, namespace, last)

    def redefine_view(self, name: str, sql: str, *, spark: str | None = None) -> None:
        """Give a view another query, as `create_view` takes it. The view keeps its properties and versions."""
        namespace, _ = parse_table(name)
        built = self._build_view(namespace, sql, spark)
        self.view(name).redefine(built["schema"], built["view-version"])

    def _build_view(self, namespace: Namespace, sql: str, spark: str | None) -> Json:
        query = sql.strip().rstrip(";")
        schema = self.sql(f"SELECT * FROM (\n{query}\n) LIMIT 0", namespace=build_name(namespace)).to_schema()
        return build_view(namespace, schema, {"duckdb": query} | ({} if spark is None else {"spark": spark}))

    def register_table(self, name: str, metadata_location: str) -> Table:
        """Register a table by its metadata.json."""
        namespace, last = parse_table(name)
        body = {"name": last, "metadata-location": metadata_location}
        self.client.change("POST", self.client.iceberg("namespaces", encode_namespace(namespace), "register"), body)
        return Table(self.client, namespace, last)

    def rename(self, kind: ObjectKind, source: str, destination: str) -> None:
        """Rename or move a table or view."""
        ends = {"source": parse_table(source), "destination": parse_table(destination)}
        body = {end: {"namespace": list(namespace), "name": name} for end, (namespace, name) in ends.items()}
        self.client.change("POST", self.client.iceberg(f"{kind}s", "rename"), body)

    def rename_namespace(self, source: str, destination: str) -> Sequence[str]:
        """Rename or move a namespace with all in it; return the views whose queries name tables by the old name."""
        path = self.client.iceberg("namespaces", encode_namespace(parse_name(source)), "rename")
        answer = self.client.change("POST", path, {"destination": list(parse_name(destination))})
        return [build_name(tuple(view["namespace"]), view["name"]) for view in answer["stale-views"]]

    def list_dropped(self, namespace: str = "") -> Iterator[DroppedInfo]:
        """Yield what can be brought back, the newest first: of a namespace and those below it, or of the lake."""
        query = {"namespace": ".".join(map(encode_segment, parse_name(namespace)))} if namespace else {}
        for page in self.client.pages(self.client.iceberg("dropped"), query):
            yield from map(parse_dropped, page["dropped"])

    def undrop(
        self, kind: ObjectKind, name: str, *, object_id: int | None = None, new_name: str | None = None
    ) -> UndropInfo:
        """Bring back a dropped table or view, or a namespace with all that was dropped with it.

        object_id: which of several, as `list_dropped` says. new_name: where the own name of a table or view is taken.
        """
        namespace, last = (parse_name(name), None) if kind == "namespace" else parse_table(name)
        body = {"kind": kind, "name": last, "id": object_id, "new-name": new_name}
        given = {key: value for key, value in body.items() if value is not None}
        path = self.client.iceberg("namespaces", encode_namespace(namespace), "undrop")
        return parse_undrop(self.client.change("POST", path, given))

    def sql(
        self,
        statement: str,
        *,
        namespace: str = "",
        at: str | None = None,
        limit: int | None = None,
        query_id: str | None = None,
    ) -> QueryResult:
        """Run a SELECT in DuckDB's SQL in the server, over tables that the caller may read, all at one snapshot.

        namespace: where tables are that the statement names without one. at: DuckLake's number, a time, a
        branch or tag. query_id: a UUID by which `query` says how far it is, and `cancel_query` ends it.
        """
        body = _build_query(sql=statement, namespace=namespace, at=at, limit=limit, query_id=query_id)
        path, read = self.client.own("sql", "query"), QueryResult.read
        result: QueryResult = self.client.post_streamed(path, body, ARROW_STREAM, QUERY_SECONDS, read)
        return result

    def preview(
        self,
        statement: str,
        *,
        namespace: str = "",
        at: str | None = None,
        limit: int = 100,
        max_bytes: int = 1 << 20,
        seconds: float = 60.0,
    ) -> QueryPage:
        """Run a SELECT as `sql` does, and return its first rows: so many, of so many bytes as JSON, within a time."""
        body = _build_query(sql=statement, namespace=namespace, at=at, limit=limit + 1, timeout_seconds=seconds)
        path = self.client.own("sql", "query")
        answer = self.client.post_raw(path, body, JSON_LINES, seconds + GRACE_SECONDS, most_bytes=max_bytes)
        lines = answer.splitlines(keepends=True)
        is_cut = len(answer) > max_bytes or len(lines) > limit
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        return QueryPage([json.loads(line) for line in lines[:limit]], is_cut)

    def explain_sql(self, statement: str, *, namespace: str = "", at: str | None = None) -> PlanInfo:
        """Return DuckDB's plan of a SELECT, and how many files of each table it reads. The query isn't run."""
        body = _build_query(sql=statement, namespace=namespace, at=at, explain=True)
        return parse_plan(self.client.post(self.client.own("sql", "query"), body))

    def save_sql(
        self,
        statement: str,
        name: str,
        *,
        namespace: str = "",
        at: str | None = None,
        query_id: str | None = None,
        is_dry_run: bool = False,
    ) -> SavedResultInfo:
        """Make a table of the result of a SELECT, in one commit; a dry run says only what it would be.

        namespace: of tables that are named without one; by default that of the new table.
        """
        levels, own = parse_table(name)
        default = {"default-namespace": list(parse_name(namespace))} if namespace else {}
        body = default | _build_query(
            namespace="", name=own, sql=statement, at=at, query_id=query_id, dry_run=is_dry_run or None
        )
        path = self.client.iceberg("namespaces", encode_namespace(levels), "query-results")
        return parse_record(SavedResultInfo, self.client.change("POST", path, body, seconds=QUERY_SECONDS))

    def queries(self) -> Sequence[QueryInfo]:
        """Return the caller's queries of the last minutes, or everyone's for an administrator; the newest first."""
        answer = self.client.get(self.client.own("sql", "queries"))
        return [parse_record(QueryInfo, query) for query in answer["queries"]]

    def query(self, query_id: str) -> QueryInfo:
        """Return how far a query is."""
        return parse_record(QueryInfo, self.client.get(self.client.own("sql", "queries", encode_segment(query_id))))

    def cancel_query(self, query_id: str) -> None:
        """Cancel a query; one that has ended stays ended."""
        self.client.change("DELETE", self.client.own("sql", "queries", encode_segment(query_id)))

    def _list(self, namespace: Namespace, *, is_recursive: bool = False) -> Iterator[CatalogObject]:
        for child in self.client.namespaces(namespace):
            yield CatalogObject("namespace", build_name(child))
            if is_recursive:
                yield from self._list(child, is_recursive=True)
        if namespace:
            for name in self.client.tables(namespace):
                yield CatalogObject("table", build_name(namespace, name))
            for name in self.client.views(namespace):
                yield CatalogObject("view", build_name(namespace, name))


def _build_query(namespace: str, **members: Json) -> Json:
    """Build the body of a query; None stands for the server's own choice."""
    body = {key.replace("_", "-"): value for key, value in members.items() if value is not None}
    return body | ({"namespace": list(parse_name(namespace))} if namespace else {})
