"""`duckicelake storage-profile`: create, list, show and drop storage profiles; `duckicelake rotate-secrets`."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from duckicelake.cli.console.command import SERVE, LakeOption, add_command, make_group, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckicelake.catalog.context.services import Services
    from duckicelake.lake.side_tables.storage_profiles import ProfileRow
    from duckicelake.settings.model import Settings

CREATE_EXAMPLES: Final = (
    (
        "duckicelake storage-profile create eu s3://eu-bucket/lakes --endpoint https://s3.example "
        "--access-key-id AKIA1 < secret"
    ),
    "duckicelake storage-profile create own s3://bucket/more --ambient",
)
LIST_EXAMPLES: Final = ("duckicelake storage-profile list",)
SHOW_EXAMPLES: Final = ("duckicelake storage-profile show eu --json",)
DROP_EXAMPLES: Final = ("duckicelake storage-profile drop eu",)
ROTATE_EXAMPLES: Final = ("duckicelake rotate-secrets",)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The profile's name.")]
app: Final = make_group(
    "storage-profile", "S3 servers, folders and keys that warehouses use instead of the settings'.", panel=SERVE
)


@one_line_errors()
def create(
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _ and -.")],
    root: Annotated[str, typer.Argument(help="s3://<bucket>/<prefix>, below which the files of its warehouses go.")],
    endpoint: Annotated[str | None, typer.Option(help="URL of the S3 server (default: Amazon's).")] = None,
    public_endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 server for clients (default: --endpoint).")
    ] = None,
    sts_endpoint: Annotated[str | None, typer.Option(help="URL of the STS server (default: --endpoint).")] = None,
    region: Annotated[str | None, typer.Option(help="Region to sign for.")] = None,
    path_style: Annotated[bool, typer.Option("--path-style", help="Put the bucket into the path.")] = False,
    access_key_id: Annotated[
        str | None, typer.Option(help="The server's key; its secret is read from the terminal or standard input.")
    ] = None,
    ambient: Annotated[bool, typer.Option("--ambient", help="Use the server's own credentials.")] = False,
    vending: Annotated[
        Literal["sts", "remote-signing", "none"] | None, typer.Option(help="How clients get access.")
    ] = None,
    role_arn: Annotated[str | None, typer.Option(help="Role for the keys of clients.")] = None,
    external_id: Annotated[str | None, typer.Option(help="External id of that role.")] = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Create a storage profile, which warehouses name. Its key is encrypted in Postgres and never shown again."""
    from duckicelake.catalog.storage_profiles import ProfileKeys, StorageProfileSpec, create_profile
    from duckicelake.cli.wiring.profile_settings import build_profile_rules
    from duckicelake.errors import InvalidRequestError

    if ambient == (access_key_id is not None):
        raise InvalidRequestError("Give either --access-key-id or --ambient")
    keys = None if access_key_id is None else ProfileKeys(access_key_id, _read_secret())
    spec = StorageProfileSpec(
        name, root, endpoint, public_endpoint, sts_endpoint, region, path_style, vending, role_arn, external_id
    )
    with _open_registry(lake, "create_storage_profile") as (services, settings):
        created = create_profile(services, build_profile_rules(settings), spec, keys)
    _print_profile(created, as_json=as_json)


@one_line_errors()
def list_(as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """List the storage profiles, without their keys."""
    from duckicelake.catalog.storage_profiles import list_profiles

    with _open_registry(lake, "list_storage_profiles") as (services, _):
        rows = list_profiles(services)
    if as_json:
        print_json(*map(_describe, rows))
        return
    for row in rows:
        typer.echo(f"{row.name:24} {row.spec.root:40} {row.spec.endpoint or 'AWS'}")


@one_line_errors()
def show(name: NameArgument, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """Print a storage profile, without its key."""
    from duckicelake.catalog.storage_profiles import find_profile

    with _open_registry(lake, "load_storage_profile") as (services, _):
        row = find_profile(services, name)
    _print_profile(row, as_json=as_json)


@one_line_errors()
def drop(name: NameArgument, lake: LakeOption = None) -> None:
    """Drop a storage profile that no warehouse uses. Files stay where they are."""
    from duckicelake.catalog.storage_profiles import drop_profile

    with _open_registry(lake, "drop_storage_profile") as (services, _):
        drop_profile(services, name)
    typer.echo(f"{name} is dropped")


@one_line_errors()
def rotate(lake: LakeOption = None) -> None:
    """Write all secrets in Postgres anew, encrypted with the first key of DUCKICELAKE_SECRET_KEYS.

    Put a new key before the old one, restart the servers, run this, and take the old key out.
    """
    from duckicelake.catalog.storage_profiles import rotate_secrets
    from duckicelake.cli.console.terminal import format_count
    from duckicelake.cli.wiring.profile_settings import build_profile_rules
    from duckicelake.errors import InvalidSettingsError

    with _open_registry(lake, "rotate_secrets") as (services, settings):
        keys = build_profile_rules(settings).keys
        if keys is None:
            raise InvalidSettingsError("there is no key to encrypt with: set DUCKICELAKE_SECRET_KEYS")
        count = rotate_secrets(services, keys)
    typer.echo(f"{format_count(count, 'secret')} encrypted with key {next(iter(keys.keys))}")


@contextmanager
def _open_registry(lake: Any, operation: str) -> Iterator[tuple[Services, Settings]]:
    """Open the first warehouse, whose schema holds the profiles."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    with open_lake(settings, operation) as services:
        yield services, settings


def _read_secret() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Secret access key", hide_input=True))
    return sys.stdin.readline().rstrip("\r\n")


def _print_profile(row: ProfileRow, *, as_json: bool) -> None:
    facts = _describe(row)
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:16} {value}")


def _describe(row: ProfileRow) -> dict[str, Any]:
    """Describe a profile with the field names of the management API."""
    from dataclasses import asdict

    facts = {name.replace("_", "-"): value for name, value in asdict(row.spec).items()}
    return {
        "profile-id": str(row.profile_id),
        **facts,
        "credentials": "ambient" if row.secret is None else "key",
        "encrypted-by": None if row.secret is None else row.secret.partition(":")[0],
        "created": row.created.isoformat(),
    }


add_command(app, create, *CREATE_EXAMPLES, has_warehouse_option=False)
add_command(app, list_, *LIST_EXAMPLES, name="list", has_warehouse_option=False)
add_command(app, show, *SHOW_EXAMPLES, has_warehouse_option=False)
add_command(app, drop, *DROP_EXAMPLES, has_warehouse_option=False)
