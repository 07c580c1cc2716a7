"""What `duckicelake hash-secret` asks and prints."""

import sys

import typer

from duckicelake.errors import InvalidSettings
from duckicelake.server.identity.oauth_clients import hash_secret


def hash_client_secret() -> None:
    """Read a secret and print its hash. Raises InvalidSettings for an empty one."""
    secret = typer.prompt("Secret", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise InvalidSettings("the secret is empty")
    typer.echo(hash_secret(secret))
