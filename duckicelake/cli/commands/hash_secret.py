"""`duckicelake hash-secret`: what to write instead of a secret."""

from typing import Final

from duckicelake.cli.console.command import done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake hash-secret",
    "openssl rand -hex 32 | tee secret | duckicelake hash-secret",
)


@one_line_errors()
@done_by("duckicelake.cli.hash_secret.hash_client_secret")
def hash_client_secret() -> None:
    """Read a client's secret from the terminal or standard input, and print what to write instead of it."""
