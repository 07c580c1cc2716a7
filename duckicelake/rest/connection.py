"""The address and the credentials of a catalog."""

from dataclasses import dataclass, field
from typing import Final

DEFAULT_URI: Final = "http://127.0.0.1:8181"


@dataclass(frozen=True, slots=True)
class Connection:
    """A catalog and what it asks for. uri: without `/v1`. credential: `<id>:<secret>`; token: instead of it.

    oauth2_server_uri: None is the catalog's own. scope: None is all that the client has. warehouse: its name, where the
    server has several.
    """

    uri: str = DEFAULT_URI
    credential: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    oauth2_server_uri: str | None = None
    scope: str | None = None
    warehouse: str | None = None

    @property
    def login_uri(self) -> str:
        """Where tokens are given out."""
        return self.oauth2_server_uri or f"{self.uri.rstrip('/')}/v1/oauth/tokens"

    def catalog_properties(self) -> dict[str, str]:
        """What Iceberg's RESTCatalog is given."""
        named = {
            "uri": self.uri.rstrip("/"),
            "credential": self.credential,
            "token": self.token,
            "oauth2-server-uri": self.login_uri if self.credential else None,
            "scope": self.scope,
            "warehouse": self.warehouse,
        }
        return {name: value for name, value in named.items() if value is not None}
