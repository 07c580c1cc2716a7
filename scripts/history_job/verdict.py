"""What must hold of a history, from the clients' word alone: pure, and the same for every reader and moment.

An acknowledged operation is there from its answer on, a refused one never, an unknown one there or not; each is there
once and as a whole. A read that began after an answer shows what was answered.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from scripts.history_job.history import (
    SMALL_INSERT,
    Anomaly,
    Domain,
    History,
    Observation,
    Operation,
    Outcome,
    Token,
)


@dataclass(slots=True)
class _Claims:
    """The operations by what they add and remove; refused ones remove nothing."""

    adder: dict[Token, Operation] = field(default_factory=dict)
    removers: dict[Token, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[Domain, list[Token]] = field(default_factory=lambda: defaultdict(list))
    operations: dict[Domain, list[Operation]] = field(default_factory=lambda: defaultdict(list))

    def may_be_removed(self, token: Token, by: int) -> bool:
        return any(each.invoked < by for each in self.removers.get(token, ()))


def judge(history: History) -> list[Anomaly]:
    """Everything that is wrong with it."""
    claims = _claims(history.operations)
    found = list(history.anomalies)
    found += [
        Anomaly("wrong yes", f"{_name(operation)} was acknowledged, but a requirement doesn't hold")
        for operation in history.operations
        if operation.must_fail and operation.outcome is Outcome.ACKNOWLEDGED
    ]
    for observation in history.observations:
        found.extend(_judge_tokens(claims, observation))
        found.extend(_judge_wholes(claims, observation))
    found.extend(_judge_versions(history))
    return found


def _claims(operations: Iterable[Operation]) -> _Claims:
    claims = _Claims()
    for operation in operations:
        domains = {token[:2] for token in (*operation.adds, *operation.removes)}
        for domain in domains:
            claims.operations[domain].append(operation)
        for token in operation.adds:
            assert token not in claims.adder, f"{token} is made twice: the workload is wrong"
            claims.adder[token] = operation
            claims.tokens[token[:2]].append(token)
        if operation.outcome is not Outcome.REFUSED:
            for token in operation.removes:
                claims.removers[token].append(operation)
    return claims


def _judge_tokens(claims: _Claims, observation: Observation) -> Iterator[Anomaly]:
    """Each token by itself: missing, there twice, there though it can't be."""
    seen = Counter(observation.tokens)
    for token, times in seen.items():
        if token not in claims.adder:
            yield _wrong("phantom", observation, f"{token}, which nobody has written")
        if times > 1:
            yield _wrong("doubled", observation, f"{token} {times} times")
    for domain in observation.domains:
        for token in claims.tokens[domain]:
            wrong = _presence(claims, token, observation) if token in seen else _absence(claims, token, observation)
            if wrong:
                yield _wrong(*wrong)


def _presence(claims: _Claims, token: Token, observation: Observation) -> tuple[str, Observation, str] | None:
    adder = claims.adder[token]
    if adder.outcome is Outcome.REFUSED:
        return "refused but there", observation, f"{token} of {_name(adder)}, which was refused ({adder.answers})"
    if adder.invoked > observation.answered:
        return "phantom", observation, f"{token} before {_name(adder)} was sent"
    for remover in claims.removers.get(token, ()):
        if remover.acknowledged_at < observation.invoked:
            return "removed but there", observation, f"{token}, which {_name(remover)} has removed"
    return None


def _absence(claims: _Claims, token: Token, observation: Observation) -> tuple[str, Observation, str] | None:
    adder = claims.adder[token]
    must = adder.acknowledged_at < observation.invoked or adder.number == observation.answer_to
    if must and not claims.may_be_removed(token, observation.answered):
        return "lost", observation, f"{token} is missing: {_name(adder)} was acknowledged before ({adder.answers})"
    return None


def _judge_wholes(claims: _Claims, observation: Observation) -> Iterator[Anomaly]:
    """Operations are there as a whole or not at all, over all tables that the reader saw at once."""
    seen = set(observation.tokens)
    touching = {id(each): each for domain in observation.domains for each in claims.operations[domain]}
    for operation in touching.values():
        if len(operation.adds) + len(operation.removes) < 2:
            continue
        there = next(_evidence_for(claims, operation, observation, seen), None)
        missing = next(_evidence_against(claims, operation, observation, seen), None)
        if there and missing:
            yield _wrong("half", observation, f"of {_name(operation)} {there}, but {missing}")


def _evidence_for(claims: _Claims, operation: Operation, observation: Observation, seen: set[Token]) -> Iterator[str]:
    for token in operation.adds & seen:
        yield f"{token} is there"
    for token in operation.removes - seen:
        adder = claims.adder.get(token)
        others = [each for each in claims.removers[token] if each is not operation]
        if (
            token[:2] in observation.domains
            and adder is not None
            and adder.acknowledged_at < observation.invoked
            and not any(each.invoked < observation.answered for each in others)
        ):
            yield f"{token} is gone"


def _evidence_against(
    claims: _Claims, operation: Operation, observation: Observation, seen: set[Token]
) -> Iterator[str]:
    for token in operation.adds - seen:
        if token[:2] in observation.domains and not claims.may_be_removed(token, observation.answered):
            yield f"{token} is missing"
    for token in operation.removes & seen:
        yield f"{token} is still there"


def _judge_versions(history: History) -> Iterator[Anomaly]:
    """A table is linearizable: its versions are one line of states, on which all who look only ever move on.

    A version says the same to everybody. No answer is older than one that was given before it was asked for, and that
    of a commit is newer. Between what was answered before an acknowledged change of DuckDB's and what is asked for
    after it, one has passed.
    """
    by_table: dict[str, list[Observation]] = defaultdict(list)
    for observation in history.observations:
        if observation.version:
            by_table[observation.table].append(observation)
    native: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        if operation.client == "duckdb" and operation.outcome is Outcome.ACKNOWLEDGED:
            for table in operation.tables:
                native[table].append(operation)
    operations = {operation.number: operation for operation in history.operations}
    for table, observations in by_table.items():
        yield from _judge_order(observations)
        yield from _judge_contents(observations)
        yield from _judge_progress(operations, observations)
        for operation in _lasting(native[table], observations):
            yield from _judge_change(operation, observations)


def _judge_order(observations: Sequence[Observation]) -> Iterator[Anomaly]:
    answered = iter(sorted(observations, key=lambda each: each.answered))
    following, newest = next(answered, None), None
    for observation in sorted(observations, key=lambda each: each.invoked):
        while following is not None and following.answered < observation.invoked:
            newest = following if newest is None or following.version > newest.version else newest
            following = next(answered, None)
        if newest is not None and observation.version < newest.version:
            text = f"version {observation.version}, after version {newest.version} was shown to {newest.reader}"
            yield _wrong("stale", observation, text)


def _judge_contents(observations: Sequence[Observation]) -> Iterator[Anomaly]:
    """One content for each version, as far as it was looked at."""
    first: dict[tuple[int, Domain], tuple[str, frozenset[Token]]] = {}
    for observation in observations:
        for domain in observation.domains:
            tokens = frozenset(token for token in observation.tokens if token[:2] == domain)
            reader, before = first.setdefault((observation.version, domain), (observation.reader, tokens))
            if tokens != before:
                differing = f"{reader} saw another of {sorted(tokens ^ before)[:5]}"
                yield _wrong("forked", observation, f"version {observation.version}, of which {differing}")


def _judge_progress(operations: Mapping[int, Operation], observations: Sequence[Observation]) -> Iterator[Anomaly]:
    """The answer of a commit is newer than whatever was answered before it was first sent."""
    by_time = sorted(observations, key=lambda each: each.answered)
    newest = list(accumulate((each.version for each in by_time), max))
    for observation in observations:
        operation = operations.get(observation.answer_to)
        if operation is None:
            continue
        count = bisect_left(by_time, operation.invoked, key=lambda each: each.answered)
        if count and observation.version <= newest[count - 1]:
            text = f"version {observation.version} in the answer of {_name(operation)}, sent after {newest[count - 1]}"
            yield _wrong("stale", observation, text)


def _lasting(native: Sequence[Operation], observations: Sequence[Observation]) -> Iterator[Operation]:
    """DuckDB's changes but for small inserts taken back before anybody looked: no version is made of those."""
    unseen: set[Token] = set()
    for insert in native:
        takers = [each for each in native if each.removes & insert.adds]
        taken = frozenset[Token]().union(*(each.removes for each in takers))
        end = max((each.invoked for each in takers), default=0)
        was_seen = any(insert.answered < each.invoked and each.answered < end for each in observations)
        if insert.kind == SMALL_INSERT and insert.adds <= taken and not was_seen:
            unseen |= insert.adds
    return (each for each in native if not (each.adds | each.removes) <= unseen)


def _judge_change(operation: Operation, observations: Sequence[Observation]) -> Iterator[Anomaly]:
    before = max((each.version for each in observations if each.answered < operation.invoked), default=0)
    for observation in observations:
        if observation.invoked > operation.answered and observation.version <= before:
            yield _wrong("stale", observation, f"version {observation.version}, as before {_name(operation)}")
            return


def _name(operation: Operation) -> str:
    return f"{operation.kind} {operation.number} of {operation.client}"


def _wrong(kind: str, observation: Observation, text: str) -> Anomaly:
    return Anomaly(kind, f"{observation.reader} saw in {observation.table or 'the lake'}: {text}")
