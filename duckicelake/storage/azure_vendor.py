"""Vend shared access signatures of Azure Storage for directories, or for whole containers."""

import base64
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import ClassVar, Final, Literal
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

from duckicelake.errors import StoreDeniedError, UnavailableError
from duckicelake.storage.azure import AzureOptions, decode_account_key, split_container
from duckicelake.storage.bearer_tokens import KeptToken
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.vendor import CachingVendor, FolderKeys

SasScope = Literal["directory", "container"]
SAS_SECONDS: Final = 3600
_VERSION: Final = "2021-12-02"
_SKEW_SECONDS: Final = 300
"""Seconds by which Azure's clock may be behind."""
_READ: Final = "rl"
_WRITE: Final = "racwdl"


@dataclass(frozen=True, slots=True)
class SharedAccessSignature:
    """A signature for clients.

    Attributes:
        host: of the account's files, as in locations.
        endpoint: URL of the account's blobs for clients; None: Azure's.

    """

    refresh_prefix: ClassVar[str] = "adls"

    host: str
    text: str = field(repr=False)
    expires_at_ms: int | None
    endpoint: str | None = None

    @property
    def name(self) -> str:
        return f"sas-{sha256(self.text.encode()).hexdigest()[:16]}"

    def list_properties(self) -> Mapping[str, str]:
        return {
            f"adls.sas-token.{self.host}": self.text,
            f"adls.sas-token-expires-at-ms.{self.host}": str(self.expires_at_ms),
            "adls.account-name": self.host.partition(".")[0],  # from here on for PyIceberg
            "adls.sas-token": self.text,
            "adls.connection-string": self._build_connection(),  # for adlfs, whose other options have no endpoint
        }

    def list_secret_options(self, client: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002 - of the protocol
        return {"TYPE": "azure", "CONNECTION_STRING": self._build_connection()}

    def _build_connection(self) -> str:
        account, _, rest = self.host.partition(".")
        blobs = self.endpoint or f"https://{account}.blob.{rest.removeprefix('dfs.')}"
        return f"BlobEndpoint={blobs};SharedAccessSignature={self.text};AccountName={account}"


@dataclass(frozen=True, slots=True)
class DelegationKey:
    """A key by which Azure lets an identity sign, as Azure answers it."""

    fields: Mapping[str, str]
    value: str = field(repr=False)


class AzureVendor(CachingVendor):
    """Sign for one folder each: with the account's key, or with a key that Azure delegates to the server's identity.

    scope: a signature for a directory needs an account with a hierarchical namespace. One for a container reaches all
    tables in it; who is bound by grants gets none. endpoint: URL of the account's blobs for clients; None: that of the
    server.
    """

    def __init__(
        self, options: AzureOptions, scope: SasScope, clock: Callable[[], int], endpoint: str | None = None
    ) -> None:
        super().__init__(SAS_SECONDS, clock)
        self._options, self._scope, self._endpoint = options, scope, endpoint or options.endpoint
        self._http = options.open_http()
        self._token = KeptToken(lambda: options.ask_token(self._http, clock), clock)

    def make_keys(
        self,
        holder: str,  # noqa: ARG002
        folders: Sequence[StoreFolder],
        seconds: int,
    ) -> tuple[Sequence[FolderKeys], Sequence[StoreFolder]]:
        if self._scope == "container" and seconds < SAS_SECONDS:
            return (), tuple(folders)
        return [FolderKeys(self._sign(folder, seconds), (folder,)) for folder in folders], ()

    def _sign(self, folder: StoreFolder, seconds: int) -> SharedAccessSignature:
        now = self._clock() // 1000
        start, end = _format_time(now - _SKEW_SECONDS), _format_time(now + seconds)
        key = None if self._options.account_key is not None else self._delegate(folder.bucket, start, end)
        secret = self._options.account_key if key is None else key.value
        assert secret is not None
        protocols = "https" if self._options.build_url(folder.bucket).startswith("https:") else "https,http"
        fields = {} if key is None else key.fields
        text = sign_folder(folder, self._scope, (start, end), secret, fields, protocols)
        host = split_container(folder.bucket)[1]
        return SharedAccessSignature(host, text, (now + seconds) * 1000, self._endpoint)

    def _delegate(self, container: str, start: str, end: str) -> DelegationKey:
        url = f"{self._options.build_url(container)}/?restype=service&comp=userdelegationkey"
        body = f"<KeyInfo><Start>{start}</Start><Expiry>{end}</Expiry></KeyInfo>"
        headers = {"Authorization": f"Bearer {self._token.find().text}", "x-ms-version": _VERSION}
        try:
            root = ET.fromstring(self._http.post(url, body.encode(), headers))  # noqa: S314 - Azure's, and small
        except StoreDeniedError as error:
            raise UnavailableError(
                f"{error}, so there are no signatures for clients: give the server's identity the role "
                "Storage Blob Delegator"
            ) from error
        except ET.ParseError as error:
            raise UnavailableError("Azure's answer with a key for signatures isn't XML") from error
        found = {element.tag: element.text or "" for element in root}
        names = {
            "skoid": "SignedOid",
            "sktid": "SignedTid",
            "skt": "SignedStart",
            "ske": "SignedExpiry",
            "sks": "SignedService",
            "skv": "SignedVersion",
        }
        if not {*names.values(), "Value"} <= set(found):
            raise UnavailableError("Azure's answer with a key for signatures lacks some of its parts")
        return DelegationKey({short: found[name] for short, name in names.items()}, found["Value"])


def sign_folder(
    folder: StoreFolder,
    scope: SasScope,
    times: tuple[str, str],
    secret: str,
    delegation: Mapping[str, str],
    protocols: str = "https",
) -> str:
    """Sign a folder; return the parameters of URLs. delegation: of a delegated key, empty for the account's.

    Raises InvalidSettingsError for a key that isn't in base64.
    """
    name, _, account = split_container(folder.bucket)
    directory = folder.key.rstrip("/") if scope == "directory" else ""
    permissions, resource = _WRITE if folder.is_writable else _READ, "d" if directory else "c"
    place = f"/blob/{account}/{name}{'/' if directory else ''}{directory}"
    start, end = times
    identity = [*delegation.values(), "", "", ""] if delegation else [""]
    rest = ["", protocols, _VERSION, resource, "", "", "", "", "", "", ""]
    lines = [permissions, start, end, place, *identity, *rest]
    digest = hmac.digest(decode_account_key(secret), "\n".join(lines).encode(), "sha256")
    parameters = {"sp": permissions, "st": start, "se": end, "spr": protocols, "sv": _VERSION, "sr": resource}
    if directory:
        parameters["sdd"] = str(directory.count("/") + 1)
    return urlencode({**parameters, **delegation, "sig": base64.b64encode(digest).decode()}, quote_via=quote, safe="")


def _format_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
