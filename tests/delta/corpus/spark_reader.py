"""Read Delta tables with Spark: python -m tests.delta.corpus.spark_reader OUT_DIR FOLDER…

A JVM of its own, so that tests whose process has a Spark with Iceberg can ask. OUT_DIR/<n> has what `recording` records
of the n-th folder.
"""

import sys
from pathlib import Path

from tests.delta.corpus.recorder import record
from tests.delta.corpus.session import delta_session


def main() -> None:
    out, *folders = map(Path, sys.argv[1:])
    with delta_session() as session:
        for number, folder in enumerate(folders):
            record(session, folder, out / str(number))


if __name__ == "__main__":
    main()
