"""python -m scripts.engines_job fetch: what people type."""

import argparse
import sys

from scripts.engines_job.packages import EngineError, clickhouse_home, flink_jars, java_home, say, trino_home


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/engines",
        description="Have Trino, Flink and ClickHouse on this machine (1.9 GB), and say where they are.",
    )
    parser.add_argument("command", choices=["fetch"])
    parser.parse_args()
    try:
        homes = {"Flink": flink_jars, "Trino": trino_home, "Trino's Java": java_home, "ClickHouse": clickhouse_home}
        for name, home in homes.items():
            say(f"{name} is in {home()}")
    except EngineError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
