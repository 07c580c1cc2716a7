"""`duckicelake hash-secret`: print the hash of a client's secret."""

import sys

import typer

from duckicelake.server.auth.oauth_clients import check_secret, hash_secret


def hash_client_secret() -> None:
    """Read a secret and print its hash. Raises InvalidSettings for a short one."""
    secret = typer.prompt("Secret", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    check_secret(secret, "the secret")
    typer.echo(hash_secret(secret))
