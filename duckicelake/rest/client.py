"""Call the catalog over REST: Iceberg's routes, and this server's own below `/pipeline/v1/`.

    client = CatalogClient(Connection("http://127.0.0.1:8181"))
    client.load_table(("ns",), "t")["metadata"]["current-snapshot-id"]

Methods return JSON as it came. Every method raises CatalogUnreachableError, BadCredentialsError, NotAllowedError,
MissingTableError, JobConflictError, BadInputError or PipelineError. Threads may share a client.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit
from uuid import UUID

from duckicelake.errors import (
    BadCredentialsError,
    BadInputError,
    CatalogUnreachableError,
    JobConflictError,
    MissingNamespaceError,
    MissingTableError,
    NotAllowedError,
    PipelineError,
)
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import (
    BUSY_STATUSES,
    TIMEOUT_SECONDS,
    HttpConnection,
    HttpResponse,
    Json,
    JsonAnswer,
    NoAnswerError,
    ReadBody,
    create_request_key,
    log_in,
    parse_json,
    send_json,
)
from duckicelake.rest.login import LoginKeeper
from duckicelake.rest.names import Namespace

_PAUSE_SECONDS: Final = (0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts of a request."""
_FLUSH_SECONDS: Final = 600.0
"""Timeout of a flush: the server answers after it has written the files."""
_LEVEL_SEPARATOR: Final = "%1F"
"""Between the levels of a namespace in a path, unless the catalog's configuration names another one."""
_STATUS_ERRORS: Final[Mapping[int, type[PipelineError]]] = {
    400: BadInputError,
    401: BadCredentialsError,
    403: NotAllowedError,
    404: MissingTableError,
    409: JobConflictError,
    422: BadInputError,
}
_KIND_ERRORS: Final[Mapping[str, type[PipelineError]]] = {
    "NoSuchNamespaceException": MissingNamespaceError,
    "NoSuchWarehouseException": BadInputError,
}
"""By the type that an error's body names, where it says more than the status."""


@dataclass(frozen=True, slots=True)
class _CatalogRequest:
    """A request. key: its idempotency key, if any. seconds: the timeout."""

    method: str
    path: str
    body: Json = None
    key: UUID | None = None
    seconds: float = TIMEOUT_SECONDS
    has_retries: bool = True


class CatalogClient:
    """A client of one catalog. It logs in when needed, again when the token has expired, and retries a busy catalog."""

    def __init__(self, connection: Connection, login: LoginKeeper | None = None) -> None:
        """login: kept tokens, for a connection without credential and token."""
        self.connection = connection
        self._login = login if connection.credential is None and connection.token is None else None
        self._uri = connection.uri.rstrip("/")
        self._http = HttpConnection(connection.uri)
        self._token = connection.token
        self._lock = Lock()
        self._prefix: str | None = None
        self._separator = _LEVEL_SEPARATOR
        self._is_duckicelake: bool | None = None

    @property
    def can_renew_token(self) -> bool:
        """Whether another token may be had than the one that was sent: by the credential, or a kept login."""
        return self.connection.credential is not None or (self._login is not None and self._token is not None)

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def config(self) -> Json:
        """Return the catalog's configuration."""
        query = {} if self.connection.warehouse is None else {"warehouse": self.connection.warehouse}
        try:
            return self.get("/v1/config", query)
        except MissingTableError as error:
            raise CatalogUnreachableError(
                f"{self._uri}/v1/config isn't there: is {self._uri} the URI of an Iceberg REST catalog, without /v1?"
            ) from error

    def is_duckicelake(self) -> bool:
        """Return whether the catalog is this server, which has more routes than Iceberg's specification."""
        if self._is_duckicelake is None:
            question = _CatalogRequest("GET", f"{self.own('pipeline', 'jobs')}?pageSize=1")
            answer = self._retry(question, self.get_token())
            self._is_duckicelake = answer.status == 200 and isinstance(answer.body, dict) and "jobs" in answer.body
        return self._is_duckicelake

    def namespaces(self, parent: Namespace = ()) -> Iterator[Namespace]:
        """Yield the direct children of a namespace, or the top level."""
        path = self.iceberg("namespaces")
        query = {"parent": unquote(self._separator).join(parent)} if parent else {}
        for page in self.pages(path, query):
            yield from (tuple(levels) for levels in page["namespaces"])

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's tables."""
        for page in self.pages(self.iceberg("namespaces", encode_namespace(namespace), "tables")):
            yield from (identifier["name"] for identifier in page["identifiers"])

    def views(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's views."""
        for page in self.pages(self.iceberg("namespaces", encode_namespace(namespace), "views")):
            yield from (identifier["name"] for identifier in page["identifiers"])

    def load_table(self, namespace: Namespace, table: str, snapshots: str = "all") -> Json:
        """Return the table as Iceberg's clients get it: `metadata-location`, `metadata`, `config`.

        Raises MissingTableError.
        """
        path = self.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table))
        return self.get(path, {"snapshots": snapshots})

    def table_exists(self, namespace: Namespace, table: str) -> bool:
        path = self.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table))
        return self._ask(_CatalogRequest("HEAD", path)).status != 404

    def namespace_exists(self, namespace: Namespace) -> bool:
        return self._ask(_CatalogRequest("HEAD", self.iceberg("namespaces", encode_namespace(namespace)))).status != 404

    def make_namespace(self, namespace: Namespace, properties: Mapping[str, str] | None = None) -> bool:
        """Create the namespace unless it exists; return whether it was created."""
        if self.namespace_exists(namespace):
            return False
        with suppress(JobConflictError):  # another client has just created it
            self.post(self.iceberg("namespaces"), {"namespace": list(namespace), "properties": dict(properties or {})})
            return True
        return False

    def namespace_properties(self, namespace: Namespace) -> Json:
        return self.get(self.iceberg("namespaces", encode_namespace(namespace)))["properties"]

    def drop_namespace(self, namespace: Namespace) -> None:
        """Drop an empty namespace. Raises JobConflictError if it isn't empty."""
        self._ask(_CatalogRequest("DELETE", self.iceberg("namespaces", encode_namespace(namespace))))

    def flush_rows(self, namespace: Namespace, table: str) -> Json:
        """Flush the table's inlined rows to files; return `rows`, `deletes`, `files` and `snapshot-id`.

        `snapshot-id` is DuckLake's, None if there were no rows. A repeated request flushes once.
        """
        path = self.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table), "rows", "flush")
        return self._ask(_CatalogRequest("POST", path, {}, create_request_key(), _FLUSH_SECONDS)).body

    def begin_job(self, namespace: Namespace, table: str, job: Json) -> Json:
        """Begin a job, once for each id. Raises JobConflictError, which names the lease's holder."""
        return self.post(self.pipeline(namespace, table, "jobs"), job)

    def renew_job(self, namespace: Namespace, table: str, job_id: str, body: Json) -> Json:
        """Renew a job's lease. Raises JobConflictError if the job has ended."""
        return self.post(self.pipeline(namespace, table, "jobs", job_id), body)

    def end_job(self, namespace: Namespace, table: str, job_id: str, body: Json) -> Json:
        """End a job. Raises JobConflictError if it has ended with another result."""
        return self.post(self.pipeline(namespace, table, "jobs", job_id, "end"), body)

    def jobs(self, **filters: str) -> Iterator[Json]:
        """Yield jobs, newest first. Filters: namespace (levels joined by U+001F), table, kind, run_id, result."""
        query = {name.replace("_", "-"): value for name, value in filters.items()}
        for page in self.pages(self.own("pipeline", "jobs"), query):
            yield from page["jobs"]

    def run(self, namespace: Namespace, table: str, run_id: str) -> Json | None:
        """Return the last commit of a run to a table: `epoch`, `snapshot-id`, `summary`; None if there is none."""
        found = self.get(self.pipeline(namespace, table, "runs"), {"run-id": run_id})["runs"]
        return found[0] if found else None

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        seconds: float = TIMEOUT_SECONDS,
        has_retries: bool = True,
    ) -> Json:
        """Get the JSON at a path; retry while the catalog is busy, unless the caller does so."""
        full = f"{path}?{urlencode(query)}" if query else path
        return self._ask(_CatalogRequest("GET", full, seconds=seconds, has_retries=has_retries)).body

    def ping(self, path: str) -> str:
        """Ask a route of the server's health, once and without a token; return what is wrong, empty if all is well.

        Raises CatalogUnreachableError if there is no such route, or no answer.
        """
        answer = self._once(_CatalogRequest("GET", path), None)
        if answer.status < 300 and answer.body is not None:
            return ""
        if answer.status in BUSY_STATUSES or answer.status >= 500:
            return answer.problem[1]
        raise CatalogUnreachableError(f"{self._uri}{path} isn't there: is {self._uri} the URI of a duckicelake server?")

    def post(self, path: str, body: Json) -> Json:
        """Post a body that may be sent twice."""
        return self._ask(_CatalogRequest("POST", path, body)).body

    def change(
        self,
        method: str,
        path: str,
        body: Json = None,
        query: Mapping[str, str] | None = None,
        *,
        seconds: float = TIMEOUT_SECONDS,
    ) -> Json:
        """Send a request that changes something, with an idempotency key: sent again, it has no more effect."""
        full = f"{path}?{urlencode(query)}" if query else path
        return self._ask(_CatalogRequest(method, full, body, create_request_key(), seconds)).body

    def post_raw(self, path: str, body: Json, accept: str, seconds: float, *, most_bytes: int | None = None) -> bytes:
        """Post a body that may be sent twice, and return the answer's bytes in a format other than JSON.

        most_bytes: of a longer answer, only so many and one more are returned, and the server ends the rest.
        """
        options = {"seconds": seconds, "most_bytes": most_bytes, "is_cut": True}
        return self._ask_raw("POST", path, body, accept, options).body

    def post_streamed(self, path: str, body: Json, accept: str, seconds: float, read_body: ReadBody) -> Any:
        """Post a body that may be sent twice, and return what is read of the answer while it comes."""
        return self._ask_raw("POST", path, body, accept, {"seconds": seconds, "read_body": read_body}).content

    def get_streamed(self, path: str, accept: str, seconds: float, read_body: ReadBody) -> HttpResponse:
        """Get a path; `read_body` reads the body while it comes, and never twice."""
        return self._ask_raw("GET", path, None, accept, {"seconds": seconds, "read_body": read_body})

    def _ask_raw(self, method: str, path: str, body: Json, accept: str, options: Json) -> HttpResponse:
        answer = self._send_raw(method, path, body, accept, options, self.get_token())
        if answer.status == 401 and self.can_renew_token:
            answer = self._send_raw(method, path, body, accept, options, self.get_token(renew=True))
        if answer.status >= 300:
            raise build_error(JsonAnswer(answer.status, parse_json(answer.body)), f"{method} {self._uri}{path}")
        return answer

    def _send_raw(
        self, method: str, path: str, body: Json, accept: str, options: Json, token: str | None
    ) -> HttpResponse:
        headers = {**self.connection.headers, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            sent = None if body is None else json.dumps(body).encode()
            return self._http.ask(method, path, headers, sent, may_repeat=body is not None, **options)
        except NoAnswerError as error:
            raise CatalogUnreachableError(f"{error}: check --uri, and that it runs") from error

    def pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Yield every page of a listing."""
        token = ""
        while token is not None:
            page = self.get(path, {**(query or {}), "pageToken": token})
            yield page
            token = page.get("next-page-token")

    def iceberg(self, *segments: str) -> str:
        """Build the path of an Iceberg route, with the catalog's prefix."""
        return self._build_path("/v1", *segments)

    def own(self, api: str, *segments: str) -> str:
        """Build the path of a route below `/pipeline/v1` or another API of this server, with the catalog's prefix."""
        return self._build_path(f"/{api}/v1", *segments)

    def pipeline(self, namespace: Namespace, table: str, *segments: str) -> str:
        """Build the path of a route below `/pipeline/v1` about a table."""
        place = ("namespaces", encode_namespace(namespace), "tables", encode_segment(table))
        return self.own("pipeline", *place, *segments)

    def _build_path(self, root: str, *segments: str) -> str:
        if self._prefix is None:
            config = self.config()
            properties = (config.get("defaults") or {}) | (config.get("overrides") or {})
            self._follow(str(properties.get("uri", "")))
            self._separator = str(properties.get("namespace-separator", _LEVEL_SEPARATOR))
            self._prefix = str(properties.get("prefix", ""))
        path = "/".join((root, *((self._prefix,) if self._prefix else ()), *segments))
        return path.replace(_LEVEL_SEPARATOR, self._separator)

    def _follow(self, uri: str) -> None:
        """Ask at the URI from now on, if it is the same server's: Nessie's branches have one with a prefix."""
        here, there = urlsplit(self._uri), urlsplit(uri.rstrip("/"))
        if (here.scheme, here.netloc) == (there.scheme, there.netloc) and here.path != there.path:
            self._uri = there.geturl()
            self._http.close()
            self._http = HttpConnection(self._uri)

    def _ask(self, question: _CatalogRequest) -> JsonAnswer:
        """Send a request with a valid token until the catalog isn't busy. A 404 of a HEAD is no error."""
        is_change = question.key is not None or question.method == "DELETE"
        if is_change and self.connection.read_only_by is not None:
            raise NotAllowedError(
                f"{self.connection.read_only_by} is read-only: {question.method} {question.path} is refused"
            )
        answer = self._retry(question, self.get_token())
        if answer.status == 401 and self.can_renew_token:
            answer = self._retry(question, self.get_token(renew=True))
        if answer.status >= 300 and (question.method, answer.status) != ("HEAD", 404):
            raise build_error(answer, f"{question.method} {self._uri}{question.path}")
        if answer.body is None:
            raise CatalogUnreachableError(f"{self._uri} is no Iceberg REST catalog: it answers, but not with JSON")
        return answer

    def _retry(self, question: _CatalogRequest, token: str | None) -> JsonAnswer:
        for pause in _PAUSE_SECONDS if question.has_retries else ():
            answer = self._once(question, token)
            if answer.status not in BUSY_STATUSES:
                return answer
            time.sleep(pause)
        return self._once(question, token)

    def _once(self, question: _CatalogRequest, token: str | None) -> JsonAnswer:
        options = {"body": question.body, "token": token, "key": question.key, "seconds": question.seconds}
        options["named"] = self.connection.headers
        return send_json(self._http, question.method, question.path, **options)

    def get_token(self, *, renew: bool = False) -> str | None:
        """Return the token; log in if there is none yet. None without a credential and a token."""
        with self._lock:
            if self.connection.credential is not None and (renew or self._token is None):
                self._token = log_in(self.connection)
            elif self._login is not None and (renew or self._token is None):
                self._token = self._login.find_token(renew=renew)
            return self._token


def encode_namespace(namespace: Namespace) -> str:
    """Encode a namespace as a path segment."""
    return "%1F".join(map(encode_segment, namespace))


def encode_segment(name: str) -> str:
    """Encode a name as a path segment."""
    return quote(name, safe="")


def build_error(answer: JsonAnswer, asked: str) -> PipelineError:
    """Build the error for a response that is no success. asked: method and address."""
    kind, message = answer.problem
    if answer.status < 400:
        return CatalogUnreachableError(f"{asked} is redirected ({answer.status}): give the URI that it leads to")
    if answer.status == 401:
        return BadCredentialsError(f"{asked}: {message}; give --credential or --token, or run duckicelake login")
    if answer.status >= 500 or answer.status in BUSY_STATUSES:
        return CatalogUnreachableError(f"{asked} can't be served now ({answer.status}): {message}")
    if kind == "" and answer.status == 404:
        return CatalogUnreachableError(f"{asked} isn't there: is it the URI of an Iceberg REST catalog?")
    return (_KIND_ERRORS.get(kind) or _STATUS_ERRORS.get(answer.status, PipelineError))(message)
