"""A stock ClickHouse in one process, that runs SQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.engines_job.packages import clickhouse_home
from scripts.engines_job.python import PythonProcess, running_python


@contextmanager
def running_clickhouse(folder: Path) -> Iterator[PythonProcess]:
    """Start it; its data and what it says go to the folder. It runs a statement, or several with semicolons."""
    with running_python("clickhouse_statements.py", folder, clickhouse_home()) as process:
        yield process
