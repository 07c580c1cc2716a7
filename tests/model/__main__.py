"""Longer runs than the tests': `python -m tests.model --seed 1 --steps 500`, or `--plan "..."` of a run that failed.

It prints what was done up to the failure, and with `--shrink` the shortest plan that it finds to fail as well.
"""

import argparse
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.pyiceberg_v3.installation import install
from tests.model.lake import Lake
from tests.model.opening import new_lake, standalone
from tests.model.run import RunError, Step, chosen, parse, run, shrunk


def main() -> int:
    arguments = parsed()
    install()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="duckicelake-model-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        runs = Runs(stack.enter_context(EmbeddedPostgres(folder)), arguments.mode, arguments.version)
        if arguments.plan:
            return runs.follow(parse(arguments.plan), shrink=arguments.shrink)
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            if runs.choose(seed, arguments.steps, shrink=arguments.shrink):
                return 1
    return 0


def kind(failed: RunError) -> tuple[type, str]:
    """What tells one failure from another: the error, and the check or operation that raised it."""
    cause = failed.__cause__
    assert cause is not None
    names = [frame.name for frame in traceback.extract_tb(cause.__traceback__) if "/model/" in frame.filename]
    return type(cause), names[-1]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=1, help="how many seeds, from the first one")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--mode", choices=["client", "ducklake"], default="client")
    parser.add_argument("--version", type=int, choices=[2, 3], default=2, help="format version of the first table")
    parser.add_argument("--plan", help="steps to do again instead of choosing some")
    parser.add_argument("--shrink", action="store_true", help="look for a shorter plan that fails as well")
    return parser.parse_args()


class Runs:
    """Runs on lakes of their own."""

    def __init__(self, postgres: EmbeddedPostgres, mode: str, version: int) -> None:
        self.postgres, self.mode, self.version = postgres, mode, version

    def choose(self, seed: int, steps: int, *, shrink: bool) -> int:
        """Run steps at random; the exit status."""
        print(f"seed {seed}, mode {self.mode}, version {self.version}: {steps} steps", flush=True)
        with self.lake() as lake:
            return self.report(lambda: run(lake, chosen(lake, seed, steps)), shrink=shrink)

    def follow(self, plan: Sequence[Step], *, shrink: bool) -> int:
        with self.lake() as lake:
            return self.report(lambda: run(lake, plan), shrink=shrink)

    def report(self, act: Callable[[], None], *, shrink: bool) -> int:
        began = monotonic()
        try:
            act()
        except RunError as failed:
            print(failed)
            traceback.print_exception(failed.__cause__, file=sys.stdout)
            if shrink:
                expected = kind(failed)
                print("shortest:", *shrunk(failed.plan, lambda steps: self.fails(steps, expected)))
            return 1
        print(f"  {monotonic() - began:.0f} s", flush=True)
        return 0

    def fails(self, plan: Sequence[Step], like: tuple[type, str]) -> bool:
        """Whether the plan fails in the same way."""
        with self.lake() as lake:
            try:
                run(lake, plan)
            except RunError as failed:
                print(f"  {len(plan)} steps fail with {kind(failed)}", file=sys.stderr, flush=True)
                return kind(failed) == like
        return False

    @contextmanager
    def lake(self) -> Iterator[Lake]:
        with (
            standalone(self.postgres) as (services, attach),
            new_lake(services, attach, self.mode, self.version) as lake,
        ):
            yield lake


sys.exit(main())
