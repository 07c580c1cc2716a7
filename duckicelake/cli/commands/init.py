"""`duckicelake init`: a lake that can be served."""

from typing import Final

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake init --lake /data/lake",
    ("DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse duckicelake init"),
)


@one_line_errors()
@done_by("duckicelake.cli.lake.init")
def init(lake: LakeOption = None) -> None:
    """Create the lake, or check that an existing one can be served, and stop again."""
