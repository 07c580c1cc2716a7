"""The address and the credentials of a catalog."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_URI: Final = "http://127.0.0.1:8181"


@dataclass(frozen=True, slots=True)
class Connection:
    """The address and credentials of a catalog.

    Attributes:
        uri: without `/v1`.
        credential: `<id>:<secret>`.
        token: instead of a credential.
        oauth2_server_uri: None takes the catalog's own.
        scope: None asks for all scopes of the client.
        warehouse: its name, for a server with several.
        oidc_issuer, oidc_client_id, oidc_scope: of `duckicelake login`.
        headers: sent with every request, such as `X-Engine`, which the audit trail keeps.
        read_only_by: what forbids changes, as `profile work`; None allows them.

    """

    uri: str = DEFAULT_URI
    credential: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    oauth2_server_uri: str | None = None
    scope: str | None = None
    warehouse: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    read_only_by: str | None = None
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_scope: str | None = None

    @property
    def login_uri(self) -> str:
        """The token endpoint."""
        return self.oauth2_server_uri or f"{self.uri.rstrip('/')}/v1/oauth/tokens"

    def catalog_properties(self) -> dict[str, str]:
        """Return the properties of Iceberg's RESTCatalog."""
        named = {
            "uri": self.uri.rstrip("/"),
            "credential": self.credential,
            "token": self.token,
            "oauth2-server-uri": self.login_uri if self.credential else None,
            "scope": self.scope,
            "warehouse": self.warehouse,
        }
        return {name: value for name, value in named.items() if value is not None}
