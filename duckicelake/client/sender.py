"""Send batches of rows until they are answered; each batch takes effect once."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlencode

from duckicelake.client.batch import Portion
from duckicelake.errors import CatalogUnreachableError, InvalidCatalogUriError, JobConflictError, PipelineError
from duckicelake.rest.client import CatalogClient, build_error, encode_namespace, encode_segment
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import (
    BUSY_STATUSES,
    HttpConnection,
    HttpResponse,
    JsonAnswer,
    NoAnswerError,
    create_request_key,
    parse_json,
)
from duckicelake.rest.login import LoginKeeper
from duckicelake.rest.names import parse_table
from duckicelake.rest.retry import RetryPolicy, parse_retry_after

OnUnknown: TypeAlias = Literal["reject", "ignore"]
T = TypeVar("T")

FIRST_CONTACT_SECONDS: Final = 10.0
"""Retry time for a server that has never answered: its address may be wrong."""


class RetryableError(Exception):
    """The request may be sent again, after `retry_after` seconds if the server asks for a pause."""

    def __init__(self, why: str, *, retry_after: float | None = None, is_unsent: bool = False) -> None:
        super().__init__(why)
        self.retry_after = retry_after
        self.is_unsent = is_unsent


@dataclass(frozen=True, slots=True)
class WriterTarget:
    """The table that a writer writes to. app_id: the name of a stream that can be resumed."""

    table: str
    connection: Connection
    on_unknown: OnUnknown = "reject"
    app_id: str | None = None
    retry_seconds: float = 300.0


class Sender:
    """Send the batches of one stream, one at a time.

    Attributes:
        retries: number of repeated requests.
        trouble: the failure that it waits out now, None without one.

    """

    def __init__(self, target: WriterTarget, stopped: threading.Event) -> None:
        self._target = target
        self._table = parse_table(target.table)
        self._stopped = stopped
        self._catalog = CatalogClient(target.connection, LoginKeeper(target.connection.uri))
        self._http = HttpConnection(target.connection.uri)
        self._path: str | None = None
        self._applied: int | None = None if target.app_id else 0
        self._is_stranger = True
        self.retries = 0
        self.trouble: str | None = None

    def read_applied(self) -> int:
        """Return how many rows of the stream an earlier writer has written. The server is asked once."""
        if self._applied is None:
            producer = f"/producers/{encode_segment(self._target.app_id or '')}"
            answer = self._retry(lambda: self._ask("GET", producer, {}, {}, None))
            self._applied = int(answer["sequence"] or 0)
        return self._applied

    def send(self, portion: Portion, first: int) -> int:
        """Write a portion, `first` rows after the stream's begin; return DuckLake's snapshot of its rows.

        Raises:
            PipelineError: the rows can't be written; the message names the reason.

        """
        query: dict[str, str | int] = {"on-unknown": "ignore"} if self._target.on_unknown == "ignore" else {}
        if self._target.app_id:
            query |= {"app-id": self._target.app_id, "sequence": first + portion.count}
        headers = {"Content-Type": portion.content_type, "Idempotency-Key": str(create_request_key())}
        body = portion.body()
        answer = self._retry(lambda: self._ask("POST", "", query, headers, body))
        return int(answer["snapshot-id"])

    def close(self) -> None:
        self._http.close()

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Repeat the attempt until it succeeds. Raises CatalogUnreachableError when RetryPolicy gives up."""
        seconds = (
            min(FIRST_CONTACT_SECONDS, self._target.retry_seconds) if self._is_stranger else self._target.retry_seconds
        )
        policy, is_unsent = RetryPolicy(seconds), True
        while True:
            try:
                found = attempt()
            except RetryableError as again:
                is_unsent &= again.is_unsent
                self._wait(again, policy, is_unsent=is_unsent)
            else:
                self.trouble = None
                return found

    def _wait(self, again: RetryableError, policy: RetryPolicy, *, is_unsent: bool) -> None:
        pause = policy.pause(again.retry_after)
        self.trouble = str(again)
        if pause is None or self._stopped.wait(pause):
            outcome = "" if is_unsent else "; whether the last batch was written isn't known"
            raise CatalogUnreachableError(f"{again}; gave up after {policy.attempts} attempts{outcome}") from again
        self.retries += 1

    def _ask(self, method: str, rest: str, query: Mapping[str, Any], headers: Mapping[str, str], body: Any) -> Any:
        """Send a request and return its JSON. rest: the path behind the table's `rows`.

        Raises:
            RetryableError: the request may be sent again.
            PipelineError: the server refused it.

        """
        path = f"{self._rows_path()}{rest}"
        full = f"{path}?{urlencode(query)}" if query else path
        answer = self._once(method, full, headers, body)
        if answer.status == 401 and self._catalog.can_renew_token:
            answer = self._once(method, full, headers, body, renew=True)
        read = JsonAnswer(answer.status, parse_json(answer.body) if answer.body else None)
        if 200 <= answer.status < 300 and isinstance(read.body, dict):
            return read.body
        raise self._build_error(read, answer, f"{method} {self._target.connection.uri.rstrip('/')}{path}")

    def _once(self, method: str, path: str, headers: Mapping[str, str], body: Any, renew: bool = False) -> HttpResponse:
        token = self._reach(lambda: self._catalog.get_token(renew=renew))
        authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            answer = self._http.ask(method, path, {**headers, **authorization}, body)
        except NoAnswerError as error:
            raise RetryableError(str(error), is_unsent=error.is_unsent) from error
        self._is_stranger = False
        return answer

    def _rows_path(self) -> str:
        if self._path is None:
            namespace, table = self._table
            levels = "namespaces", encode_namespace(namespace), "tables", encode_segment(table), "rows"
            self._path = self._reach(lambda: self._catalog.iceberg(*levels))
        return self._path

    def _reach(self, ask: Callable[[], T]) -> T:
        """Call the catalog. Raises RetryableError if it can't be reached now."""
        try:
            return ask()
        except InvalidCatalogUriError:
            raise
        except CatalogUnreachableError as error:
            raise RetryableError(str(error), is_unsent=True) from error

    def _build_error(self, read: JsonAnswer, answer: HttpResponse, asked: str) -> Exception:
        kind, message = read.problem
        if read.status in BUSY_STATUSES or kind == "CommitStateUnknownException":
            retry_after = parse_retry_after(answer.headers.get("retry-after"))
            return RetryableError(f"{asked}: {message}", retry_after=retry_after, is_unsent=read.status == 429)
        if kind == "AlreadyAppliedException":
            return JobConflictError(f"another writer has the stream {self._target.app_id!r}: {message}")
        if read.status == 413:
            return PipelineError(f"{message}; send smaller batches, or raise DUCKICELAKE_MAX_BODY_BYTES")
        return build_error(read, asked)
