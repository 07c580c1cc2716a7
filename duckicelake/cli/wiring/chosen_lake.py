"""The lake that a command works on: that of the settings, or a warehouse that --warehouse names."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from duckicelake.cli.console.command import find_chosen_warehouse
from duckicelake.cli.wiring.location import advise_on_postgres, find_warehouse, reach_postgres
from duckicelake.errors import ConflictError, StartupError, UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import check_reachable, read_contents
from duckicelake.lake.setup.migrations import is_up_to_date
from duckicelake.lake.side_tables.grants import GrantPlace, qualify, read_first_schema
from duckicelake.lake.side_tables.storage_profiles import ProfileRow, pick_profile_of, read_profiles
from duckicelake.lake.side_tables.warehouses import FIRST_NAME, WarehouseRow, pick_row, read_warehouses
from duckicelake.postgres.session import build_schema_url
from duckicelake.settings.model import Settings


@dataclass(frozen=True, slots=True)
class ChosenWarehouse:
    """A warehouse that --warehouse names.

    place: where its grants are, in the schema of the first warehouse. profile: its storage profile, if it has one.
    registry_url: of the database of the first warehouse.
    """

    row: WarehouseRow
    place: GrantPlace
    registry_url: str
    profile: ProfileRow | None = None


@dataclass(frozen=True, slots=True)
class ReachedLake:
    """The lake that a command works on.

    settings: those by which it is a server's first lake, with its database and folder. chosen: None is the first.
    """

    settings: Settings
    chosen: ChosenWarehouse | None = None

    @property
    def url(self) -> str:
        """The URL of its database, whose sessions find its schema."""
        return self.settings.database_url or ""


@contextmanager
def reach_lake(settings: Settings) -> Iterator[ReachedLake]:
    """Open the way to the database of the lake that the command works on.

    Raises StartupError without a lake, NoSuchWarehouseError, UnavailableError.
    """
    with reach_postgres(settings) as url:
        complete = settings.model_copy(update={"database_url": url, "warehouse": find_warehouse(settings)})
        chosen = find_chosen(url)
        yield ReachedLake(complete if chosen is None else build_warehouse_settings(complete, chosen), chosen)


def find_chosen(url: str) -> ChosenWarehouse | None:
    """Find the warehouse that --warehouse names in the registry at a Postgres URL; None: the first."""
    name = find_chosen_warehouse()
    if name is None or name == FIRST_NAME:
        return None
    with closing(open_lake_database(url, 1)) as database:
        try:
            database.check()
        except UnavailableError as error:
            raise UnavailableError(f"{error}; {advise_on_postgres(error)}") from error
        with database.reading() as cursor:
            check_reachable(read_contents(cursor))
            if not is_up_to_date(cursor):
                raise StartupError("the lake was prepared by another version: start this version of the server once")
            row = pick_row(read_warehouses(cursor), name)
            profile = None if row.profile_id is None else pick_profile_of(read_profiles(cursor), row.profile_id)
            place = qualify(GrantPlace(row.warehouse_id), read_first_schema(cursor))
    if not row.is_active:
        raise ConflictError(f"Warehouse {name} is in state {row.state}: create or drop it once more first")
    return ChosenWarehouse(row, place, url, profile)


def build_warehouse_settings(settings: Settings, chosen: ChosenWarehouse) -> Settings:
    """Build the settings by which the lake of a warehouse is a server's first. settings: of the first, with its URL.

    Raises UnavailableError for a storage profile or a database that can't be used.
    """
    row, url = chosen.row, settings.database_url
    policies = (f"{name}={value}" for name, value in row.policies.items())
    assert url is not None
    if row.database_url is not None:
        from duckicelake.cli.wiring.profile_settings import build_warehouse_databases

        url = build_warehouse_databases(settings).reveal(row)
    if chosen.profile is not None:
        from duckicelake.cli.wiring.profile_settings import apply_profile, build_profile_rules

        settings = apply_profile(settings, build_profile_rules(settings), chosen.profile)
    return settings.model_copy(
        update={
            "database_url": build_schema_url(url, row.schema_name),
            "warehouse": row.location,
            "maintenance": (*settings.maintenance, *policies),
            "allowed_locations": row.places[1:],
            "warehouse_roots": (),
        }
    )
