"""python -m scripts.backends_job up|down|status|build: what people type."""

import argparse
import shlex
import sys
from pathlib import Path

from scripts.backends_job import azurite, fake_gcs
from scripts.backends_job.minio import program, say
from scripts.backends_job.processes import BackendError
from scripts.backends_job.stack import down, status, up

DEFAULT_FOLDER = Path(__file__).parents[2] / "build" / "backends"
EXAMPLES = """examples:
  eval "$(scripts/backends up)" && scripts/serve        a lake on Postgres and S3
  scripts/backends up --postgres-port 5433 --s3-port 9000
  scripts/backends status --folder /var/tmp/lake
  scripts/backends down                                 stops both; data, ports and passwords are kept
  scripts/backends down && rm -r build/backends         and now they aren't
"""


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        return int(COMMANDS[options.command](options))
    except BackendError as error:
        say(str(error))
        return 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/backends",
        description="Start and stop a real Postgres and a real S3 server (MinIO) for a lake, on this machine only.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|down|status|build")
    starting = commands.add_parser("up", help="start what doesn't run, and print what to export for duckicelake")
    starting.add_argument("--postgres-port", type=int, metavar="N", help="default: the one of before, or a free one")
    starting.add_argument("--s3-port", type=int, metavar="N", help="default: the one of before, or a free one")
    stopping = commands.add_parser("down", help="stop what `up` started, and nothing else")
    asking = commands.add_parser("status", help="say what runs; exit with 1 unless all does")
    building = commands.add_parser("build", help="have MinIO on this machine, built if need be, and say where it is")
    building.add_argument("--stores", action="store_true", help="also those that take Google's and Azure's requests")
    for command in (starting, stopping, asking):
        command.add_argument(
            "--folder", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="where all of it is (build/backends)"
        )
    return parser.parse_args(arguments)


def run_up(options: argparse.Namespace) -> int:
    backends = up(options.folder, options.postgres_port, options.s3_port)
    for name, report in status(options.folder).items():
        say(f"{name} {report}")
    for variable, value in backends.environment().items():
        print(f"export {variable}={shlex.quote(value)}")
    return 0


def run_down(options: argparse.Namespace) -> int:
    stopped = down(options.folder)
    say(f"stopped {' and '.join(stopped)}" if stopped else "nothing ran")
    return 0


def run_status(options: argparse.Namespace) -> int:
    report = status(options.folder)
    for name, where in report.items():
        print(f"{name:9} {where}")
    return 0 if all(where.startswith("runs") for where in report.values()) else 1


def run_build(options: argparse.Namespace) -> int:
    say(f"MinIO is {program()}")
    if options.stores:
        say(f"fake-gcs-server is {fake_gcs.program()}")
        say(f"Azurite is {azurite.program()}")
    return 0


COMMANDS = {"up": run_up, "down": run_down, "status": run_status, "build": run_build}


if __name__ == "__main__":
    sys.exit(main())
