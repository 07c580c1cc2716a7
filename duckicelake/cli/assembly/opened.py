"""A lake for the length of a command, as it is: nothing is made or migrated."""

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.access.principal import ANYBODY, Caller
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.opening import open_services
from duckicelake.cli.assembly.places import warehouse_of
from duckicelake.cli.assembly.postgres import reachable_postgres
from duckicelake.cli.versions import own_version
from duckicelake.errors import StartupError
from duckicelake.lake.contents import check_reached, read_contents
from duckicelake.lake.format import require_known
from duckicelake.lake.migrate import is_up_to_date
from duckicelake.settings import Settings

FROM_COMMAND_LINE: Final = "cli"
"""The address of whoever works at the machine itself."""


def operator(operation: str) -> Caller:
    """The login of the operating system that runs the command, which may do everything."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # in a container, without an entry for the user
        name = f"uid {os.getuid()}"
    client = {"user-agent": f"duckicelake-cli/{own_version()}"}
    return Caller(replace(ANYBODY, name=name), FROM_COMMAND_LINE, operation=operation, client=client)


@contextmanager
def opened(settings: Settings, operation: str = "") -> Iterator[Services]:
    """The services of a lake that this version's server has prepared; StartupError, Unavailable.

    operation: what the audit trail calls the command, by the name of the route that does the same.
    In a warehouse that isn't the lake's all that writes raises Unavailable.
    """
    with reachable_postgres(settings) as url:
        complete = settings.model_copy(update={"database_url": url, "warehouse": warehouse_of(settings)})
        with open_services(complete) as services:
            with services.database.reading() as cursor:
                check_reached(read_contents(cursor))
                if not is_up_to_date(cursor):
                    raise StartupError("the catalog isn't this version's: start this version of the server once")
            require_known(services.database)
            warehouse.look(services)
            yield replace(services, caller=operator(operation))
