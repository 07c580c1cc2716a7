"""Connections of obstore's stores: timeouts, certificates, proxies; and the stores that are open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    from botocore import httpsession as boto_http
    from obstore.store import ClientConfig
else:
    boto_http = DeferredModule("botocore.httpsession")

Store = TypeVar("Store")
USER_AGENT: Final = "duckicelake"
_SLOW_BYTES_PER_SECOND: Final = 64 << 10
"""The slowest upload that is waited for: a store is silent while it receives a file."""
_MAX_TIMEOUT: Final = timedelta(hours=1)
_MAX_STORES: Final = 256


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Timeouts for connecting and for a silent store, and the number of kept connections."""

    connect_seconds: float
    read_seconds: float
    connections: int

    def upload_seconds(self, sent_bytes: int) -> float:
        """Return the timeout for a store that receives so many bytes, in steps of powers of two."""
        steps = int(sent_bytes / _SLOW_BYTES_PER_SECOND / self.read_seconds).bit_length()
        return self.read_seconds * (1 << steps)

    def build_client(
        self, read_seconds: float, certificates: str | None, proxy: str | None, *, is_secure: bool
    ) -> ClientConfig:
        """Build the options of obstore's HTTP client. Raises ValueError for certificates that can't be read.

        certificates: file or folder of authorities; None: those of botocore. proxy: None: as the environment says.
        """
        options: ClientConfig = {
            "allow_http": True,
            "allow_invalid_certificates": False,
            "connect_timeout": timedelta(seconds=self.connect_seconds),
            "read_timeout": timedelta(seconds=read_seconds),
            "timeout": _MAX_TIMEOUT,
            "pool_max_idle_per_host": str(self.connections),
            "user_agent": USER_AGENT,
        }
        if proxy is not None:
            options["proxy_url"] = proxy
        trusted = certificates or boto_http.get_cert_path(verify=True)
        if is_secure and trusted is not None:
            options["root_certificate"] = _read_certificates(Path(trusted))
        return options


def _read_certificates(path: Path) -> bytes:
    """Read a file of certificates, or all files of a folder. Raises ValueError if there is none."""
    try:
        files = sorted(filter(Path.is_file, path.iterdir())) if path.is_dir() else [path]
        return b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise ValueError(f"certificates {path} can't be read: {error.strerror}") from error


class OpenStores(Generic[Store]):
    """Keeps obstore's stores by bucket and timeout; all go when there are too many. Threads share it."""

    def __init__(self, open_store: Callable[[str, float], Store]) -> None:
        """open_store: opens the store of a bucket with a timeout in seconds."""
        self._open = open_store
        self._stores: dict[tuple[str, float], Store] = {}
        self._lock = Lock()

    def find(self, bucket: str, read_seconds: float) -> Store:
        """Return the store of a bucket, opened if it isn't yet; raises what opening it raises."""
        key = bucket, read_seconds
        found = self._stores.get(key)
        if found is None:
            with self._lock:
                if len(self._stores) >= _MAX_STORES:
                    self._stores.clear()
                found = self._stores[key] = self._open(*key)
        return found

    def forget(self, bucket: str) -> None:
        """Have the bucket's stores opened anew."""
        with self._lock:
            for key in [key for key in self._stores if key[0] == bucket]:
                del self._stores[key]
