"""What the kit must find: which of its tests fail and why that is right, and how many of them run at all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Mode = Literal["client", "ducklake"]
Planning = Literal["client", "server"]


class Status(StrEnum):
    """A test's outcome, as the kit spells it."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"


_CATALOG = "RESTCompatibilityKitCatalogTests#"
_REPORTER = f"{_CATALOG}testCatalogWithCustomMetricsReporter()"
_IN_EITHER_MODE = {
    f"{_CATALOG}testLoadTableWithMissingMetadataFile(Path)": "the truth is in Postgres, so a metadata.json that got "
    "lost is written again, where the kit expects the load to fail",
}

FAILURES: Mapping[Mode, Mapping[str, str]] = {
    "client": _IN_EITHER_MODE,
    "ducklake": {
        **_IN_EITHER_MODE,
        _REPORTER: "Java looks for the snapshot id that it has proposed, doesn't find it, and sends no report",
        f"{_CATALOG}testCompleteCreateTransactionV2()": "sequence numbers are DuckLake's snapshot ids, so that a "
        "table's first one isn't 1",
    },
}
"""Tests that fail, in full as the kit names them, each with the reason."""

_FAILURES_OF_PLANNING: Mapping[Planning, Mapping[str, str]] = {
    "client": {},
    "server": {_REPORTER: "Java sends no report of a scan that a server planned"},
}

TESTS = 157
SKIPPED = 12
"""Those for nested or empty namespaces and odd names, which the kit skips unless told that a server has them."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a run found, by test."""

    statuses: Mapping[str, Status]

    def of(self, status: Status) -> set[str]:
        return {test for test, found in self.statuses.items() if found is status}


def parse_results(text: str) -> Results:
    """The kit's `results.tsv`: a line for each test with its name, status and seconds."""
    lines = (line.split("\t") for line in text.splitlines())
    return Results({name: Status(status) for name, status, _ in lines})


def list_failures(mode: Mode, planning: Planning = "client") -> Mapping[str, str]:
    """Return the tests that fail, each with the reason. planning: who plans scans."""
    return {**FAILURES[mode], **_FAILURES_OF_PLANNING[planning]}


def surprises(results: Results, failures: Iterable[str]) -> list[str]:
    """How the results differ from what is expected, a sentence each; empty if they don't."""
    expected, failed, skipped = set(failures), results.of(Status.FAIL), results.of(Status.SKIP)
    found = [f"{test} fails" for test in sorted(failed - expected)]
    found += [f"{test} does not fail any more: take it off the list" for test in sorted(expected - failed)]
    if len(skipped) != SKIPPED:
        found.append(f"{len(skipped)} tests were skipped, expected {SKIPPED}")
    if len(results.statuses) != TESTS:
        found.append(f"{len(results.statuses)} tests were there, expected {TESTS}")
    return found
