"""`duckicelake init`: a lake that can be served."""

from typing import Final

from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.deferring import done_by
from duckicelake.cli.lake_option import LakeOption

EXAMPLES: Final = (
    "duckicelake init --lake /data/lake",
    ("DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse duckicelake init"),
)


@one_line_errors()
@done_by("initialising:init")
def init(lake: LakeOption = None) -> None:
    """Create the lake, or check that an existing one can be served, and stop again."""
