"""Check whether the tables that follow a Delta table get its new versions."""

from collections.abc import Iterator
from typing import Final

from duckicelake.delta.import_ import sources
from duckicelake.lake.doctor.findings import DoctorCheck, Finding, make_finding
from duckicelake.postgres.queries import Transaction

_MAX_NAMES_SHOWN: Final = 5
_ADVICE: Final = "mend the Delta table, or end it with `duckicelake delta adopt`; `duckicelake delta status` lists all"


def _check_followed_tables(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:  # noqa: ARG001
    followed = sources.read_sources(cursor, followed=True)
    stuck = [source for source in followed if source.error is not None]
    faults = [
        f"{source.name} stands still at version {source.position.version}: {source.error}"
        for source in stuck[:_MAX_NAMES_SHOWN]
    ]
    detail = "; ".join(faults) or f"{len(followed)} are followed"
    yield make_finding("Delta tables", not stuck, detail, _ADVICE)


DOCTOR_CHECK: Final = DoctorCheck(_check_followed_tables)
