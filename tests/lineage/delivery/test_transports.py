"""What each transport says of one try, against receivers that are really there."""

import json
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery.receivers import DeliveryFailure, LineageOutlet, parse_receivers
from duckicelake.lineage.delivery.transports import open_outlet
from tests.support.certificates import make_certificate
from tests.support.lineage_events import event, table
from tests.support.receiver import Answer, Receiver, always, receiving

SECRET = "geheim/key=="


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def outlet(written: str, **secrets: str) -> LineageOutlet:
    (receiver,) = parse_receivers([written], **secrets)
    return open_outlet(receiver)


def test_event_is_posted_where_openlineage_wants_it(receiver: Receiver) -> None:
    sent = event(1, outputs=(table("sales.orders"),))
    assert outlet(receiver.uri, api_keys=SECRET).send(sent) is None
    assert receiver.taken == [sent]
    assert receiver.paths == ["/api/v1/lineage"]
    (headers,) = receiver.headers
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert (headers["Content-Type"], headers["User-Agent"]) == ("application/json", "duckicelake")


def test_connection_is_kept_and_path_and_compression_are_as_wanted(receiver: Receiver) -> None:
    receiver.behaviour = always(Answer(200, body=b'{"ok": true}'))
    found = outlet(f"{receiver.uri}/my/path?compression=gzip&timeout=2")
    assert [found.send(event(number)) for number in range(3)] == [None] * 3
    assert set(receiver.paths) == {"/my/path"}
    assert {headers["Content-Encoding"] for headers in receiver.headers} == {"gzip"}
    assert "Authorization" not in receiver.headers[0]
    found.close()


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (Answer(400, body=b"no such field"), DeliveryFailure("refused", "400 Bad Request: no such field", 400)),
        (
            Answer(401, body=f"bad {SECRET}\n\x1b[31m".encode()),
            DeliveryFailure("refused", "401 Unauthorized: bad … [31m", 401),
        ),
        (Answer(413), DeliveryFailure("refused", "413 Request Entity Too Large", 413)),
        (Answer(429, {"Retry-After": "7"}), DeliveryFailure("away", "429 Too Many Requests", 429, 7.0)),
        (Answer(500), DeliveryFailure("later", "500 Internal Server Error", 500)),
        (Answer(501), DeliveryFailure("later", "501 Not Implemented", 501)),
        (Answer(503, {"Retry-After": "0"}), DeliveryFailure("away", "503 Service Unavailable", 503, 0.0)),
        (Answer(503, {"Retry-After": "soon"}), DeliveryFailure("away", "503 Service Unavailable", 503)),
        (
            Answer(503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}),
            DeliveryFailure("away", "503 Service Unavailable", 503, 0.0),
        ),
        (Answer(504), DeliveryFailure("away", "504 Gateway Timeout", 504)),
        (Answer(302, {"Location": "/login"}), DeliveryFailure("away", "302 Found: it is at /login; set that", 302)),
    ],
)
def test_status_says_what_becomes_of_an_event(receiver: Receiver, answer: Answer, failure: DeliveryFailure) -> None:
    receiver.behaviour = always(answer)
    assert outlet(receiver.uri, api_keys=SECRET).send(event(1)) == failure
    assert len(receiver.tries) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(reset=True), "reset|aborted|closed"),
        (Answer(None), "closed connection"),
        (Answer(raw=b"HTTP/1.1 2"), ""),
        (Answer(raw=b"\x00\xff\x00\xff\r\n\r\n"), ""),
        (Answer(raw=b"HTTP/1.1 abc OK\r\n\r\n"), ""),
        (Answer(hang=30), "timed out"),
    ],
    ids=["reset", "closed", "half", "binary", "no-status", "hanging"],
)
def test_receiver_that_answers_no_status_is_away(receiver: Receiver, answer: Answer, said: str) -> None:
    receiver.behaviour = always(answer)
    failure = outlet(f"{receiver.uri}?timeout=0.3").send(event(1))
    assert failure is not None
    assert failure.kind == "away"
    assert failure.status is None
    assert re.search(said, failure.reason, re.IGNORECASE), failure.reason


def test_what_follows_a_good_status_does_not_matter(receiver: Receiver) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"
    found = outlet(f"{receiver.uri}?timeout=0.3")
    receiver.first(Answer(raw=cut), Answer(raw=cut + b"x" * 500_000), Answer(200, {"Content-Length": "9"}, b"{"))
    assert [found.send(event(number)) for number in range(4)] == [None] * 4


def test_no_one_there_is_away() -> None:
    with receiving() as gone:
        pass
    failure = outlet(gone.uri).send(event(1))
    assert failure is not None
    assert failure.kind == "away"
    assert "refused" in failure.reason


def test_netrc_is_not_read(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password geheim\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    outlet(receiver.uri, api_keys=SECRET).send(event(1))
    assert receiver.headers[0]["Authorization"] == f"Bearer {SECRET}"


def test_certificate_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with receiving(context) as receiver:
        failure = outlet(receiver.uri).send(event(1))
        assert failure is not None
        assert (failure.kind, "certificate verify failed" in failure.reason) == ("away", True)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert outlet(receiver.uri).send(event(1)) is None


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_file_gets_a_line_for_each_event(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text('{"a": 1}\n')
    found = outlet(f"file://{path}")
    sent = [event(number, outputs=(table("ä"),)) for number in range(3)]
    assert [found.send(each) for each in sent] == [None] * 3
    found.settle()
    assert lines(path) == [{"a": 1}, *sent]


def test_line_that_a_crash_cut_is_ended_so_that_others_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text('{"a": 1}\n{"b": ')
    assert outlet(f"file://{path}").send(event(1)) is None
    first, cut, last = path.read_text().splitlines()
    assert (json.loads(first), cut, json.loads(last)) == ({"a": 1}, '{"b": ', event(1))


def test_file_on_a_full_disk_keeps_whole_lines() -> None:
    found = outlet("file:///dev/full")
    failure = found.send(event(1))
    assert failure is not None
    assert (failure.kind, "No space left" in failure.reason) == ("away", True)


def test_file_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match=r"events can't be written: .*No such file"):
        outlet(f"file://{tmp_path}/none/events")


def test_console_is_standard_output_and_nothing_but_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert outlet("console").send(event(1)) is None
    assert json.loads(capsys.readouterr().out) == event(1)


def test_kafka_without_its_client_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None; from duckicelake.errors import InvalidSettingsError;"
        "from duckicelake.lineage.delivery.receivers import KafkaReceiver;"
        "from duckicelake.lineage.delivery.transports import open_outlet\n"
        "try: open_outlet(KafkaReceiver('kafka://b:1/t', 't'))\nexcept InvalidSettingsError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "kafka://b:1/t, and Kafka's client isn't installed: pip install 'duckicelake[kafka]'" in said
