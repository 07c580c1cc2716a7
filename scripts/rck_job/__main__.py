"""python -m scripts.rck_job: start a lake, run the kit on it, say whether it found what it must find."""

import argparse
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from scripts.demo_job.server import running_lake
from scripts.rck_job.expectation import FAILURES, Mode, Planning, list_failures, parse_results, surprises
from scripts.rck_job.kit import PLAYGROUND, alone, is_there, kit_folder, run_kit

PLANS = "/plan"
"""Where the server's log says that it planned a scan."""


def main() -> int:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not is_there():
        print(f"rck: the kit isn't at {kit_folder()}: nothing was tested. RCK_KIT names the folder of its run-rck.sh")
        return 0 if options.if_there else 1
    reports = options.reports.absolute() if options.reports else Path(mkdtemp(prefix="duckicelake-rck-reports-"))
    as_expected = False
    try:
        as_expected = run(reports, options.mode, options.planning)
    finally:
        if as_expected and not options.reports:
            shutil.rmtree(reports)
        else:
            print(f"rck: the reports and the server's log are in {reports}")
    return 0 if as_expected else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/rck", description="Run Iceberg's REST Compatibility Kit.")
    parser.add_argument("--snapshot-ids", dest="mode", choices=tuple(FAILURES), default="client")
    parser.add_argument("--scan-planning", dest="planning", choices=("client", "server"), default="client")
    parser.add_argument("--if-there", action="store_true", help="be content if the kit isn't on this machine")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="where reports and the server's log go")
    return parser.parse_args(arguments)


def run(reports: Path, mode: Mode, planning: Planning) -> bool:
    """Run the kit and print what it found; whether that is what is expected."""
    settings = {"DUCKICELAKE_SNAPSHOT_IDS": mode, "DUCKICELAKE_ALLOWED_LOCATIONS": f"file:{PLAYGROUND}"}
    reports.mkdir(parents=True, exist_ok=True)
    with (
        alone(),
        TemporaryDirectory(prefix="duckicelake-rck-") as folder,
        running_lake(Path(folder, "lake"), reports / "server.log", settings) as lake,
    ):
        printed, ran = run_kit(lake.uri, reports, planning)
    if not ran:
        print(printed)
        return False
    failures = list_failures(mode, planning)
    found = surprises(parse_results((reports / "results.tsv").read_text()), failures)
    if planning == "server" and PLANS not in (reports / "server.log").read_text():
        found.append("the server planned no scan")
    report(printed, failures, found)
    return not found


def report(printed: str, failures: Mapping[str, str], found: list[str]) -> None:
    """The kit's own lines about failures and its sum, then what is surprising in them."""
    lines = printed.splitlines()
    print(*(line for line in lines if line.startswith("FAIL")), lines[-1], sep="\n")
    for test, reason in failures.items():
        print(f"rck: {test} may fail: {reason}")
    for surprise in found:
        print(f"rck: UNEXPECTED: {surprise}")
    print(f"rck: {'not ' if found else ''}as expected")


if __name__ == "__main__":
    sys.exit(main())
