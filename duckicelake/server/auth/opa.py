"""Ask an OPA-compatible service for decisions: `POST /v1/data/<package>/<rule>`, many in one request.

The input is like that of Trino's batched filtering: `context.identity`, and `action.filterResources`, whose indexes the
rule returns as those that are allowed. Each resource also names the operation. Whatever isn't a clear answer is none:
requests then end with a 503, for which the service is asked again after a pause.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import BoundedSemaphore, Lock
from typing import Any, Final
from urllib.parse import urlsplit

from duckicelake.catalog.context.outside import OutsideQuestion, Place
from duckicelake.catalog.context.privileges import NO_PRIVILEGE, Privilege, list_names, parse_mark
from duckicelake.errors import CatalogUnreachableError, UnavailableError
from duckicelake.iceberg.identifiers import to_schema_name
from duckicelake.rest.http import HttpConnection, NoAnswerError, parse_json

_CONCURRENT: Final = 8
"""Requests that a worker has under way at a time; others wait for their turn."""
_MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_TEXT_CHARS: Final = 200
_PAUSE_SECONDS: Final = 0.5
"""Seconds after a failure in which the service isn't asked again: requests would only queue up."""

_Key = tuple[str, str, tuple[str, ...], Place]


@dataclass(frozen=True, slots=True)
class OpaOptions:
    """Where and how to ask.

    Attributes:
        url: of the rule: `https://opa:8181/v1/data/duckicelake/allow`.
        token: sent as a Bearer token.
        seconds: longest wait for an answer.
        cache_seconds: how long a decision is kept.
        cache_max: decisions that are kept, one for each principal and object.

    """

    url: str
    token: str | None = field(default=None, repr=False)
    seconds: float = 2
    cache_seconds: float = 5
    cache_max: int = 10_000


@dataclass(frozen=True, slots=True)
class _Kept:
    """A decision. privileges: which were asked about. until: counted from before it was asked for."""

    privileges: Privilege
    allowed: Privilege
    until: float


class OpaDecisions:
    """Decisions of an OPA-compatible service; an `OutsideDecisions`."""

    def __init__(self, options: OpaOptions, clock: Callable[[], float] = time.monotonic) -> None:
        parts = urlsplit(options.url)
        server = f"{parts.scheme}://{parts.netloc}"
        self._options = options
        self._path = options.url.removeprefix(server)
        self._http = HttpConnection(server)
        self._clock = clock
        self._turns = BoundedSemaphore(_CONCURRENT)
        self._workers = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="outside")
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._lock = Lock()
        self._counts = {"asked": 0, "cached": 0, "refused": 0, "failed": 0, "requests": 0}
        self._seconds = 0.0
        self._failure: tuple[str, float] = ("", float("-inf"))

    def statistics(self) -> Mapping[str, int]:
        """Return counts of decisions and of requests, and the milliseconds that these took, for metrics."""
        return {**self._counts, "ms": int(self._seconds * 1000)}

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def decide(
        self, principal: str, groups: Sequence[str], warehouse: str, asked: Sequence[OutsideQuestion]
    ) -> list[Privilege]:
        """Return which privileges of each question may be used; UnavailableError if that can't be found out."""
        keys: list[_Key] = [(warehouse, principal, tuple(groups), question.place) for question in asked]
        found = [self._find_kept(key, question.privileges) for key, question in zip(keys, asked, strict=True)]
        missing = [number for number, allowed in enumerate(found) if allowed is None]
        self._count("cached", len(asked) - len(missing))
        if missing:
            until = self._clock() + self._options.cache_seconds
            wanted = [asked[number] for number in missing]
            answers = self._ask(principal, groups, warehouse, wanted)
            for number, allowed in zip(missing, answers, strict=True):
                found[number] = allowed
                self._keep(keys[number], _Kept(asked[number].privileges, allowed, until))
        return [NO_PRIVILEGE if allowed is None else allowed for allowed in found]

    def _find_kept(self, key: _Key, privileges: Privilege) -> Privilege | None:
        kept = self._kept.get(key)
        if kept is None or kept.until <= self._clock() or privileges not in kept.privileges:
            return None
        return kept.allowed & privileges

    def _keep(self, key: _Key, kept: _Kept) -> None:
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = kept
            while len(self._kept) > self._options.cache_max:
                self._kept.popitem(last=False)

    def _ask(
        self, principal: str, groups: Sequence[str], warehouse: str, asked: Sequence[OutsideQuestion]
    ) -> list[Privilege]:
        """Ask the service in one request."""
        items = [(number, name) for number, question in enumerate(asked) for name in list_names(question.privileges)]
        resources = [describe_resource(warehouse, asked[number].place, name) for number, name in items]
        document = {"input": build_input(principal, groups, resources)}
        with self._measure(len(asked)):
            allowed = _parse_answer(self._send_in_turn(json.dumps(document).encode()), len(items))
        found = [NO_PRIVILEGE] * len(asked)
        for index in allowed:
            number, name = items[index]
            found[number] |= parse_mark(name)
        refused = sum(answer != question.privileges for answer, question in zip(found, asked, strict=True))
        self._count("refused", refused)
        return found

    @contextmanager
    def _measure(self, decisions: int) -> Iterator[None]:
        """Turn what goes wrong into a 503, and count; for a moment after a failure, ask nothing."""
        started = time.monotonic()
        try:
            self._refuse_while_failed()
            yield
        except (NoAnswerError, CatalogUnreachableError, ValueError) as error:
            self._note_failure(error)
            self._count("failed", decisions)
            raise _build_error(self._failure[0]) from error
        except UnavailableError:
            self._count("failed", decisions)
            raise
        finally:
            with self._lock:
                self._seconds += time.monotonic() - started
        self._count("asked", decisions)

    def _note_failure(self, error: BaseException) -> None:
        self._failure = str(error)[:_MAX_TEXT_CHARS], self._clock() + _PAUSE_SECONDS

    def _refuse_while_failed(self) -> None:
        reason, until = self._failure
        if self._clock() < until:
            raise _build_error(reason)

    def _send_in_turn(self, body: bytes) -> bytes:
        """Send a request when few others are under way. The wait ends in time, even where the resolver doesn't answer.

        A turn lasts until its thread has ended, so what hangs takes no more threads.
        """
        seconds = self._options.seconds
        if not self._turns.acquire(timeout=seconds):
            raise _build_error("it is asked about more than it answers")
        try:
            self._refuse_while_failed()
            sent = self._workers.submit(self._send, body)
        except BaseException:
            self._turns.release()
            raise
        sent.add_done_callback(partial(self._end_turn, time.monotonic() + seconds))
        self._count("requests", 1)
        try:
            return sent.result(seconds)
        except TimeoutError as error:
            raise NoAnswerError(f"{self._http.uri} doesn't answer in {seconds:g} s", is_unsent=False) from error

    def _end_turn(self, until: float, sent: Future[bytes]) -> None:
        """Let the next one ask; one who waited finds the failure, and doesn't find it out anew.

        until: when the caller gave up, which is the failure then; what comes later says nothing of now.
        """
        error = None if sent.cancelled() else sent.exception()
        if error is not None and time.monotonic() < until:
            self._note_failure(error)
        self._turns.release()

    def _send(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._options.token is not None:
            headers["Authorization"] = f"Bearer {self._options.token}"
        answer = self._http.ask(
            "POST",
            self._path,
            headers,
            body,
            seconds=self._options.seconds,
            most_bytes=_MAX_ANSWER_BYTES,
            is_timed=True,
            may_repeat=True,
        )
        if answer.status != 200:
            raise ValueError(f"it answers with status {answer.status}")
        return answer.body

    def _count(self, what: str, number: int) -> None:
        if number:
            with self._lock:
                self._counts[what] += number


def build_input(principal: str, groups: Sequence[str], resources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build the input of the rule for operations of one principal."""
    return {
        "context": {
            "identity": {"user": principal, "groups": list(groups)},
            "softwareStack": {"name": "duckicelake"},
        },
        "action": {"operation": "FilterResources", "filterResources": list(resources)},
    }


def describe_resource(warehouse: str, place: Place, operation: str) -> dict[str, Any]:
    """Describe an operation on an object, the object as Trino describes it to OPA."""
    namespace, name = place
    if not namespace:
        return {"operation": operation, "catalog": {"name": warehouse}}
    schema = {"catalogName": warehouse, "schemaName": to_schema_name(namespace), "namespace": list(namespace)}
    if not name:
        return {"operation": operation, "schema": schema}
    return {"operation": operation, "table": {**schema, "tableName": name}}


def _parse_answer(body: bytes, items: int) -> frozenset[int]:
    """Parse the indexes of what is allowed. Raises ValueError for anything else, which is no decision."""
    document = parse_json(body)
    if not isinstance(document, dict):
        raise ValueError("its answer is no JSON object")  # noqa: TRY004 - what a server says, not a type of ours
    if "result" not in document:
        raise ValueError("it has no such rule: check the path of DUCKICELAKE_OPA_URL, and that the policy is loaded")
    result = document["result"]
    if not isinstance(result, list) or not all(type(index) is int and 0 <= index < items for index in result):
        raise ValueError("its result isn't a list of indexes of what is allowed")
    return frozenset(result)


def _build_error(reason: str) -> UnavailableError:
    return UnavailableError(f"The outside decision can't be had now, so nothing is allowed; try again: {reason}")
