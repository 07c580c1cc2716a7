"""Row changes are delivered to webhooks, whatever fails and whoever is killed in the middle."""

import base64
import hashlib
import hmac
import json
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.errors import BadInputError
from duckicelake.row_changes.webhook import MAX_MESSAGE_BYTES, parse_secret
from scripts.backends_job.processes import free_port
from tests.ha.pair import NGINX, NGINX_CONFIG, has_listener, wait_until
from tests.row_changes.conftest import Changes
from tests.row_changes.killed_follower import FILE_STEPS, WEBHOOK_STEPS
from tests.support.change_sinks import (
    KEY,
    SECRET,
    VARIABLE,
    deliver,
    follow_and_kill,
    list_arguments,
    make_history,
    start,
)
from tests.support.receiver import TAKEN, Answer, Receiver, always, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def history(changes: Changes) -> Changes:
    return make_history(changes)


def collect(receiver: Receiver) -> list[dict[str, Any]]:
    """Collect the rows of all messages that were taken; those that came twice, once."""
    found: dict[str, list[dict[str, Any]]] = {}
    for headers, message in zip(receiver.headers, receiver.tries, strict=True):
        rows = message[1]["data"]["changes"]
        assert found.setdefault(headers["webhook-id"], rows) == rows
    return [row for rows in found.values() for row in rows]


def test_webhook_gets_signed_messages_of_snapshots_once_more_after_failures(
    history: Changes, receiver: Receiver, tmp_path: Path
) -> None:
    rows, _ = history.read()
    away = (Answer(status=503, headers={"Retry-After": "0"}), Answer(status=522))  # the second one of a proxy
    receiver.first(*away, TAKEN, Answer(status=None), Answer(reset=True))
    result = deliver(history, f"{receiver.uri}/hook?a=b", tmp_path / "state")
    assert result.exit_code == 0, result.output
    assert collect(receiver) == rows
    ids = [headers["webhook-id"] for headers in receiver.headers]
    assert len(ids) == 5 + 4
    assert len(set(ids)) == 5
    assert set(receiver.paths) == {"/hook?a=b"}
    for headers, body in zip(receiver.headers, receiver.bodies, strict=True):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 600
    history.duck.execute("INSERT INTO t VALUES (7, 'seven')")
    assert deliver(history, f"{receiver.uri}/hook?a=b", tmp_path / "state").exit_code == 0
    assert [row["id"] for row in collect(receiver)[len(rows) :]] == [7]


@pytest.mark.commands
def test_webhook_that_refuses_ends_the_command_and_keeps_the_position(
    history: Changes, receiver: Receiver, tmp_path: Path
) -> None:
    rows, _ = history.read()
    receiver.first(TAKEN, Answer(status=400, body=b"no such\nthing"))
    result = deliver(history, receiver.uri, tmp_path / "state")
    assert (result.exit_code, len(receiver.tries)) == (1, 2)
    assert "status 400: no such thing; " in result.output
    assert len(result.output.splitlines()) == 1
    receiver.first(Answer(status=302, headers={"Location": "http://169.254.169.254/"}))
    result = deliver(history, receiver.uri, tmp_path / "state")
    assert "it is at http://169.254.169.254/; name that" in result.output
    receiver.behaviour = always(Answer(status=500))
    result = deliver(history, receiver.uri, tmp_path / "state", "--retry-seconds", "0.2")
    assert result.exit_code == 1
    assert "attempts: status 500" in result.output
    receiver.behaviour = always(TAKEN)
    assert deliver(history, receiver.uri, tmp_path / "state").exit_code == 0
    assert collect(receiver) == rows


@pytest.mark.commands
def test_webhook_that_is_away_for_longer_than_the_retries_is_asked_at_their_end(
    history: Changes, receiver: Receiver, tmp_path: Path
) -> None:
    away = Answer(status=503, headers={"Retry-After": "3600"})
    receiver.first(away, TAKEN)
    result = deliver(history, receiver.uri, tmp_path / "state", "--retry-seconds", "0.5")
    assert result.exit_code == 0, result.output
    assert collect(receiver) == history.read()[0]
    history.duck.execute("INSERT INTO t VALUES (7, 'seven')")
    receiver.behaviour = always(away)
    result = deliver(history, receiver.uri, tmp_path / "state", "--retry-seconds", "0.5")
    assert (result.exit_code, len(receiver.tries)) == (1, 1 + 5 + 2)
    assert "after 2 attempts: status 503" in result.output


@contextmanager
def nginx_before(receiver: Receiver, folder: Path) -> Iterator[str]:
    """Run nginx before a receiver, which takes bodies of 1 MiB by default."""
    if NGINX is None:
        pytest.skip("nginx isn't installed: apt-get install nginx-light")
    port = free_port()
    config = folder / "nginx.conf"
    shown = (
        f"server {{ listen 127.0.0.1:{port}; client_body_buffer_size 2m; location / {{ proxy_pass {receiver.uri}; }} }}"
    )
    config.write_text(NGINX_CONFIG.format(folder=folder, shown=shown))
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", str(config), "-e", str(folder / "errors")]) as process:
        try:
            wait_until(lambda: has_listener(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def test_messages_of_wide_rows_are_no_longer_than_nginx_takes(
    changes: Changes, receiver: Receiver, tmp_path: Path
) -> None:
    changes.duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    changes.duck.execute("INSERT INTO t SELECT i, repeat('n', 9000 + i) FROM range(600) r(i)")
    changes.duck.execute("INSERT INTO t SELECT i, repeat('ü', 500000) FROM range(3) r(i)")
    with nginx_before(receiver, tmp_path) as uri:
        result = deliver(changes, uri, tmp_path / "state")
        assert result.exit_code == 0, result.output
        assert collect(receiver) == changes.read()[0]
        sizes = [len(body) for body in receiver.bodies]
        assert len(sizes) == 6 + 3
        assert max(sizes) <= MAX_MESSAGE_BYTES
        assert min(sizes[:4]) > MAX_MESSAGE_BYTES - 10_000
        changes.duck.execute("INSERT INTO t SELECT i, repeat('n', i * 400000) FROM range(1, 4) r(i)")
        result = deliver(changes, uri, tmp_path / "state")
        assert result.exit_code == 1
        ((newest,),) = changes.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
        assert "status 413" in result.output
        assert "in 1 row, the longest of them 1,200," in result.output
        assert f"number 3 of snapshot {newest}" in result.output
        assert [row["id"] for row in collect(receiver)[-2:]] == [1, 2]
    assert deliver(changes, receiver.uri, tmp_path / "state").exit_code == 0
    assert collect(receiver) == changes.read()[0]


def test_a_message_that_ends_elsewhere_is_another_one(changes: Changes, receiver: Receiver, tmp_path: Path) -> None:
    """A column was added after a message was taken, and before that was noted."""
    changes.duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    changes.duck.execute("INSERT INTO t SELECT i, repeat('n', 10000) FROM range(150) r(i)")
    assert deliver(changes, receiver.uri, tmp_path / "state").exit_code == 0
    changes.duck.execute("ALTER TABLE t ADD COLUMN more VARCHAR DEFAULT '" + "m" * 10_000 + "'")
    assert deliver(changes, receiver.uri, tmp_path / "anew").exit_code == 0
    ids = [headers["webhook-id"].split(".")[-1] for headers in receiver.headers]
    assert [id_.partition("-")[0] for id_ in ids].count("0") == 2
    assert len({*ids}) == len(ids)
    assert [row["id"] for _, message in receiver.tries[2:] for row in message["data"]["changes"]] == [*range(150)]


@pytest.mark.parametrize(
    ("arguments", "secret", "said"),
    [
        (("--sink", "ftp://x/y", "--state", "s"), KEY, "expected https://<host>/<path> or kafka://<broker>"),
        (("--sink", "https://192.0.2.1/x"), KEY, "name a file for it by --state"),
        (("--sink", "https://192.0.2.1/x", "--state", "s"), "", "DUCKICELAKE_CLIENT_WEBHOOK_SECRET"),
        (("--sink", "https://127.0.0.1/x", "--state", "s"), KEY, "address that isn't public"),
        (("--sink", "https://a:b@127.0.0.1/x", "--state", "s"), KEY, "a user, a password"),
        (("--sink", "https://x/", "--state", "s", "--allow-address", "1.2.3"), KEY, "'1.2.3' is no address"),
        (("--sink", "kafka://x"), KEY, "expected kafka://<broker>:<port>,<broker2>:<port>/<topic>"),
        (("--sink", "kafka://u:p@x/t"), KEY, "expected kafka://<broker>"),
        (("--sink", "kafka://x/t", "--kafka", "sasl.password"), KEY, "expected <name>=<value>"),
    ],
)
def test_sinks_that_cannot_be_are_refused(arguments: tuple[str, ...], secret: str, said: str) -> None:
    result = CliRunner().invoke(app, ["changes", "main.t", *arguments], env={VARIABLE: secret} if secret else {})
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_abc", "whsec_c2hvcnQ=", "ü"])
def test_a_secret_is_long_and_never_in_a_message(text: str) -> None:
    with pytest.raises(BadInputError, match="expected whsec_ and base64") as caught:
        parse_secret(text)
    assert not text.removeprefix("whsec_") or text not in str(caught.value)


@pytest.mark.crash
def test_a_killed_follower_sends_the_same_messages_again(history: Changes, receiver: Receiver, tmp_path: Path) -> None:
    arguments = list_arguments(history, receiver.uri, tmp_path / "state")
    follow_and_kill(arguments, history, lambda: len(receiver.tries), random.Random(1))
    assert start(arguments).wait(120) == 0
    assert collect(receiver) == history.read()[0]


@pytest.mark.crash
@pytest.mark.parametrize("step", WEBHOOK_STEPS)
def test_each_step_of_a_killed_delivery_is_made_good(
    history: Changes, receiver: Receiver, tmp_path: Path, step: str
) -> None:
    """Each message comes, in order; the one that was taken without a note of it comes twice, as the same."""
    arguments = list_arguments(history, receiver.uri, tmp_path / "state")
    assert start(arguments, killed_at=step).wait(120) == -9
    assert start(arguments).wait(120) == 0
    rows = history.read()[0]
    assert collect(receiver) == rows
    ids = [headers["webhook-id"] for headers in receiver.headers]
    is_doubled = step in {"behind a message", "before the state"}
    assert (len(ids) - len(set(ids)), len(set(ids))) == (int(is_doubled), 5)


@pytest.mark.crash
@pytest.mark.parametrize("step", FILE_STEPS)
def test_each_step_of_a_killed_listing_is_made_good(history: Changes, tmp_path: Path, step: str) -> None:
    """A row whose answer was cut off from its position is printed again; none is lost."""
    output, state = tmp_path / "lines", tmp_path / "state"
    arguments = ["changes", "main.t", "--uri", str(history.http.base_url), "--state", str(state)]
    assert start(arguments, output=output).wait(120) == 0
    history.duck.execute("INSERT INTO t SELECT i, 'more' FROM range(1000, 1040) r(i)")
    assert start(arguments, killed_at=step, output=output).wait(120) == -9
    assert start(arguments, output=output).wait(120) == 0
    lines = output.read_text().splitlines()
    whole = history.read()[0]
    assert [*map(json.loads, dict.fromkeys(lines))] == whole
    assert len(lines) - len(whole) == (0 if step == "behind their position" else 40)
