"""`duckicelake hash-secret`: what to write instead of a secret."""

import sys
from typing import Final

import typer

from duckicelake.cli.complaining import one_line_errors
from duckicelake.errors import InvalidSettings
from duckicelake.server.identity.oauth_clients import hash_secret

EXAMPLES: Final = (
    "duckicelake hash-secret",
    "openssl rand -hex 32 | tee secret | duckicelake hash-secret",
)


def hash_client_secret() -> None:
    """Read a client's secret from the terminal or standard input, and print what to write instead of it."""
    with one_line_errors():
        secret = typer.prompt("Secret", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
        if not secret:
            raise InvalidSettings("the secret is empty")
        typer.echo(hash_secret(secret))
