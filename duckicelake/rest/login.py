"""Logging in to a catalog: a credential becomes a token."""

from duckicelake.errors import BadCredentials, CatalogUnreachable
from duckicelake.rest.connection import Connection
from duckicelake.rest.json_http import send


def log_in(connection: Connection) -> str:
    """A token for the connection's credential; BadCredentials, CatalogUnreachable."""
    name, colon, secret = (connection.credential or "").partition(":")
    if not colon:
        raise BadCredentials("the credential has no colon: write it as <id>:<secret>")
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
    if connection.scope is not None:
        form["scope"] = connection.scope
    answer = send("POST", connection.login_uri, form=form)
    if answer.status in {400, 401, 403}:
        wrong = "--credential" if connection.scope is None else "--credential and --scope"
        raise BadCredentials(f"{connection.login_uri} refuses {name!r}: {answer.problem[1]}; check {wrong}")
    if answer.status != 200 or not isinstance(answer.body, dict) or "access_token" not in answer.body:
        raise CatalogUnreachable(f"{connection.login_uri} gives no token: {answer.problem[1]}")
    return str(answer.body["access_token"])
