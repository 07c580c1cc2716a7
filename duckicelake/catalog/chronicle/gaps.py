"""Going on past what can't be folded, though Postgres answers: the chronicle then has a gap, of which is told."""

from duckicelake.catalog.chronicle.folding import MOST, fold
from duckicelake.catalog.services import Services
from duckicelake.lake.chronicle import followed
from duckicelake.lake.chronicle.left_out import LeftOut, is_of_what_is_told, leave_out
from duckicelake.lake.postgres.database import Transaction


def pass_by(services: Services, cursor: Transaction) -> LeftOut | None:
    """Fold up to the first snapshot that can't be, and go on past it; past such a request, if all snapshots can.

    It isn't tried again, so this is for what fails again and again. The cursor's connection is in no transaction.
    """
    most = MOST
    while True:
        try:
            if not fold(services, cursor, most, unplaced_most=0).number:
                return _pass_requests(services, cursor)
        except Exception as error:
            if not is_of_what_is_told(error):
                raise
            if most == 1:
                with followed.one_state(cursor):
                    return leave_out(cursor, "chronicle", f"snapshot {followed.pass_snapshot(cursor)}", error)
            most //= 2


def _pass_requests(services: Services, cursor: Transaction) -> LeftOut | None:
    while True:
        try:
            if not fold(services, cursor, unplaced_most=1).number:
                return None
        except Exception as error:
            if not is_of_what_is_told(error):
                raise
            with followed.one_state(cursor):
                requests = [entry.request_id for _, entry in followed.take_unplaced(cursor, 1)]
                return leave_out(cursor, "chronicle", f"what the request {requests} changed", error)
