"""Check a lake, how far its changelog is behind it, and what the installed features add to the checks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.catalog.warehouses import RESERVED_NAMES, build_prefix, list_warehouses
from duckicelake.changelog import entries
from duckicelake.changelog.source import FOLLOWER_KEY
from duckicelake.errors import UnavailableError, UnsupportedCatalogError, format_count
from duckicelake.features.registry import load_hooks
from duckicelake.lake.doctor import checks
from duckicelake.lake.doctor.checks import is_prepared
from duckicelake.lake.doctor.damage import NeededFile
from duckicelake.lake.doctor.findings import (
    CheckProgress,
    DoctorCheck,
    Finding,
    ReportProgress,
    make_finding,
    report_nothing,
    run_check,
)
from duckicelake.lake.setup.migrations import is_up_to_date
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("changelog", "doctor")
_LATE_SECONDS: Final = 60.0
"""Seconds after which an entry or an event is late."""
_SEE_LOG_ADVICE: Final = (
    "see what the servers' logs say of it; what fails again and again is left out after a few minutes"
)
_FORGET_ADVICE: Final = (
    "read the tables themselves for what is missing, and report what the servers' logs say of it; once that is done: "
    "`duckicelake doctor --forget-left-out`"
)


ExamineStore = Callable[[], Iterable[Finding]]
_REPORT_SECONDS: Final = 0.5
"""Seconds between reports of how many files were looked for."""


def examine_lake(
    services: Services,
    examine_store: ExamineStore,
    *,
    with_files: bool = True,
    with_lineage: bool = True,
    advise: Callable[[UnavailableError], str] = lambda _: "",
    report: ReportProgress = report_nothing,
) -> list[Finding]:
    """Examine database, tables, store, warehouse and files, one check after the other; return all findings.

    with_files: look for each data file in the store. advise: what to do where Postgres doesn't answer. report: called
    as each check begins and ends.
    """
    findings = run_check(
        "database", lambda: _examine_database(services.database, advise, with_lineage=with_lineage), report
    )
    files: list[NeededFile] = []
    if is_prepared(findings):
        damage, files = _examine_tables(services.database, advise, report, with_files=with_files)
        findings += damage
    found = run_check("object store", examine_store, report)
    is_sound = all(finding.ok for finding in found)
    if is_prepared(findings) and is_sound:
        found += run_check("warehouse", lambda: _examine_warehouse(services), report)
    if with_files and all(finding.ok for finding in found):
        found += run_check("files", lambda: _examine_needed_files(services, files, report), report)
    return [*findings, *found]


def _examine_database(
    database: Database, advise: Callable[[UnavailableError], str], *, with_lineage: bool
) -> list[Finding]:
    try:
        database.check()
        return diagnose(database, with_lineage=with_lineage)
    except UnavailableError as error:
        return [Finding("database", ok=False, detail=str(error), advice=advise(error))]
    except UnsupportedCatalogError as error:
        return [Finding("database", ok=False, detail=str(error), advice="")]


def _examine_tables(
    database: Database, advise: Callable[[UnavailableError], str], report: ReportProgress, *, with_files: bool
) -> tuple[list[Finding], list[NeededFile]]:
    """Return the findings on the tables, and the files that must be in the store."""
    try:
        damage, files = examine_tables(database, report, with_files=with_files)
    except UnavailableError as error:
        lost = Finding("database", ok=False, detail=str(error), advice=advise(error))
        return run_check("database", lambda: [lost], report), []
    if damage:
        return damage, files
    return run_check("all tables", lambda: [build_ok("tables", "nothing in them is damaged")], report), files


def _examine_warehouse(services: Services) -> list[Finding]:
    """Check which lake the warehouse belongs to; no finding if the lake is of another version."""
    with services.database.reading() as cursor:
        if not is_up_to_date(cursor):
            return []
    standing = warehouse.look(services)
    named = _examine_names(services)
    if standing.refusal:
        advice = "until then nothing is written there"
        return [Finding("warehouse", ok=False, detail=standing.refusal, advice=advice), *named]
    if standing.doubt:
        doubt = f"not marked as this lake's yet, so gc deletes nothing: {standing.doubt}"
        return [build_ok("warehouse", doubt), *named]
    return [build_ok("warehouse", f"{services.policy.warehouse} is this lake's"), *named]


def _examine_names(services: Services) -> list[Finding]:
    """Find warehouses beside this one that have the name of a route, as such a route came after them."""
    names = [row.name for row in list_warehouses(services) if row.name in RESERVED_NAMES]
    return [
        Finding(
            "warehouse name",
            ok=False,
            detail=f"{name} is a word of routes: clients reach it by the prefix that /v1/config gives, "
            f"{build_prefix(name)}, and not by /v1/{name}/",
            advice=f"rename it: duckicelake warehouse rename {name} NAME",
        )
        for name in names
    ]


def _examine_needed_files(services: Services, files: Sequence[NeededFile], report: ReportProgress) -> list[Finding]:
    """Find files that the store lacks, or holds in another size."""
    try:
        examined = _report_files(examine_files(services.store, files), len(files), report)
        found = sorted((f for f in examined if f is not None), key=lambda finding: finding.detail)
    except UnavailableError as error:
        advice = "make the files readable for this user, or leave them out with --no-files"
        return [Finding("files", ok=False, detail=str(error), advice=advice)]
    return found or [build_ok("files", f"{len(files)} are in the store as they should be")]


def _report_files(examined: Iterable[Finding | None], total: int, report: ReportProgress) -> Iterator[Finding | None]:
    begun_at = reported_at = time.monotonic()
    for done, found in enumerate(examined):
        now = time.monotonic()
        if now - reported_at >= _REPORT_SECONDS:
            report(CheckProgress("files", None, now - begun_at, done, total))
            reported_at = now
        yield found


def examine_folder(services: Services) -> Finding:
    """Examine whether the store of the warehouse can be read and written."""
    try:
        services.store.check()
    except UnavailableError as error:
        advice = "make the warehouse writable for this user, or choose another"
        return Finding("object store", ok=False, detail=str(error), advice=advice)
    return build_ok("object store", f"{services.policy.warehouse} is readable and writable")


def build_ok(name: str, detail: str) -> Finding:
    """Build a finding that all is well."""
    return Finding(name, ok=True, detail=detail, advice="")


def diagnose(database: Database, *, with_lineage: bool = True) -> list[Finding]:
    """Run all checks. Without a catalog, those that need one are skipped. UnavailableError: Postgres doesn't answer.

    with_lineage: servers make lineage events of changes.
    """
    found = (_CHANGELOG_CHECK, *load_hooks(DoctorCheck, "doctor_check"))
    return checks.diagnose(database, [partial(check.run, with_lineage=with_lineage) for check in found])


def _check_changelog(cursor: Transaction, *, with_lineage: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Yield findings about a changelog that is behind. Without a running server, waiting snapshots are no fault."""
    is_free, waiting, seconds = cursor.execute(_SQL.lag, {"key": FOLLOWER_KEY}).fetchall()[0]
    detail = f"{format_count(waiting, 'snapshot')} not yet in the changelog" + (
        ", and no server follows the lake" if is_free else ""
    )
    yield build_lag_finding(cursor, "changelog", detail, None if is_free else seconds)


_CHANGELOG_CHECK: Final = DoctorCheck(_check_changelog)


def build_lag_finding(cursor: Transaction, name: entries.SkipperName, detail: str, seconds: float | None) -> Finding:
    """Build the finding of a follower of the lake. seconds: for which work has waited; None: there is no lag."""
    is_late = seconds is not None and seconds > _LATE_SECONDS
    missing = entries.read_newest_skipped(cursor, name)
    if missing is None:
        more = f", for more than {_LATE_SECONDS:.0f} s" if is_late else ""
        return make_finding(name, not is_late, detail + more, _SEE_LOG_ADVICE)
    what, reason, times = missing
    detail = f"{what}: left out ({reason}), as was something {times} times"
    return Finding(name, ok=False, detail=detail, advice=_FORGET_ADVICE)
