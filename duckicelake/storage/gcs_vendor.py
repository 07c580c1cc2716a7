"""Vend tokens for Google Cloud Storage that an access boundary narrows down to some folders."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import ClassVar, Final
from urllib.parse import quote, urlsplit

from duckicelake.errors import StoreDeniedError, UnavailableError
from duckicelake.storage.bearer_tokens import BearerToken, TokenHttp
from duckicelake.storage.gcs import CLOUD_SCOPE, GcsOptions
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.vendor import CachingVendor, FolderKeys

MAX_RULES: Final = 10
"""Google's limit for the rules of an access boundary."""
TOKEN_SECONDS: Final = 3600
_STS_URL: Final = "https://sts.googleapis.com"
_IAM_URL: Final = "https://iamcredentials.googleapis.com"
_READER: Final = "inRole:roles/storage.objectViewer"
_WRITER: Final = "inRole:roles/storage.objectUser"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - the name of a kind of token


@dataclass(frozen=True, slots=True)
class GcsToken:
    """A token for clients."""

    refresh_prefix: ClassVar[str] = "gcs.oauth2"

    token: BearerToken = field(repr=False)

    @property
    def expires_at_ms(self) -> int | None:
        return self.token.expires_at_ms

    @property
    def name(self) -> str:
        return f"gcs-{sha256(self.token.text.encode()).hexdigest()[:16]}"

    def list_properties(self) -> Mapping[str, str]:
        return {"gcs.oauth2.token": self.token.text, "gcs.oauth2.token-expires-at": str(self.token.expires_at_ms)}

    def list_secret_options(self, client: Mapping[str, str]) -> Mapping[str, str]:
        options = {"TYPE": "gcs", "BEARER_TOKEN": self.token.text}
        endpoint = urlsplit(client.get("gcs.service.host", ""))
        if endpoint.netloc:
            options |= {
                "ENDPOINT": endpoint.netloc,
                "URL_STYLE": "path",
                "USE_SSL": str(endpoint.scheme == "https").lower(),
            }
        return options


class GcsVendor(CachingVendor):
    """Exchange tokens of the server for narrower ones.

    A downscoped token ends with the token that it was made of. Shorter ones are made of one that the server's service
    account makes for itself, for which it needs the role Service Account Token Creator on itself.
    """

    def __init__(self, options: GcsOptions, clock: Callable[[], int]) -> None:
        super().__init__(TOKEN_SECONDS, clock)
        self._options = options
        self._http = options.open_http()

    def make_keys(
        self,
        holder: str,  # noqa: ARG002
        folders: Sequence[StoreFolder],
        seconds: int,
    ) -> tuple[Sequence[FolderKeys], Sequence[StoreFolder]]:
        try:
            vended = [
                FolderKeys(GcsToken(self._downscope(part, seconds)), tuple(part))
                for part in (folders[start : start + MAX_RULES] for start in range(0, len(folders), MAX_RULES))
            ]
        except StoreDeniedError as error:
            raise UnavailableError(f"{error}, so there are no tokens for clients: run `duckicelake doctor`") from error
        return vended, ()

    def _downscope(self, folders: Sequence[StoreFolder], seconds: int) -> BearerToken:
        own = self._options.ask_token(self._http, self._clock)
        if seconds < TOKEN_SECONDS:
            own = self._shorten(own, seconds)
        url = f"{self._options.sts_endpoint or _STS_URL}/v1/token"
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": _ACCESS_TOKEN,
            "subject_token_type": _ACCESS_TOKEN,
            "subject_token": own.text,
            "options": quote(json.dumps(build_boundary(folders), separators=(",", ":"))),
        }
        text = self._http.post_form(url, form).get("access_token")
        if not isinstance(text, str):
            raise UnavailableError(f"{urlsplit(url).netloc} answers without access_token")
        return BearerToken(text, own.expires_at_ms)

    def _shorten(self, own: BearerToken, seconds: int) -> BearerToken:
        account = self._options.find_email(self._http)
        base = self._options.sts_endpoint or _IAM_URL
        url = f"{base}/v1/projects/-/serviceAccounts/{quote(account)}:generateAccessToken"
        answer = post_json(self._http, url, {"scope": [CLOUD_SCOPE], "lifetime": f"{seconds}s"}, own.text)
        text, end = answer.get("accessToken"), answer.get("expireTime")
        if not isinstance(text, str) or not isinstance(end, str):
            raise UnavailableError(f"{urlsplit(url).netloc} answers without accessToken and expireTime")
        return BearerToken(text, int(datetime.fromisoformat(end).timestamp() * 1000))


def post_json(http: TokenHttp, url: str, body: Mapping[str, object], token: str) -> Mapping[str, object]:
    """Send a JSON object with a token; return that of the answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    answer = json.loads(http.post(url, json.dumps(body).encode(), headers))
    assert isinstance(answer, dict)
    return answer


def build_boundary(folders: Sequence[StoreFolder]) -> Mapping[str, object]:
    """Build the access boundary that allows the folders, one rule for each.

    An object is named in full. A listing is named by its prefix, which must lie in the folder.
    """
    return {"accessBoundary": {"accessBoundaryRules": [_build_rule(folder) for folder in folders]}}


def _build_rule(folder: StoreFolder) -> Mapping[str, object]:
    objects = f"resource.name.startsWith('projects/_/buckets/{folder.bucket}/objects/{folder.key}')"
    listing = f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{folder.key}')"
    return {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{folder.bucket}",
        "availablePermissions": [_WRITER if folder.is_writable else _READER],
        "availabilityCondition": {"title": "folder", "expression": f"{objects} || {listing}"},
    }
