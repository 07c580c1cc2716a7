"""`duckicelake changes` that ends itself like kill -9 at a named step: a sink the second time that it comes there.

`python -m tests.row_changes.killed_follower STEP changes …`
"""

import os
import signal
import sys
from itertools import count
from typing import Any

from duckicelake.cli.main import app
from duckicelake.row_changes.kafka import KafkaSink
from duckicelake.row_changes.sinks import FileSink, StateFile
from duckicelake.row_changes.webhook import WebhookSink

WEBHOOK_STEPS: dict[str, tuple[Any, str, bool]] = {
    "before a row": (WebhookSink, "take", False),
    "before a message": (WebhookSink, "_deliver", False),
    "behind a message": (WebhookSink, "_deliver", True),
    "before the state": (StateFile, "write", False),
    "behind the state": (StateFile, "write", True),
}
"""Where each function is, and whether it is done."""
KAFKA_STEPS: dict[str, tuple[Any, str, bool]] = {
    "behind a row": (KafkaSink, "take", True),
    "behind the rows": (KafkaSink, "keep", False),
    "before the commit": (KafkaSink, "_commit", False),
    "behind the commit": (KafkaSink, "_commit", True),
    "behind the position": (KafkaSink, "keep", True),
}
FILE_STEPS: dict[str, tuple[Any, str, bool]] = {
    "behind the rows of an answer": (FileSink, "keep", False),
    "before their position": (StateFile, "write", False),
    "behind their position": (StateFile, "write", True),
}


def die(step: str) -> None:
    """Have the process killed at a step."""
    at = 1 if step in FILE_STEPS else 2
    home, name, is_done = (WEBHOOK_STEPS | KAFKA_STEPS | FILE_STEPS)[step]
    function, times = getattr(home, name), count(1)

    def last(*arguments: Any) -> Any:
        is_last = next(times) == at
        if is_last and not is_done:
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*arguments)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(home, name, last)


if __name__ == "__main__":
    die(sys.argv[1])
    app(sys.argv[2:])
