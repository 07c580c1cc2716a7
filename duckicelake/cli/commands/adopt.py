"""`duckicelake adopt`: the warehouse becomes this lake's."""

from typing import Final

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = ("duckicelake adopt", "duckicelake adopt --lake /data/lake")


@one_line_errors()
@done_by("duckicelake.cli.lake.adopt")
def adopt(lake: LakeOption = None) -> None:
    """Make the warehouse of the settings this lake's own, whoever's it was, and print what changed.

    A warehouse has a marker that names its lake; servers of others refuse to write and to delete there. Run it after a
    restore into another database, after pg_upgrade, and once files were moved. Don't where the lake that the marker
    names lives on: its servers stop writing within a minute, and each lake's cleanup would delete the other's files.
    """
