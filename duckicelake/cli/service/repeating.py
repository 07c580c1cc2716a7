"""Answers to requests that came before, without parsing them, a task, or a layer of the app."""

from functools import lru_cache, partial
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from duckicelake.cli.service.impatience import ImpatientProtocol
from duckicelake.cli.service.repeats import Key, key_of
from duckicelake.server.feed.endings import end_answer
from duckicelake.server.headers import Header
from duckicelake.server.quick.repeats import REPEATS, Answer

_LONGEST: Final = 16 * 1024
"""Bytes of a request that is worth remembering."""
_ANSWERED_AGAIN: Final = (b"GET ", b"HEAD ")
"""How requests begin that may be answered again."""


class RepeatingProtocol(ImpatientProtocol):
    """Tells requests that are sent whole, in one piece and one at a time, by their bytes; others go the usual way."""

    _begun = 0
    """Requests that the parser has seen the first byte of."""
    _is_between = True
    """Whether it has seen the last byte of each."""
    _repeated: tuple[Key, bytes] | None = None
    """The request that the app answers again just now."""
    _held = b""
    """What came meanwhile."""
    _is_ending = False

    def data_received(self, data: bytes) -> None:
        if self._repeated is not None:
            self._held += data
            self.flow.pause_reading()
        elif self._may_be_repeated(data):
            self._receive(data, key_of(self._address(), data))
        else:
            super().data_received(data)

    def _may_be_repeated(self, data: bytes) -> bool:
        is_next = self._is_between and self._is_idle() and not self.flow.write_paused
        return is_next and len(data) <= _LONGEST and data.startswith(_ANSWERED_AGAIN)

    def is_waiting(self) -> bool:
        return self._repeated is None and super().is_waiting()

    def on_message_begin(self) -> None:
        self._begun += 1
        self._is_between = False
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._is_between = True
        super().on_message_complete()

    def shutdown(self) -> None:
        if self._repeated is None:
            super().shutdown()
            self._end_answer()
        self._is_ending = True

    def _end_answer(self) -> None:
        if not self._is_idle():
            end_answer(self.cycle.scope["state"])

    def _receive(self, data: bytes, key: Key) -> None:
        """Take what may be a request that came before."""
        repeat = self.config.repeats.find(key)
        if repeat is not None and repeat(self.client[1] if self.client else 0, self._answer):
            self._repeated = key, data
            self._unset_keepalive_if_required()
            self._stop_timer()
        else:
            self._read(data, key)

    def _read(self, data: bytes, key: Key) -> None:
        begun = self._begun
        super().data_received(data)
        if self._begun == begun + 1 and self._is_between and self.cycle is not None and self.cycle.keep_alive:
            # Its task hasn't begun yet.
            self.scope["extensions"] = {REPEATS: {"learn": partial(self.config.repeats.learn, key)}}

    def _answer(self, answer: Answer | None) -> None:
        """A `Reply`."""
        assert self._repeated is not None
        (key, data), self._repeated = self._repeated, None
        if self.transport.is_closing():
            return
        if answer is None:
            self._read(data, key)
        else:
            self.transport.write(self._encoded(answer))
            self.on_response_complete()
        self._go_on()

    def _go_on(self) -> None:
        held, self._held = self._held, b""
        if self._is_ending:
            super().shutdown()
        elif held:
            self.flow.resume_reading()
            self.data_received(held)

    def _encoded(self, answer: Answer) -> bytes:
        head = _head(answer.status, answer.headers)
        servers = [b"%b: %b\r\n" % header for header in self.server_state.default_headers]
        own = b"x-request-id: %b\r\n\r\n" % answer.request_id.encode()
        return b"".join((head, *servers, own, *answer.pieces))


@lru_cache(4096)
def _head(status: int, headers: tuple[Header, ...]) -> bytes:
    return b"".join((STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers)))
