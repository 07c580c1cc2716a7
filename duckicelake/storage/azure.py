"""An object store of containers of Azure: Blob Storage, and Data Lake Storage Gen2, which takes the same requests."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlencode

from duckicelake.errors import InvalidSettingsError, UnavailableError
from duckicelake.extras import DeferredModule
from duckicelake.storage.bearer_tokens import BearerToken, KeptToken, TokenHttp, read_token
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.connections import ConnectionLimits, OpenStores
from duckicelake.storage.failed_requests import StoreAdvice, translate_failures

if TYPE_CHECKING:
    from obstore import store as obstore_stores
    from obstore.store import AzureCredential

    from duckicelake.storage.bucket_store import ObstoreBucket
else:
    obstore_stores = DeferredModule("obstore.store")

ENTRA_URL: Final = "https://login.microsoftonline.com"
_MACHINE_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
_RESOURCE: Final = "https://storage.azure.com/"
_ADVICE: Final = StoreAdvice(
    "Azure Storage",
    "abfss",
    "give the server's identity the role Storage Blob Data Contributor on the container, or correct its key",
    "correct DUCKICELAKE_AZURE_ENDPOINT",
)


@dataclass(frozen=True, slots=True)
class EntraApplication:
    """An application of Microsoft Entra. secret: None: the token of the file that Kubernetes renews."""

    tenant_id: str
    client_id: str
    secret: str | None = field(default=None, repr=False)
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """Settings for Azure Storage.

    Attributes:
        endpoint: URL of the account's blobs; None: Azure's.
        account_key: of the account that the locations name.
        application: whose rights the server has; None, without a key: the identity of the machine.
        sts_endpoint: URL of Microsoft Entra; None: that of the public cloud.
        certificates: file of certificate authorities; None: those of certifi.

    """

    endpoint: str | None = None
    account_key: str | None = field(default=None, repr=False)
    application: EntraApplication | None = None
    sts_endpoint: str | None = None
    limits: ConnectionLimits = field(default_factory=lambda: ConnectionLimits(5, 30, 64))
    max_attempts: int = 4
    proxy: str | None = field(default=None, repr=False)
    certificates: str | None = field(default_factory=lambda: os.environ.get("AWS_CA_BUNDLE"))

    def build_url(self, container: str) -> str:
        """Build the URL of the blobs of an account. container: with the account's host, as in locations."""
        return self.endpoint or f"https://{split_container(container)[1].replace('.dfs.', '.blob.', 1)}"

    def open_http(self) -> TokenHttp:
        """Open the client of the token services."""
        return TokenHttp(self.limits.connect_seconds, self.certificates, self.proxy)

    def ask_token(self, http: TokenHttp, clock: Callable[[], int]) -> BearerToken:
        """Ask for a new token of the server. Raises StoreDeniedError, UnavailableError."""
        if self.application is None:
            query = urlencode({"api-version": "2018-02-01", "resource": _RESOURCE})
            return read_token(http.get(f"{_MACHINE_URL}?{query}", {"Metadata": "true"}), clock, _MACHINE_URL)
        own = self.application
        form = {"grant_type": "client_credentials", "client_id": own.client_id, "scope": f"{_RESOURCE}.default"}
        if own.secret is not None:
            form["client_secret"] = own.secret
        else:
            form["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
            form["client_assertion"] = _read_assertion(own.token_file)
        url = f"{self.sts_endpoint or ENTRA_URL}/{own.tenant_id}/oauth2/v2.0/token"
        return read_token(http.post_form(url, form), clock, url)


def decode_account_key(key: str) -> bytes:
    """Decode the key of a storage account. Raises InvalidSettingsError."""
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise InvalidSettingsError("the storage account's key isn't in base64: copy it from Azure's portal") from error


def split_container(container: str) -> tuple[str, str, str]:
    """Split `<container>@<account>.dfs.…` into (container, host, account)."""
    name, _, host = container.partition("@")
    return name, host, host.partition(".")[0]


class AzureStore(BucketStore):
    """An object store of abfss://, abfs://, wasbs:// and wasb:// locations."""

    scheme: ClassVar[str] = "abfss"

    def __init__(
        self,
        root: str,
        options: AzureOptions,
        clock: Callable[[], int],
        sas: Callable[[], AzureCredential] | None = None,
    ) -> None:
        """Open no connection yet. sas: signatures instead of the server's own credentials.

        Raises InvalidSettingsError for a key that isn't in base64.
        """
        super().__init__(root, options.max_attempts)
        if options.account_key is not None:
            decode_account_key(options.account_key)
        self.options = options
        self._sas = sas
        self._http = options.open_http()
        self._token = KeptToken(lambda: options.ask_token(self._http, clock), clock)
        self._stores = OpenStores(self._open)

    def open_bucket(self, bucket: str, sent_bytes: int = 0) -> ObstoreBucket:
        if self._sas is None and self.options.account_key is None:
            self._token.find()  # raises here what obstore would hide
        return self._stores.find(bucket, self.options.limits.upload_seconds(sent_bytes))

    def _open(self, container: str, read_seconds: float) -> obstore_stores.AzureStore:
        name, _, account = split_container(container)
        endpoint = self.options.build_url(container)
        client = self.options.limits.build_client(
            read_seconds, self.options.certificates, self.options.proxy, is_secure=endpoint.startswith("https:")
        )
        return obstore_stores.AzureStore(
            name,
            account_name=account,
            endpoint=endpoint,
            use_emulator=False,
            use_fabric_endpoint=False,
            skip_signature=False,
            credential_provider=self._provide,
            client_options=client,
            retry_config={"max_retries": 0},
        )

    def _provide(self) -> AzureCredential:
        if self._sas is not None:
            return self._sas()
        if self.options.account_key is not None:
            return {"access_key": self.options.account_key, "expires_at": None}
        return self._token.provide()

    @contextmanager
    def translate_errors(self, location: str) -> Iterator[None]:
        with translate_failures(location, self.options.endpoint, _ADVICE):
            yield

    def close(self) -> None:
        self._http.close()


def _read_assertion(path: Path | None) -> str:
    if path is None:
        raise InvalidSettingsError("the application of Microsoft Entra has neither a secret nor a file with a token")
    try:
        return path.read_text().strip()
    except OSError as error:
        raise UnavailableError(f"{path}, the token of the application, can't be read: {error.strerror}") from error
