"""`duckicelake delta`: Delta tables whose files are tables of the lake."""

from duckicelake.cli.delta.export import EXPORT_EXAMPLES, export_table
from duckicelake.cli.delta.following import (
    ADOPT_EXAMPLES,
    STATUS_EXAMPLES,
    SYNC_EXAMPLES,
    adopt_table,
    show_status,
    sync_tables,
)
from duckicelake.cli.delta.importing import EXAMPLES, import_delta
from duckicelake.cli.explaining import add_command, group

app = group(
    "delta",
    "Delta tables whose files are tables of the lake: import them, follow them, take them over; and the way back.",
)
add_command(app, import_delta, *EXAMPLES, name="import")
add_command(app, sync_tables, *SYNC_EXAMPLES, name="sync")
add_command(app, show_status, *STATUS_EXAMPLES, name="status")
add_command(app, adopt_table, *ADOPT_EXAMPLES, name="adopt")
add_command(app, export_table, *EXPORT_EXAMPLES, name="export")
