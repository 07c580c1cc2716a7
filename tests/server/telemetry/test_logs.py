"""The log: that it can't be written is no one's concern."""

import json
from pathlib import Path

import pytest

from duckicelake.server.telemetry.logs import LogFormat, make_logger

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no file that is always full")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_line_that_does_not_fit_on_the_disk_is_dropped(log_format: LogFormat) -> None:
    stream = FULL.open("w")
    log = make_logger(stream, log_format)
    log.info("request", status=200)
    log.warning("failed", exc_info=ValueError("no"))
    with pytest.raises(OSError, match="No space left"):
        stream.close()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_name_of_a_file_that_is_no_text_is_reported_as_it_goes(tmp_path: Path, log_format: LogFormat) -> None:
    with (tmp_path / "log").open("w+", encoding="utf-8") as stream:
        log = make_logger(stream, log_format)
        log.warning("failed", error="no such file: \udc80.parquet")
        log.info("request", status=200)
        stream.seek(0)
        lines = stream.read().splitlines()
    if log_format == "json":
        assert [json.loads(line)["event"] for line in lines] == ["failed", "request"]
    else:
        assert "request" in lines[-1]


def test_log_that_is_closed_takes_nothing_more(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        log = make_logger(stream, "json")
    log.warning("failed")


def test_requests_are_short_lines_for_people(tmp_path: Path) -> None:
    line = {"request_id": "r1", "method": "GET", "route": "/v1/config", "path": "/v1/config", "ms": 31.4}
    with (tmp_path / "log").open("w+") as stream:
        log = make_logger(stream, "console")
        log.info("request", **line, status=200, principal="ann")
        log.info("request", **line, status=404)
        stream.seek(0)
        found = [text.partition(" ")[2] for text in stream.read().splitlines()]
    assert found == ["GET /v1/config 200 31 ms principal=ann", "GET /v1/config 404 31 ms request_id=r1"]
