"""The log: that it can't be written is nobody's concern."""

from pathlib import Path

import pytest

from duckicelake.server.telemetry.logging import LogFormat, make_logger

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
