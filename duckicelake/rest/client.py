"""The catalog over REST: Iceberg's routes, and the few of ours below `/pipeline/v1/`.

    client = CatalogClient(Connection("http://127.0.0.1:8181"))
    client.load_table(("ns",), "t")["metadata"]["current-snapshot-id"]

Answers are JSON as it came. Every method raises CatalogUnreachable, BadCredentials, NotAllowed, NoTable, JobConflict,
BadInput or PipelineError. May be used by several threads.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final
from urllib.parse import quote, urlencode
from uuid import UUID

from duckicelake.errors import (
    BadCredentials,
    BadInput,
    CatalogUnreachable,
    JobConflict,
    NoTable,
    NotAllowed,
    PipelineError,
)
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import TIMEOUT_SECONDS, Json, JsonAnswer, create_request_key, log_in, send_request
from duckicelake.rest.names import Namespace

_PAUSE_SECONDS: Final = (0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts of what may be sent again."""
_BUSY_STATUSES: Final = frozenset({429, 502, 503, 504})
_FLUSH_SECONDS: Final = 600.0
"""Files are written before it is answered."""
_STATUS_ERRORS: Final[Mapping[int, type[PipelineError]]] = {
    400: BadInput,
    401: BadCredentials,
    403: NotAllowed,
    404: NoTable,
    409: JobConflict,
    422: BadInput,
}


@dataclass(frozen=True, slots=True)
class _CatalogRequest:
    """What is asked, and for how long an answer is waited for. key: of what has its effect once, sent again or not."""

    method: str
    path: str
    body: Json = None
    key: UUID | None = None
    seconds: float = TIMEOUT_SECONDS


class CatalogClient:
    """A catalog. Logs in when it must, and again when the token has run out; waits a little for one that is busy."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._uri = connection.uri.rstrip("/")
        self._token = connection.token
        self._lock = Lock()
        self._prefix: str | None = None

    def config(self) -> Json:
        """What the catalog says of itself; the first thing to ask."""
        query = {} if self.connection.warehouse is None else {"warehouse": self.connection.warehouse}
        try:
            return self.get("/v1/config", query)
        except NoTable as error:
            raise CatalogUnreachable(
                f"{self._uri}/v1/config isn't there: is {self._uri} the URI of an Iceberg REST catalog, without /v1?"
            ) from error

    def namespaces(self, parent: Namespace = ()) -> Iterator[Namespace]:
        """Direct children, or the top level."""
        query = {"parent": "\x1f".join(parent)} if parent else {}
        for page in self.pages(self.iceberg("namespaces"), query):
            yield from (tuple(levels) for levels in page["namespaces"])

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Names of a namespace's tables."""
        for page in self.pages(self.iceberg("namespaces", encode_namespace(namespace), "tables")):
            yield from (identifier["name"] for identifier in page["identifiers"])

    def load_table(self, namespace: Namespace, table: str, snapshots: str = "all") -> Json:
        """The table as Iceberg's clients get it: `metadata-location`, `metadata`, `config`. NoTable."""
        path = self.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table))
        return self.get(path, {"snapshots": snapshots})

    def table_exists(self, namespace: Namespace, table: str) -> bool:
        path = self.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table))
        return self._ask(_CatalogRequest("HEAD", path)).status != 404

    def namespace_exists(self, namespace: Namespace) -> bool:
        return self._ask(_CatalogRequest("HEAD", self.iceberg("namespaces", encode_namespace(namespace)))).status != 404

    def make_namespace(self, namespace: Namespace, properties: Mapping[str, str] | None = None) -> bool:
        """Whether it was made: one that is there needs no right to make any."""
        if self.namespace_exists(namespace):
            return False
        with suppress(JobConflict):  # somebody else has just made it
            self.post(self.iceberg("namespaces"), {"namespace": list(namespace), "properties": dict(properties or {})})
            return True
        return False

    def namespace_properties(self, namespace: Namespace) -> Json:
        return self.get(self.iceberg("namespaces", encode_namespace(namespace)))["properties"]

    def drop_namespace(self, namespace: Namespace) -> None:
        """JobConflict if there is something in it."""
        self._ask(_CatalogRequest("DELETE", self.iceberg("namespaces", encode_namespace(namespace))))

    def flush_rows(self, namespace: Namespace, table: str) -> Json:
        """Have the rows that the table keeps in Postgres written to files: `rows`, `deletes`, `files`, `snapshot-id`.

        The latter is DuckLake's, None if there were none. Sent again where the catalog is busy, it is done once.
        """
        path = self.iceberg("namespaces", encode_namespace(namespace), "tables", encode_segment(table), "rows", "flush")
        return self._ask(_CatalogRequest("POST", path, {}, create_request_key(), _FLUSH_SECONDS)).body

    def begin_job(self, namespace: Namespace, table: str, job: Json) -> Json:
        """JobConflict says who has the lease. May be sent again with the same id; `running.py` is how jobs do it."""
        return self.post(build_jobs_path(namespace, table), job)

    def renew_job(self, namespace: Namespace, table: str, job_id: str, body: Json) -> Json:
        """JobConflict: the job is over."""
        return self.post(f"{build_jobs_path(namespace, table)}/{job_id}", body)

    def end_job(self, namespace: Namespace, table: str, job_id: str, body: Json) -> Json:
        """JobConflict: it was over before, with another result."""
        return self.post(f"{build_jobs_path(namespace, table)}/{job_id}/end", body)

    def jobs(self, **filters: str) -> Iterator[Json]:
        """Jobs, newest first. Filters: namespace (levels joined by U+001F), table, kind, run_id, result."""
        query = {name.replace("_", "-"): value for name, value in filters.items()}
        for page in self.pages("/pipeline/v1/jobs", query):
            yield from page["jobs"]

    def run(self, namespace: Namespace, table: str, run_id: str) -> Json | None:
        """What a run committed to a table last: `epoch`, `snapshot-id`, `summary`; None if nothing."""
        path = f"/pipeline/v1/namespaces/{encode_namespace(namespace)}/tables/{encode_segment(table)}/runs"
        found = self.get(path, {"run-id": run_id})["runs"]
        return found[0] if found else None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """The JSON at a path, asked for again while the catalog is busy."""
        return self._ask(_CatalogRequest("GET", f"{path}?{urlencode(query)}" if query else path)).body

    def post(self, path: str, body: Json) -> Json:
        """Send what may be sent twice."""
        return self._ask(_CatalogRequest("POST", path, body)).body

    def pages(self, path: str, query: Mapping[str, str] | None = None) -> Iterator[Json]:
        """Every page of a listing."""
        token = ""
        while token is not None:
            page = self.get(path, {**(query or {}), "pageToken": token})
            yield page
            token = page.get("next-page-token")

    def iceberg(self, *segments: str) -> str:
        """The path of one of Iceberg's routes, with the prefix that the catalog wants."""
        if self._prefix is None:
            config = self.config()
            self._prefix = str((config.get("defaults", {}) | config.get("overrides", {})).get("prefix", ""))
        return "/".join(("/v1", *((self._prefix,) if self._prefix else ()), *segments))

    def _ask(self, question: _CatalogRequest) -> JsonAnswer:
        """Ask until the catalog isn't busy, with a token that holds. A 404 of a HEAD is an answer."""
        answer = self._retry(question, self.logged_in())
        if answer.status == 401 and self.connection.credential is not None:
            answer = self._retry(question, self.logged_in(anew=True))
        if answer.status >= 400 and (question.method, answer.status) != ("HEAD", 404):
            raise build_error(answer, f"{question.method} {self._uri}{question.path}")
        if answer.body is None:
            raise CatalogUnreachable(f"{self._uri} is no Iceberg REST catalog: it answers, but not with JSON")
        return answer

    def _retry(self, question: _CatalogRequest, token: str | None) -> JsonAnswer:
        for pause in _PAUSE_SECONDS:
            answer = self._once(question, token)
            if answer.status not in _BUSY_STATUSES:
                return answer
            time.sleep(pause)
        return self._once(question, token)

    def _once(self, question: _CatalogRequest, token: str | None) -> JsonAnswer:
        url = self._uri + question.path
        return send_request(
            question.method, url, body=question.body, token=token, key=question.key, seconds=question.seconds
        )

    def logged_in(self, *, anew: bool = False) -> str | None:
        """The token, got with the credential where there is none yet; None where neither is needed."""
        with self._lock:
            if self.connection.credential is not None and (anew or self._token is None):
                self._token = log_in(self.connection)
            return self._token


def encode_namespace(namespace: Namespace) -> str:
    """A namespace as a segment of a path."""
    return "%1F".join(map(encode_segment, namespace))


def encode_segment(name: str) -> str:
    """A name as a segment of a path."""
    return quote(name, safe="")


def build_jobs_path(namespace: Namespace, table: str) -> str:
    return f"/pipeline/v1/namespaces/{encode_namespace(namespace)}/tables/{encode_segment(table)}/jobs"


def build_error(answer: JsonAnswer, asked: str) -> PipelineError:
    """What an answer that is no success means. asked: method and address."""
    kind, message = answer.problem
    if answer.status == 401:
        return BadCredentials(f"{asked}: {message}; give --credential or --token")
    if answer.status >= 500 or answer.status in _BUSY_STATUSES:
        return CatalogUnreachable(f"{asked} can't be served now ({answer.status}): {message}")
    if kind == "" and answer.status == 404:
        return CatalogUnreachable(f"{asked} isn't there: is it the URI of an Iceberg REST catalog?")
    return _STATUS_ERRORS.get(answer.status, PipelineError)(message)
