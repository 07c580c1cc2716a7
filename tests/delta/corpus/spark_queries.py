"""Ask Spark with Delta: python -m tests.delta.corpus.spark_queries OUT_DIR, with a JSON list of SQL on stdin.

A JVM of its own, as for `spark_reader`. OUT_DIR/<n>.arrow has the result of statement n, OUT_DIR/<n>.txt its error.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.delta.corpus.session import delta_session

QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""Of a JVM that doesn't live for long."""


def main() -> None:
    out = Path(sys.argv[1])
    with delta_session() as session:
        for number, statement in enumerate(json.load(sys.stdin)):
            try:
                rows = session.sql(statement).toArrow()
            except (PySparkException, Py4JError) as error:
                (out / f"{number}.txt").write_text(str(error))
                continue
            with pa.OSFile(str(out / f"{number}.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)


def asked(statements: Sequence[str], out: Path, environment: dict[str, str]) -> Iterator[pa.Table | str]:
    """What Spark answers to each: rows, or what is wrong."""
    command = [sys.executable, "-m", "tests.delta.corpus.spark_queries", str(out)]
    env = {**environment, "SPARK_SUBMIT_OPTS": QUICKLY}
    root = Path(__file__).parents[3]
    subprocess.run(command, cwd=root, env=env, input=json.dumps(list(statements)).encode(), check=True, timeout=540)
    for number in range(len(statements)):
        refused = out / f"{number}.txt"
        if refused.exists():
            yield refused.read_text()
        else:
            with pa.OSFile(str(out / f"{number}.arrow")) as file, pa.ipc.open_file(file) as reader:
                yield reader.read_all()


if __name__ == "__main__":
    main()
