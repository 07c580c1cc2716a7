"""`duckicelake storage-profile`: create, list, show and drop storage profiles; `duckicelake rotate-secrets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from duckicelake.cli.catalog.connection import add_administration_command
from duckicelake.cli.console.command import SERVE, LakeOption, make_group, one_line_errors
from duckicelake.cli.console.terminal import print_json, read_secret
from duckicelake.cli.principal import list_facts, print_facts

if TYPE_CHECKING:
    from duckicelake.client.administration import Administrator

CREATE_EXAMPLES: Final = (
    (
        "duckicelake storage-profile create eu s3://eu-bucket/lakes --endpoint https://s3.example "
        "--access-key-id AKIA1 < secret"
    ),
    "duckicelake storage-profile create own s3://bucket/more --ambient",
    "duckicelake storage-profile create google gs://bucket/lakes --access-key-id lake@project < key.json",
)
LIST_EXAMPLES: Final = ("duckicelake storage-profile list",)
SHOW_EXAMPLES: Final = ("duckicelake storage-profile show eu --json",)
DROP_EXAMPLES: Final = ("duckicelake storage-profile drop eu",)
ROTATE_EXAMPLES: Final = ("duckicelake rotate-secrets",)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The profile's name.")]
app: Final = make_group(
    "storage-profile", "Stores, folders and keys that warehouses use instead of the settings'.", panel=SERVE
)


def create(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _ and -.")],
    root: Annotated[str, typer.Argument(help="Folder in a bucket, below which the files of its warehouses go.")],
    endpoint: Annotated[str | None, typer.Option(help="URL of the store (default: the cloud's own).")] = None,
    public_endpoint: Annotated[
        str | None, typer.Option(help="URL of the store for clients (default: --endpoint).")
    ] = None,
    sts_endpoint: Annotated[str | None, typer.Option(help="URL of the token service.")] = None,
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
    sse: Annotated[
        Literal["s3", "kms", "dsse-kms"] | None, typer.Option(help="Encryption of files (default: the bucket's).")
    ] = None,
    kms_key: Annotated[str | None, typer.Option(help="ARN of the key of KMS, which clients may use, too.")] = None,
    bucket_key: Annotated[
        bool | None, typer.Option("--bucket-key/--no-bucket-key", help="Spare calls of KMS (default: the bucket's).")
    ] = None,
    requester_pays: Annotated[bool, typer.Option("--requester-pays", help="Accept the costs of requests.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a storage profile, which warehouses name. Its key is encrypted in Postgres and never shown again."""
    from duckicelake.errors import InvalidRequestError

    if ambient == (access_key_id is not None):
        raise InvalidRequestError("Give either --access-key-id or --ambient")
    keys = (
        None
        if access_key_id is None
        else (access_key_id, read_secret("Secret access key", has_lines=root.startswith(("gs:", "gcs:"))))
    )
    options = {
        "name": name,
        "root": root,
        "endpoint": endpoint,
        "public_endpoint": public_endpoint,
        "sts_endpoint": sts_endpoint,
        "region": region,
        "path_style": path_style,
        "vending": vending,
        "role_arn": role_arn,
        "external_id": external_id,
        "sse": sse,
        "kms_key": kms_key,
        "bucket_key": bucket_key,
        "requester_pays": requester_pays,
    }
    print_facts(list_facts(server.create_profile(options, keys)), as_json=as_json)


def list_(server: Administrator, as_json: JsonOption = False) -> None:
    """List the storage profiles, without their keys."""
    rows = server.list_profiles()
    if as_json:
        print_json(*map(list_facts, rows))
        return
    for row in rows:
        typer.echo(f"{row.name:24} {row.root:40} {row.endpoint or 'the cloud'}")


def show(server: Administrator, name: NameArgument, as_json: JsonOption = False) -> None:
    """Print a storage profile, without its key."""
    print_facts(list_facts(server.load_profile(name)), as_json=as_json)


def drop(server: Administrator, name: NameArgument) -> None:
    """Drop a storage profile that no warehouse uses. Files stay where they are."""
    server.drop_profile(name)
    typer.echo(f"{name} is dropped")


@one_line_errors()
def rotate(lake: LakeOption = None) -> None:
    """Write all secrets in Postgres anew, encrypted with the first key of DUCKICELAKE_SECRET_KEYS.

    These are the keys of storage profiles, the secrets of issuers, and the URLs of databases.

    Put a new key before the old one, restart the servers, run this, and take the old key out.
    """
    from duckicelake.catalog.warehouse_registry import rotate_secrets
    from duckicelake.cli.wiring.profile_settings import build_profile_rules
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import InvalidSettingsError, format_count
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    with open_lake(settings, "rotate_secrets") as services:
        keys = build_profile_rules(settings).keys
        if keys is None:
            raise InvalidSettingsError("there is no key to encrypt with: set DUCKICELAKE_SECRET_KEYS")
        count = rotate_secrets(services, keys)
    typer.echo(f"{format_count(count, 'secret')} encrypted with key {next(iter(keys.keys))}")


add_administration_command(app, create, *CREATE_EXAMPLES)
add_administration_command(app, list_, *LIST_EXAMPLES, name="list")
add_administration_command(app, show, *SHOW_EXAMPLES)
add_administration_command(app, drop, *DROP_EXAMPLES)
