"""python -m scripts.engines_job fetch: what people type."""

import argparse
import sys

from scripts.engines_job.packages import EngineError, flink_jars, java_home, say, trino_home


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/engines", description="Have Trino and Flink on this machine (1.4 GB), and say where they are."
    )
    parser.add_argument("command", choices=["fetch"])
    parser.parse_args()
    try:
        for name, home in (("Flink", flink_jars), ("Trino", trino_home), ("Trino's Java", java_home)):
            say(f"{name} is in {home()}")
    except EngineError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
