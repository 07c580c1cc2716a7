"""Requests that carry an Idempotency-Key run once: sent again, they get the answer that they have missed.

What a request came to is written in the transaction of its change, so one is there exactly when the other is. A refusal
changes nothing and is written in a transaction of its own. What may be different the next time (the database doesn't
answer, the outcome of COMMIT is not known) is not written, and the request runs again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from duckicelake import errors
from duckicelake.errors import (
    CatalogError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    UnprocessableError,
    UnsupportedError,
)
from duckicelake.lake.conflicts import RepeatedRequestError
from duckicelake.lake.side_tables.idempotency import RequestOutcome, find_outcome, record_outcomes
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

_REFUSALS = (InvalidRequestError, UnsupportedError, NotFoundError, ConflictError)
_STORED_NAMES: Final = {
    errors.TxnAlreadyAppliedError: "AlreadyApplied",
    errors.TxnAlreadyCommittedError: "CommittedBefore",
    errors.NoDeltaLogError: "NotDelta",
    errors.JobEndedError: "JobOver",
}
"""Names of errors in stored outcomes; other classes are stored without `Error`. Older servers read these names too."""
_STORED_ERRORS: Final = {name: error for error, name in _STORED_NAMES.items()}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Once:
    """A request that must not run twice. fingerprint: a digest of what it asks for, which its key must not outlive."""

    key: UUID
    fingerprint: bytes

    def settle(self, cursor: Transaction, result: Any = None, error: CatalogError | None = None) -> None:
        """Record the request's outcome in the caller's transaction; RepeatedRequestError if one was recorded before."""
        refusal = None if error is None else [_name_stored(type(error)), *error.args]
        record_outcomes(cursor, {self.key: RequestOutcome(self.fingerprint, result, refusal)})


def settle_results(cursor: Transaction, results: Sequence[tuple[Once, Any]]) -> None:
    """Note what several requests came to: see `Once.settle`."""
    record_outcomes(cursor, {once.key: RequestOutcome(once.fingerprint, result) for once, result in results})


def run_once(
    database: Database, once: Once, act: Callable[[], T], again: Callable[[Any], T], *, is_new: bool = False
) -> T:
    """Run `act`, which settles; or answer by `again` from the result with which the same request has been settled.

    Of several that run at the same time one is settled, and the others answer by `again`. A refusal is raised again.
    Raises UnprocessableError if the key was used for another request. is_new: as it is nearly always, so what `act`
    does before it settles may be done in vain, and no lookup comes first.
    """
    if is_new:
        try:
            return _run(database, once, act)
        except RepeatedRequestError:
            pass
    with database.reading() as cursor:
        outcome = find_outcome(cursor, once.key)
    if outcome is not None:
        return again(_result(once, outcome))
    try:
        return _run(database, once, act)
    except RepeatedRequestError:
        return run_once(database, once, act, again)


def _run(database: Database, once: Once, act: Callable[[], T]) -> T:
    try:
        return act()
    except _REFUSALS as refusal:
        with database.transaction() as cursor:
            once.settle(cursor, error=refusal)
        raise


def _result(once: Once, outcome: RequestOutcome) -> Any:
    if outcome.fingerprint != once.fingerprint:
        raise UnprocessableError(f"Idempotency-Key {once.key} was used for another request; take a new one for each")
    if outcome.error is not None:
        name, *arguments = outcome.error
        raise _find_stored(name)(*arguments)
    return outcome.result


def _name_stored(kind: type[CatalogError]) -> str:
    return _STORED_NAMES.get(kind) or kind.__name__.removesuffix("Error")


def _find_stored(name: str) -> type[CatalogError]:
    """Find the class of a stored name; versions between stored the class's own."""
    kind: type[CatalogError] = _STORED_ERRORS.get(name) or getattr(errors, f"{name.removesuffix('Error')}Error")
    return kind
