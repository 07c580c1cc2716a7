"""PURE. Programs that go on and on, such as those that post rows: all that one does in a while is one run.

Its first change begins the run, which then tells at most every few seconds how far it is, and is over when nothing has
come for a while. What is open is JSON, to be kept between two looks at the chronicle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Self

from duckicelake.lineage.engines import is_streaming
from duckicelake.lineage.jobs import identity_of, tells_table
from duckicelake.lineage.outputs import counts_of, with_counts
from duckicelake.lineage.runs import Run, event
from duckicelake.lineage.told import Json


@dataclass(frozen=True, slots=True)
class Pace:
    """When a stream tells how far it is, when it is over, and when it is cut; most: how many may be open."""

    telling: timedelta = timedelta(seconds=10)
    idle: timedelta = timedelta(seconds=10)
    longest: timedelta = timedelta(hours=1)
    most: int = 200


PACE: Final = Pace()


@dataclass(frozen=True, slots=True)
class Stream:
    """An open run. body: as it was told, or kept, last; latest: what has come since. counts: of all of it."""

    body: Json
    counts: dict[str, int]
    started: datetime
    last: datetime
    told: datetime
    latest: Run = field(default_factory=list)

    def to_json(self) -> Json:
        times = {name: getattr(self, name).isoformat() for name in ("started", "last", "told")}
        return {"body": self.body, "counts": self.counts, **times}

    @classmethod
    def from_json(cls, kept: Json) -> Self:
        times = {name: datetime.fromisoformat(kept[name]) for name in ("started", "last", "told")}
        return cls(kept["body"], kept["counts"], times["started"], times["last"], times["told"])


class Streams:
    """Those that are open, by identities of their jobs, and the events that come of them. describe: a run's body."""

    def __init__(self, kept: Sequence[Json], describe: Callable[[Run], Json], pace: Pace = PACE) -> None:
        self._describe = describe
        self._pace = pace
        self._open = {identity_of(each["body"]["job"]["name"]): Stream.from_json(each) for each in kept}
        self.events: list[Json] = []

    def add(self, name: str, run: Run) -> None:
        """Take the next run of the job of this name, in the order of the chronicle."""
        at, counts, name = run[0].change.at, counts_of(run), identity_of(name)
        known = self._open.get(name)
        if known is not None and self._is_over(known, at):
            self._end(name)
            known = None
        if known is None:
            body = self._describe(run)
            self.events.append(event(body, "START", at))
            self._open[name] = self._told(Stream(body, counts, at, at, at))
            return
        total = {key: known.counts.get(key, 0) + counts.get(key, 0) for key in sorted({*known.counts, *counts})}
        stream = replace(known, counts=total, last=at, latest=run)
        self._open[name] = self._told(stream) if at - known.told >= self._pace.telling else stream

    def pass_until(self, now: datetime) -> None:
        """Let time pass: what has said nothing for long enough is over, and so are the oldest if there are too many."""
        oldest_first = sorted(self._open, key=lambda name: self._open[name].last)
        too_many = oldest_first[: max(0, len(oldest_first) - self._pace.most)]
        for name in oldest_first:
            if name in too_many or now - self._open[name].last >= self._pace.idle:
                self._end(name)

    def kept(self) -> list[Json]:
        """What is open."""
        self._open = {name: self._current(stream) for name, stream in self._open.items()}
        return [stream.to_json() for stream in self._open.values()]

    def _is_over(self, stream: Stream, at: datetime) -> bool:
        return at - stream.last >= self._pace.idle or at - stream.started >= self._pace.longest

    def _told(self, stream: Stream) -> Stream:
        current = self._current(stream)
        self.events.append(event(current.body, "RUNNING", current.last))
        return replace(current, told=current.last)

    def _end(self, name: str) -> None:
        current = self._current(self._open.pop(name))
        self.events.append(event(current.body, "COMPLETE", current.last))

    def _current(self, stream: Stream) -> Stream:
        """With the body as of its last change."""
        if not stream.latest:
            return stream
        body = self._describe(stream.latest)
        run = {**body["run"], "runId": stream.body["run"]["runId"]}
        job = body["job"] if tells_table(stream.body["job"]["name"]) else stream.body["job"]
        outputs = [with_counts(output, stream.counts) for output in body["outputs"]]
        return replace(stream, body={**body, "run": run, "job": job, "outputs": outputs}, latest=[])


def is_of_stream(run: Run) -> bool:
    """Whether it is part of a stream, rather than a run of its own."""
    return len(run) == 1 and is_streaming(run[0])
