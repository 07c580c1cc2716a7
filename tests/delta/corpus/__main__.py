"""Make the Delta tables of the corpus: python -m tests.delta.corpus OUT_DIR [NAME…] [--no-spark].

OUT_DIR/tables/NAME is the table, OUT_DIR/spark/NAME what Spark Delta reads of it (see recording), OUT_DIR/corpus.json
lists what each covers. Tables that an earlier run has recorded are kept. With --no-spark only what needs no JVM is
made, and nothing recorded.
"""

import argparse
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from tests.delta.corpus.families import NAMES
from tests.delta.corpus.recorder import record
from tests.delta.corpus.registry import Case, Making, chosen
from tests.delta.corpus.session import delta_session

AT_ONCE = 2


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.delta.corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--no-spark", action="store_true")
    options = parser.parse_args()
    folder = options.folder.resolve()
    cases = [case for case in chosen(options.names) if not is_whole(case, folder)]
    if options.no_spark:
        cases = [case for case in cases if not case.needs_spark]
        failed = [case.name for case in cases if not made(case, folder, None)]
    else:
        with delta_session() as session, ThreadPoolExecutor(AT_ONCE) as pool:
            oks = pool.map(lambda case: made(case, folder, session), cases)
            failed = [case.name for case, ok in zip(cases, oks, strict=True) if not ok]
    if not failed:
        (folder / "corpus.json").write_text(
            json.dumps({case.name: case.feature for case in chosen(options.names)}, indent=1)
        )
    return 1 if failed else 0


def is_whole(case: Case, folder: Path) -> bool:
    """Whether an earlier run, which was ended before it was done, has made and recorded the table."""
    return (folder / "spark" / case.name / "read.json").exists()


def made(case: Case, folder: Path, session: Any) -> bool:
    """Whether the table could be made and recorded; what it took, or why it couldn't, is printed."""
    started = monotonic()
    making = Making(case.name, folder / "tables" / case.name, session.newSession() if session else None)
    for begun in (making.root, folder / "spark" / case.name):
        shutil.rmtree(begun, ignore_errors=True)
    making.root.parent.mkdir(parents=True, exist_ok=True)
    try:
        case.make(making)
        took = monotonic() - started
        if session:
            record(making.session, making.root, folder / "spark" / case.name)
    except Exception as error:  # noqa: BLE001 — of Spark's, delta-rs's or the file system's; the others go on
        print(f"FAILED {case.name}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
        return False
    print(f"{case.name}: {took:.1f} s, read in {monotonic() - started - took:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
