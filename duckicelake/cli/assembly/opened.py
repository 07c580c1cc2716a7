"""A lake for the length of a command, as it is: nothing is made or migrated."""

from collections.abc import Iterator
from contextlib import contextmanager

from duckicelake.catalog import warehouse
from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.opening import open_services
from duckicelake.cli.assembly.places import warehouse_of
from duckicelake.cli.assembly.postgres import reachable_postgres
from duckicelake.errors import StartupError
from duckicelake.lake.contents import check_reached, read_contents
from duckicelake.lake.format import require_known
from duckicelake.lake.migrate import is_up_to_date
from duckicelake.settings import Settings


@contextmanager
def opened(settings: Settings) -> Iterator[Services]:
    """The services of a lake that this version's server has prepared; StartupError, Unavailable.

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
            yield services
