"""The server as operators run it: TLS, an orderly end under load, the audit trail and the roles."""

import json
import os
import re
import signal
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psycopg
import pytest

from duckicelake.cli.console.terminal import parse_time
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.ducklake.snapshots import LOCK_KEY
from duckicelake.postgres.embedded import build_embedded_url
from tests.cli.test_commands import SECONDS, lake, run, serving
from tests.support.certificates import make_certificate
from tests.support.commands import run_here

__all__ = ["lake"]


@pytest.mark.commands
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.commands)])
def test_server_with_a_certificate_speaks_https_alone(lake: Path, workers: str) -> None:
    certificate, key = make_certificate(lake.parent)
    tls = {"DUCKICELAKE_TLS_CERTIFICATE": str(certificate), "DUCKICELAKE_TLS_KEY": str(key)}
    with serving(lake, "--workers", workers, **tls) as served:
        assert served.uri.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(f"{served.uri}/v1/config", verify=trusting, timeout=30)
        url = httpx.URL(served.uri)
        with socket.create_connection((url.host, url.port or 0), timeout=10) as clear:
            clear.sendall(b"GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n")
            report = clear.recv(1000)
        facts = json.loads(run("info", "--lake", str(lake), "--json", **tls).stdout)
        printed = served.printed
    assert answer.status_code == 200
    assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert b"HTTP" not in report
    assert facts["uri"] == served.uri
    assert json.loads(run_here("info", "--lake", str(lake), "--json", **tls).stdout)["uri"] == "https://127.0.0.1:8181"
    assert "Traceback" not in printed


def test_server_with_a_bad_certificate_does_not_start(lake: Path) -> None:
    certificate, key = make_certificate(lake.parent, days=(-30, -1))
    tls = {"DUCKICELAKE_TLS_CERTIFICATE": str(certificate), "DUCKICELAKE_TLS_KEY": str(key)}
    refused = run_here("serve", "--lake", str(lake), "--port", "0", **tls)
    assert refused.returncode == 2
    assert re.fullmatch(r"duckicelake: the certificate in .* has expired on .*; renew it\n", refused.stderr)


@pytest.mark.commands
@pytest.mark.parametrize("workers", ["1", "2"])
def test_commits_under_way_are_finished_and_answered_before_the_server_ends(lake: Path, workers: str) -> None:
    with serving(lake, "--workers", workers) as served, ThreadPoolExecutor(4) as threads:
        assert httpx.get(f"{served.uri}/readyz", timeout=30).status_code == 200
        with psycopg.connect(build_embedded_url(lake), autocommit=True) as slow:
            slow.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
            commits: list[Future[httpx.Response]] = [
                threads.submit(httpx.post, f"{served.uri}/v1/namespaces", json={"namespace": [name]}, timeout=30)
                for name in ("a", "b", "c")
            ]
            wait_for(slow, 3)
            served.process.send_signal(signal.SIGTERM)
            wait_until_refused(served.uri)
            assert not any(commit.done() for commit in commits)
            slow.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])
        answers = [commit.result(SECONDS) for commit in commits]
        assert served.process.wait(SECONDS) == 0
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    with serving(lake) as served:
        kept = httpx.get(f"{served.uri}/v1/namespaces", timeout=30).json()["namespaces"]
    assert kept == [["a"], ["b"], ["c"], ["main"]]


@pytest.mark.commands
def test_server_ends_in_time_though_a_request_does_not(lake: Path) -> None:
    patience = {"DUCKICELAKE_SHUTDOWN_SECONDS": "1", "DUCKICELAKE_STATEMENT_SECONDS": "3"}
    with serving(lake, **patience) as served, psycopg.connect(build_embedded_url(lake), autocommit=True) as slow:
        slow.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
        thread = threading.Thread(target=ask_in_vain, args=[served.uri])
        thread.start()
        wait_for(slow, 1)
        started = time.monotonic()
        assert served.end(signal.SIGTERM) == 0
        assert time.monotonic() - started < 15
        thread.join()


def ask_in_vain(uri: str) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.post(f"{uri}/v1/namespaces", json={"namespace": ["x"]}, timeout=30).raise_for_status()


def wait_for(connection: psycopg.Connection, waiting: int) -> None:
    """Until so many transactions wait for the lock."""
    deadline = time.monotonic() + SECONDS
    while connection.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    ).fetchone() != (waiting,):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_until_refused(uri: str) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{uri}/healthz", timeout=1)
        except httpx.HTTPError:
            return
        time.sleep(0.05)
    raise AssertionError("the server goes on accepting connections")


@pytest.mark.commands
def test_statement_that_takes_too_long_is_a_503(lake: Path) -> None:
    with serving(lake, DUCKICELAKE_STATEMENT_SECONDS="0.5") as served:
        with psycopg.connect(build_embedded_url(lake), autocommit=True) as slow:
            slow.execute("SELECT pg_advisory_lock(%s)", [LOCK_KEY])
            answer = httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["a"]}, timeout=30)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "took too long; nothing was written" in answer.json()["error"]["message"]
        assert httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["a"]}, timeout=30).status_code == 200


@pytest.mark.commands
def test_audit_lists_filters_and_forgets(lake: Path) -> None:
    with serving(lake) as served:
        httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["ns"]}, timeout=30)
        httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["bad\x1b[2J"]}, timeout=30)
        listed = run("audit", "--lake", str(lake), "--since", "1h")
        as_json = run_here("audit", "--lake", str(lake), "--json", "--result", "ok", "--resource", "ns")
        gone = run_here("audit", "--lake", str(lake), "--prune-older-than", "0s")
    _, made, refused = listed.stdout.splitlines()
    assert made.split()[2:] == ["anonymous", "127.0.0.1", "create_namespace", "ns", "ok", "1"]
    assert "BadRequestException 400" in refused
    assert "\x1b" not in listed.stdout
    (entry,) = map(json.loads, as_json.stdout.splitlines())
    assert (entry["operation"], entry["resource"], entry["snapshot_id"]) == ("create_namespace", "ns", 1)
    assert gone.stdout == "2 entries removed\n"


def test_moments_are_ages_or_times() -> None:
    assert parse_time("2026-05-01T12:00") == datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert parse_time("2026-05-01T12:00+02:00") == datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert abs(parse_time("90d") - (datetime.now(UTC) - timedelta(days=90))) < timedelta(minutes=1)
    for wrong in ("yesterday", "2y", "", "999999999999d"):
        with pytest.raises(InvalidRequestError, match="neither an age, as 2h or 90d, nor a time"):
            parse_time(wrong)


@pytest.mark.commands
def test_grants_are_sql_to_be_run_by_others_or_applied(lake: Path) -> None:
    logins = ["--server", "lake_server", "--writer", "etl", "--reader", "bi"]
    printed = run("grants", *logins)
    assert printed.stdout.startswith("BEGIN;\n")
    with serving(lake):
        url = build_embedded_url(lake)
        refused = run("grants", *logins, "--apply", "--lake", str(lake))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE ROLE lake_server LOGIN; CREATE ROLE etl LOGIN; CREATE ROLE bi LOGIN")
            connection.execute(printed.stdout.encode())  # all of it at once, as psql sends a script
        applied = run("grants", *logins, "--apply", "--lake", str(lake))
        doctor = run("doctor", "--lake", str(lake))
    assert (refused.returncode, refused.stderr) == (
        2,
        'duckicelake: nothing was granted: role "lake_server" does not exist\n',
    )
    assert applied.stdout == "lake_server serves the lake; ducklake owns DuckLake's tables\n"
    assert "ok    roles: DuckLake's tables are ducklake's, all of them" in doctor.stdout


# --- gc


@pytest.mark.commands
def test_gc_lists_orphans_and_deletes_them_only_if_asked_to(lake: Path) -> None:
    run("init", "--lake", str(lake))
    orphan, young = (lake / "warehouse" / "data" / "ns" / f"{name}.parquet" for name in ("orphan", "young"))
    for path in (orphan, young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1234)
    os.utime(orphan, (1_600_000_000, 1_600_000_000))
    with serving(lake):
        listed = run("gc", "--lake", str(lake))
    assert listed.stdout == f"2020-09-13T12:26:40Z         1234 file://{orphan}\n"
    assert listed.stderr == "1 file, 1.2 kB, can go; this was a dry run: --delete deletes them\n"
    assert orphan.exists()
    deleted = run("gc", "--lake", str(lake), "--delete")
    assert (deleted.returncode, deleted.stderr) == (0, "1 file, 1.2 kB, deleted\n")
    assert not orphan.exists()
    assert young.exists()


def test_gc_refuses_ages_at_which_commits_may_be_under_way(lake: Path) -> None:
    refused = run_here("gc", "--lake", str(lake), "--older-than", "5m", "--delete")
    assert refused.returncode == 2
    assert "give an age of an hour at least" in refused.stderr


def test_gc_without_a_lake_says_how_to_make_one(lake: Path) -> None:
    refused = run_here("gc", "--lake", str(lake))
    assert refused.returncode == 2
    assert f"duckicelake init --lake {lake}" in refused.stderr


# --- flush


@pytest.mark.commands
def test_flush_takes_rows_out_of_postgres_and_the_server_does_so_by_itself_if_asked_to(lake: Path) -> None:
    def post(url: str, body: object) -> None:
        assert httpx.post(url, json=body, timeout=30).status_code == 200

    with serving(lake, "--workers", "2", DUCKICELAKE_FLUSH_ROWS="3") as served:
        post(f"{served.uri}/v1/namespaces", {"namespace": ["ns"]})
        fields = [{"id": 1, "name": "id", "type": "long", "required": False}]
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        post(f"{served.uri}/v1/namespaces/ns/tables", {"name": "t", "schema": schema})
        rows = f"{served.uri}/v1/namespaces/ns/tables/t/rows"
        post(rows, [{"id": 1}, {"id": 2}])
        young = run("flush", "ns", "--older-than", "1h", "--lake", str(lake))
        few = run("flush", "ns.t", "--min-rows", "3", "--lake", str(lake))
        flushed = run("flush", "ns.t", "--lake", str(lake))
        absent = run("flush", "ns.u", "--lake", str(lake))
        post(rows, [{"id": 3}, {"id": 4}, {"id": 5}])
        until = time.monotonic() + SECONDS
        while "rows_flushed_total 3.0" not in httpx.get(f"{served.uri}/metrics", timeout=30).text:
            assert time.monotonic() < until
            time.sleep(0.2)
    assert [(each.returncode, each.stdout, each.stderr) for each in (young, few)] == [(0, "", "nothing to flush\n")] * 2
    assert (flushed.returncode, flushed.stdout, flushed.stderr) == (0, "ns.t: 2 rows, 1 file\n", "")
    assert absent.returncode == 2
    assert absent.stderr == "duckicelake: ns.u is neither a table nor a namespace with tables\n"
