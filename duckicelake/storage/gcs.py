"""An object store of Google Cloud Storage's buckets, and the server's tokens for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import jwt

from duckicelake.errors import InvalidSettingsError
from duckicelake.extras import DeferredModule
from duckicelake.storage.bearer_tokens import BearerToken, KeptToken, TokenHttp, read_token
from duckicelake.storage.bucket_store import BucketStore
from duckicelake.storage.connections import ConnectionLimits, OpenStores
from duckicelake.storage.failed_requests import StoreAdvice, translate_failures

if TYPE_CHECKING:
    from obstore import store as obstore_stores

    from duckicelake.storage.bucket_store import ObstoreBucket
else:
    obstore_stores = DeferredModule("obstore.store")

GOOGLE_TOKEN_URL: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default"
_FLAVOR: Final = {"Metadata-Flavor": "Google"}
CLOUD_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_JWT_SECONDS: Final = 3600
_ADVICE: Final = StoreAdvice(
    "Google Cloud Storage",
    "gs",
    "give the server's service account the role Storage Object User on the bucket",
    "correct DUCKICELAKE_GCS_ENDPOINT",
)


@dataclass(frozen=True, slots=True)
class ServiceAccountKey:
    """A key of a Google service account, as its JSON file has it. token_uri: where it is exchanged for tokens."""

    client_email: str
    private_key: str = field(repr=False)
    private_key_id: str = ""
    token_uri: str = GOOGLE_TOKEN_URL

    @classmethod
    def parse(cls, text: str) -> ServiceAccountKey:
        """Parse the JSON of a key. Raises InvalidSettingsError."""
        try:
            given = json.loads(text)
            email, key = given["client_email"], given["private_key"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidSettingsError(
                "the key of the Google service account isn't JSON with client_email and private_key: "
                "download one of type JSON"
            ) from error
        return cls(str(email), str(key), str(given.get("private_key_id", "")), str(given.get("token_uri", "")))

    def sign(self, audience: str, now_ms: int) -> str:
        """Sign a request for a token. Raises InvalidSettingsError for a key that can't sign."""
        now = now_ms // 1000
        claims = {"iss": self.client_email, "scope": CLOUD_SCOPE, "aud": audience, "iat": now}
        headers = {"kid": self.private_key_id} if self.private_key_id else None
        try:
            return jwt.encode({**claims, "exp": now + _JWT_SECONDS}, self.private_key, "RS256", headers)
        except (ValueError, TypeError, jwt.PyJWTError) as error:
            raise InvalidSettingsError(
                f"the private key of {self.client_email} can't sign: it must be a PEM of RSA"
            ) from error


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """Settings for Google Cloud Storage.

    Attributes:
        endpoint: URL of the store; None: Google's.
        sts_endpoint: URL at which both token services of Google are; None: theirs.
        key: the server's; None: the service account of the machine, by its metadata server.
        certificates: file of certificate authorities; None: those of certifi.

    """

    endpoint: str | None = None
    sts_endpoint: str | None = None
    key: ServiceAccountKey | None = None
    limits: ConnectionLimits = field(default_factory=lambda: ConnectionLimits(5, 30, 64))
    max_attempts: int = 4
    proxy: str | None = field(default=None, repr=False)
    certificates: str | None = field(default_factory=lambda: os.environ.get("AWS_CA_BUNDLE"))

    @property
    def token_url(self) -> str:
        """Where keys are exchanged for tokens."""
        if self.sts_endpoint is not None:
            return f"{self.sts_endpoint}/token"
        return (self.key and self.key.token_uri) or GOOGLE_TOKEN_URL

    def open_http(self) -> TokenHttp:
        """Open the client of the token services."""
        return TokenHttp(self.limits.connect_seconds, self.certificates, self.proxy)

    def find_email(self, http: TokenHttp) -> str:
        """Find the name of the server's service account. Raises StoreDeniedError, UnavailableError."""
        return http.get_text(f"{_METADATA_URL}/email", _FLAVOR) if self.key is None else self.key.client_email

    def ask_token(self, http: TokenHttp, clock: Callable[[], int]) -> BearerToken:
        """Ask for a new token of the server. Raises StoreDeniedError, UnavailableError, InvalidSettingsError."""
        if self.key is None:
            return read_token(http.get(f"{_METADATA_URL}/token?scopes={CLOUD_SCOPE}", _FLAVOR), clock, _METADATA_URL)
        url = self.token_url
        assertion = self.key.sign(url, clock())
        form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
        return read_token(http.post_form(url, form), clock, url)


class GcsStore(BucketStore):
    """An object store of gs:// and gcs:// locations."""

    scheme: ClassVar[str] = "gs"

    def __init__(
        self, root: str, options: GcsOptions, clock: Callable[[], int], provide: KeptToken | None = None
    ) -> None:
        """Open no connection yet. provide: tokens other than the server's."""
        super().__init__(root, options.max_attempts)
        self.options = options
        self._http = options.open_http()
        self._token = provide or KeptToken(lambda: options.ask_token(self._http, clock), clock)
        self._stores = OpenStores(self._open)

    def open_bucket(self, bucket: str, sent_bytes: int = 0) -> ObstoreBucket:
        self._token.find()  # raises here what obstore would hide
        return self._stores.find(bucket, self.options.limits.upload_seconds(sent_bytes))

    def _open(self, bucket: str, read_seconds: float) -> obstore_stores.GCSStore:
        endpoint = self.options.endpoint or "https://storage.googleapis.com"
        client = self.options.limits.build_client(
            read_seconds, self.options.certificates, self.options.proxy, is_secure=endpoint.startswith("https:")
        )
        return obstore_stores.GCSStore(
            bucket,
            base_url=endpoint,
            skip_signature=False,
            credential_provider=self._token.provide,
            client_options=client,
            retry_config={"max_retries": 0},
        )

    @contextmanager
    def translate_errors(self, location: str) -> Iterator[None]:
        with translate_failures(location, self.options.endpoint, _ADVICE):
            yield

    def close(self) -> None:
        self._http.close()
