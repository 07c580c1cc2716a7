"""What `duckicelake lineage forget` does and tells."""

from pathlib import Path

import typer

from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.counting import counted
from duckicelake.cli.moments import moment
from duckicelake.lake.lineage.forgetting import forget as forget_old
from duckicelake.lake.lineage.forgetting import kept
from duckicelake.settings import read_settings


def forget(*, older_than: str, lake: Path | None) -> None:
    """Forget what is older, and tell what can't be yet. Raises InvalidRequest, Unavailable, StartupError."""
    with opened(read_settings({"lake": lake})) as services:
        before = moment(older_than)
        gone, waiting = forget_old(services.database, before), kept(services.database, before)
    typer.echo(f"forgot {counted(gone.events, 'event')} and {counted(gone.runs, 'run')}")
    for receiver, events in waiting:
        advice = f"if it is gone for good: duckicelake lineage deliveries {receiver} --forget"
        typer.echo(f"waiting for {receiver}: {counted(events, 'event')}; {advice}")
