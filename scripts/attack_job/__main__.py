"""python -m scripts.attack_job: start a lake, attack it with and without authentication, say what was found."""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp

import duckdb
import httpx
from duckdb_extensions import import_extension

from scripts.attack_job.bad_days import STATEMENT_SECONDS, AttackedServer, live_bad_days
from scripts.attack_job.campaigns import describe, for_seconds, spoil_files, spoil_requests
from scripts.attack_job.lake import build, metadata
from scripts.attack_job.strangers import cross_sites, half_send, unpack
from scripts.attack_job.target import SECONDS, Target
from scripts.demo_job.server import PROGRAM, info, own_environment, start, stop, wait_until_ready
from tests.support.client import data_files

CAMPAIGNS = ("requests", "files", "description", "strangers", "bad-days")
BOUNDED = frozenset({"strangers", "bad-days"})
"""Campaigns that take as long as they take, some seconds."""
DESCRIPTION = Path("openapi/duckicelake.json")
SECRET = "a-secret-of-the-attack-that-nobody-may-see"
EXAMPLES = 4
"""Requests that schemathesis makes of one operation in a round."""


def main() -> int:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reports = options.reports or Path(mkdtemp(prefix="duckicelake-attack-"))
    reports.mkdir(parents=True, exist_ok=True)
    found = 0
    for auth in ("off", "on") if options.auth is None else (options.auth,):
        found += attack(auth, options.seed, options.minutes * 30, options.only or CAMPAIGNS, reports)
    return 1 if found else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/attack", description="Attack a fresh server.")
    parser.add_argument("--minutes", type=float, default=10, help="half of them with authentication")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=CAMPAIGNS, action="append")
    parser.add_argument("--auth", choices=("off", "on"), help="only with logins off, or only with them on")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="where the server's log and all findings go")
    return parser.parse_args(arguments)


def attack(auth: str, seed: int, seconds: float, campaigns: tuple[str, ...], reports: Path) -> int:
    """Attack one server; the number of findings."""
    with (
        TemporaryDirectory(prefix="duckicelake-attack-") as folder,
        served(Path(folder, "lake"), auth, reports) as lake,
    ):
        target, process, environment = lake
        build(target)
        described = json.loads(DESCRIPTION.read_text())
        if "strangers" in campaigns:
            if auth == "off":
                cross_sites(target, described)
            half_send(target)
            unpack(target)
        if "bad-days" in campaigns:
            live_bad_days(target, AttackedServer(process, Path(folder, "lake"), environment))
        each = seconds / max(1, len(set(campaigns) - BOUNDED))
        if "requests" in campaigns:
            spoil_requests(target, Random(seed), for_seconds(each))
        if "files" in campaigns:
            spoil_files(target, Random(seed), for_seconds(each))
        over, number = for_seconds(each), seed
        while "description" in campaigns and not over() and target.is_fine():
            describe(target, described, number, EXAMPLES)
            number += 1
        if process.poll() is not None:
            raise SystemExit(f"attack: the server ended with {process.returncode}; its log is in {reports}")
        problems = [*wholeness(target, Path(folder, "lake"), environment)]
    (reports / f"findings-{auth}.txt").write_text("\n\n".join([*problems, *map(str, target.findings)]))
    report(target, auth, problems, reports)
    return len(problems) + len(target.findings)


@contextmanager
def served(
    folder: Path, auth: str, reports: Path
) -> Iterator[tuple[Target, "subprocess.Popen[bytes]", Mapping[str, str]]]:
    """A fresh lake, and a client that may do everything in it."""
    folder.mkdir(parents=True)
    settings = {"DUCKICELAKE_STATEMENT_SECONDS": str(STATEMENT_SECONDS)}
    if auth == "on":
        settings["DUCKICELAKE_OAUTH_CLIENTS"] = f"attacker:{SECRET}|*"
    environment, log = own_environment(settings), reports / f"server-{auth}.log"
    process = start(folder, log, environment)
    try:
        uri = wait_until_ready(process, log)
        headers = {"Authorization": f"Bearer {token(uri)}"} if auth == "on" else {}
        with httpx.Client(base_url=uri, timeout=SECONDS, headers=headers) as http:
            yield Target(http, (SECRET,), lambda: memory(process.pid)), process, environment
    finally:
        stop(process)


def token(uri: str) -> str:
    form = {"grant_type": "client_credentials", "client_id": "attacker", "client_secret": SECRET, "expires_in": "86400"}
    answer = httpx.post(f"{uri}/v1/oauth/tokens", data=form)
    answer.raise_for_status()
    return str(answer.json()["access_token"])


def memory(session: int) -> int:
    """Resident bytes of the server's processes, its Postgres aside."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (process / "stat").read_text().partition(") ")
            if int(rest.split()[3]) == session and "postgres" not in name:
                total += int((process / "statm").read_text().split()[1]) * 4096
        except OSError:
            continue
    return total


def wholeness(target: Target, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """What the attack broke, although no one may break it."""
    known = metadata(target, "bystander")
    if len(known["snapshots"]) != 2 or not data_files(known):
        yield "the table that nobody attacked has changed"
    if rows(folder, environment) != [(2, "two")]:
        yield f"DuckDB reads other rows than were written: {rows(folder, environment)}"
    command = [PROGRAM, "doctor", "--lake", str(folder), "--no-files"]  # commits may name files that aren't there
    doctor = subprocess.run(command, env=dict(environment), cwd=folder, capture_output=True, text=True, check=False)
    yield from (f"doctor: {line}" for line in doctor.stdout.splitlines() if "FAIL" in line)


def rows(folder: Path, environment: Mapping[str, str]) -> list[tuple[object, ...]]:
    import_extension("ducklake")
    import_extension("postgres_scanner")
    attach = str(info(folder, environment)["ducklake-attach"]).replace("'", "''")
    with duckdb.connect() as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner")
        connection.execute(f"ATTACH '{attach}' AS lake")
        return connection.execute("SELECT id, name FROM lake.attacked.bystander ORDER BY ALL").fetchall()


def report(target: Target, auth: str, problems: list[str], reports: Path) -> None:
    print(f"authentication {auth}: {sum(target.counts.values())} requests, the slowest took {target.slowest:.1f} s,")
    print(
        f"  the server had at most {target.peak >> 20} MB; {len(problems) + len(target.findings)} findings ({reports})"
    )
    for (campaign, status), number in sorted(target.counts.items()):
        print(f"  {campaign or 'setup':12} {status} {number:7}")
    seen: set[str] = set()
    for line in (*problems, *map(str, target.findings)):
        if line[:80] not in seen:
            seen.add(line[:80])
            print(line[:1200])


if __name__ == "__main__":
    sys.exit(main())
