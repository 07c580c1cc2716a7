"""Deliver row changes to a webhook, as Standard Webhooks say: signed, and again until they are taken."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from duckicelake.errors import BadInputError, CatalogError, DeliveryError, format_count
from duckicelake.rest.http import BUSY_STATUSES, HttpConnection, HttpResponse, NoAnswerError
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.rest.retry import RetryPolicy, parse_retry_after
from duckicelake.row_changes.sinks import FollowedTable, SinkOptions, StateFile

if TYPE_CHECKING:
    from duckicelake.row_changes.position import RowChangePosition

MAX_MESSAGE_ROWS: Final = 500
"""Of one message; a longer snapshot takes several."""
MAX_MESSAGE_BYTES: Final = 1_048_576
"""Of the body of a message, unless one row has more: what nginx takes by default."""
_TOO_LARGE_STATUS: Final = 413
_WRITTEN_KEY: Final = "whsec_"
"""How the text of a secret begins."""
_MIN_SECRET_BYTES: Final = 16
_TAIL: Final = b"]}}"
"""Of a message."""
_SPARE_BYTES: Final = 64
"""For a position that becomes longer."""
_EXCERPT_CHARS: Final = 200
_ANSWER_BYTES: Final = 65_536
_ASK_SECONDS: Final = 30.0
_SOON_STATUSES: Final = BUSY_STATUSES | {425} | {*range(500, 600)}
"""Proxies have statuses of their own above 504 for a receiver that is away."""


def open_webhook(options: SinkOptions) -> WebhookSink:
    """Open a webhook. Raises BadInputError for one that can't be."""
    if options.state is None:
        raise BadInputError("A webhook keeps no position: name a file for it by --state")
    if options.secret is None:
        raise BadInputError("A webhook needs a secret that signs its messages: DUCKICELAKE_CLIENT_WEBHOOK_SECRET")
    url = str(options.url)
    try:
        guard = OutboundGuard.parse(options.allowed)
        guard.check_url(url, what="webhook", needs_address=False)
    except CatalogError as error:
        raise BadInputError(f"{error} (here: --allow-address)") from error
    return WebhookSink(url, parse_secret(options.secret), guard, options.table, options.state, options.retry_seconds)


def parse_secret(text: str) -> bytes:
    """Parse the secret of a webhook, as Standard Webhooks write it. Raises BadInputError, without the secret."""
    try:
        found = base64.b64decode(text.removeprefix(_WRITTEN_KEY), validate=True)
    except ValueError:
        found = b""
    if len(found) < _MIN_SECRET_BYTES:
        raise BadInputError(
            f"Invalid webhook secret: expected {_WRITTEN_KEY} and base64 of at least {_MIN_SECRET_BYTES} bytes"
        )
    return found


def sign_message(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Sign a message as Standard Webhooks say."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


class WebhookSink:
    """Posts the changes of each snapshot, in messages of so many rows and bytes at most.

    A message begins behind the last one that was taken, and its id says where it begins and ends. So a message that is
    sent again has the same id and rows. One whose rows have become longer or shorter, as by a column that was added,
    may end elsewhere, and is another message.
    """

    def __init__(
        self, url: str, secret: bytes, guard: OutboundGuard, table: str, state: StateFile, retry_seconds: float
    ) -> None:
        parts = urlsplit(url)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._path = url.removeprefix(self._server) or "/"
        self._http = HttpConnection(self._server, guard)
        self._secret, self._table, self._state, self._retry_seconds = secret, table, state, retry_seconds
        self._lines: list[bytes] = []
        self._bytes = 0
        """Of the message with these lines, or some more."""
        self._last = FollowedTable()

    def find_place(self) -> FollowedTable:
        """Find where to go on: behind the last message that was taken."""
        return self._state.read()

    def take(self, line: bytes, row: Mapping[str, Any], place: FollowedTable) -> None:
        """Take a row, and post the message that it ends."""
        position, last = place.change, self._last.change
        assert position is not None
        is_full = self._bytes + len(line) > MAX_MESSAGE_BYTES
        if self._lines and last is not None and (is_full or last.snapshot_id != row["_commit_snapshot_id"]):
            self._post(last)
        self._last = place
        if not self._lines:
            self._bytes = len(self._write_head(position)) + len(_TAIL) + _SPARE_BYTES
        self._lines.append(line)
        self._bytes += len(line) + 1
        if position.rows % MAX_MESSAGE_ROWS == 0:
            self._post(position)

    def keep(self, place: FollowedTable) -> None:
        """Post what a complete snapshot has left; an answer that ended in the middle of one goes on in the next."""
        position, last = place.change, self._last.change
        if position is None or position.rows:
            return
        if self._lines and last is not None:
            self._post(last)
        self._state.write(place)

    def _post(self, last: RowChangePosition) -> None:
        """Post the rows up to a position, and keep it. Raises DeliveryError."""
        first = last.rows - len(self._lines)
        body = self._write_head(last) + b",".join(self._lines) + _TAIL
        self._deliver(f"{self._last.table_uuid}.{last.snapshot_id}.{first}-{last.rows}", body)
        self._lines = []
        self._state.write(self._last)

    def _write_head(self, last: RowChangePosition) -> bytes:
        """Write what comes before the rows."""
        data = {"table": self._table, "table-uuid": self._last.table_uuid, "position": str(last)}
        return json.dumps({"type": "table.rows-changed", "data": data})[:-2].encode() + b', "changes": ['

    def _deliver(self, message_id: str, body: bytes) -> None:
        retry = RetryPolicy(self._retry_seconds)
        while True:
            problem, is_final, wait = self._try(message_id, body)
            if problem is None:
                return
            pause = None if is_final else retry.pause(wait)
            if pause is None:
                tries = "" if is_final else f" after {retry.attempts} attempts"
                raise DeliveryError(
                    f"{self._server} hasn't taken message {message_id}{tries}: {problem}; "
                    f"{self._state.path} has the position before it: the next run goes on there"
                )
            time.sleep(pause)

    def _try(self, message_id: str, body: bytes) -> tuple[str | None, bool, float | None]:
        """Post once; return what is wrong, whether for ever, and the seconds that the receiver asks for."""
        now = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign_message(self._secret, message_id, now, body),
        }
        try:
            answer = self._http.ask(
                "POST",
                self._path,
                headers,
                body,
                seconds=_ASK_SECONDS,
                is_timed=True,
                most_bytes=_ANSWER_BYTES,
                is_cut=True,
            )
        except NoAnswerError as error:
            return str(error), False, None
        if answer.status < 300:
            return None, False, None
        retry_after = parse_retry_after(answer.headers.get("retry-after"))
        problem = _describe(answer)
        if answer.status == _TOO_LARGE_STATUS:
            problem = f"{problem}; {self._describe_longest(len(body))}"
        return problem, answer.status not in _SOON_STATUSES, retry_after

    def _describe_longest(self, size: int) -> str:
        """Describe a message that is too large. size: of its body."""
        last = self._last.change
        assert last is not None
        longest = max(range(len(self._lines)), key=lambda at: len(self._lines[at]))
        number = last.rows - len(self._lines) + longest + 1
        return (
            f"the message has {size:,} bytes in {format_count(len(self._lines), 'row')}, the longest of them "
            f"{len(self._lines[longest]):,} bytes: number {number} of snapshot {last.snapshot_id}. Let the receiver "
            "take more, or leave columns out by --columns"
        )


def _describe(answer: HttpResponse) -> str:
    """Describe a refusal in a line."""
    if "location" in answer.headers:
        return f"status {answer.status}: it is at {answer.headers['location'][:_EXCERPT_CHARS]}; name that"
    text = " ".join(answer.body.decode(errors="replace").split())[:_EXCERPT_CHARS]
    return f"status {answer.status}: {text}" if text else f"status {answer.status}"
