"""A view as it is now: what DuckDB did to it since an Iceberg client last saw it becomes its next version."""

from dataclasses import dataclass

from duckicelake.bridge.views import definition_of, first_metadata, metadata_file, metadata_folder, redefined
from duckicelake.catalog.access.confinement import write
from duckicelake.catalog.services import Services
from duckicelake.errors import NoSuchView
from duckicelake.iceberg.names import Namespace, full_name, namespace_of, schema_name
from duckicelake.iceberg.view import ViewMetadata, parse_view_metadata
from duckicelake.lake import views
from duckicelake.lake.model import LakeView, ViewDefinition
from duckicelake.lake.state import ViewRow
from duckicelake.lake.view_columns import ViewColumns, view_columns
from duckicelake.lake.views import ViewTarget
from duckicelake.lake.writing.files import StaleBase


@dataclass(frozen=True, slots=True)
class CurrentView:
    """A view whose side row says what DuckDB's row says, and whose metadata.json is written."""

    lake: LakeView
    row: ViewRow


def current_view(services: Services, namespace: Namespace, name: str) -> CurrentView:
    """The view as it is now, DuckDB's changes included; NoSuchView."""
    while True:
        with services.database.reading() as cursor:
            view = views.find_view(cursor, schema_name(namespace), name)
            if view is None:
                raise no_such_view(namespace, name)
            row = views.view_row(cursor, view.view_id)
            if row is not None and row.view_id == view.view_id and row.definition == view.definition:
                return CurrentView(view, row)
            columns = view_columns(cursor, view)
        target = written(services, _taken_over(services, view, row, columns), row, view.definition)
        try:
            with services.database.transaction() as cursor:
                views.take_over(cursor, row, view, target)
        except StaleBase:
            continue


def no_such_view(namespace: Namespace, name: str) -> NoSuchView:
    """The error, in Iceberg's words."""
    return NoSuchView(f"View does not exist: {full_name(namespace, name)}")


def written(
    services: Services, metadata: ViewMetadata, base: ViewRow | None, definition: ViewDefinition | None = None
) -> ViewTarget:
    """The view's next state, its metadata.json in the store: the file must be there before anybody is told its name.

    InvalidRequest if the view may not live where the metadata says.
    """
    services.policy.check_table_location(metadata.location)
    services.policy.check_table_location(metadata_folder(metadata))
    location, data = metadata_file(metadata, 0 if base is None else base.version + 1)
    write(services, location, data)
    return ViewTarget(metadata.to_json(), location, metadata.current_version_id, definition or definition_of(metadata))


def _taken_over(services: Services, view: LakeView, row: ViewRow | None, known: ViewColumns) -> ViewMetadata:
    if row is not None:
        return redefined(parse_view_metadata(row.metadata), row.definition, view, known.columns, known.unlike)
    location = services.policy.table_location(namespace_of(view.schema_name), view.view_name, view.view_uuid)
    return first_metadata(view, known.columns, known.unlike, location)
