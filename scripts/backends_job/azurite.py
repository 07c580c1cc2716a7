"""Azurite, Microsoft's emulator of Blob Storage: the one on the PATH, else one that npm installs once.

It knows no Data Lake Storage Gen2: no directories, and no signatures for one.
"""

import base64
import hmac
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from scripts.backends_job.minio import built, run_build, say
from scripts.backends_job.processes import BackendError
from scripts.backends_job.servers import HOST, Server, State

VERSION = "3.35.0"
_API = "2021-12-02"


@dataclass(frozen=True, slots=True)
class Azurite:
    """A running one, with a single account. endpoint: of the account's blobs."""

    endpoint: str
    account: str
    key: str = field(repr=False)

    def create_container(self, name: str) -> None:
        """Make a container, by the account's key."""
        headers = {"x-ms-date": format_datetime(datetime.now(UTC), usegmt=True), "x-ms-version": _API}
        lines = "".join(f"{header}:{value}\n" for header, value in headers.items())
        resource = f"/{self.account}/{self.account}/{name}\nrestype:container"
        signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{lines}{resource}"
        signature = base64.b64encode(hmac.digest(base64.b64decode(self.key), signed.encode(), "sha256")).decode()
        headers |= {"Authorization": f"SharedKey {self.account}:{signature}", "Content-Length": "0"}
        with urlopen(Request(f"{self.endpoint}/{name}?restype=container", headers=headers, method="PUT")) as answer:
            answer.read()


class AzuriteServer(Server):
    """Loopback only, and nothing on the disk but a log."""

    name = "azurite"

    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        key = base64.b64encode(state.password.encode()).decode()
        command = [str(program()), "--blobHost", HOST, "--blobPort", str(state.port), "--inMemoryPersistence"]
        return [*command, "--silent", "--skipApiVersionCheck", "--disableTelemetry"], {
            "PATH": os.environ.get("PATH", os.defpath),
            "AZURITE_ACCOUNTS": f"{state.user}:{key}",
        }

    def is_ready(self, state: State) -> bool:
        try:
            with urlopen(f"http://{HOST}:{state.port}/", timeout=2):
                return True
        except URLError as error:
            return hasattr(error, "status")
        except OSError:
            return False


def program() -> Path:
    """The command, installed if there is none."""
    on_path = shutil.which("azurite-blob")
    if on_path:
        return Path(on_path)
    return built(f"azurite-{VERSION}", _install) / "node_modules" / ".bin" / "azurite-blob"


def _install(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise BackendError("Azurite, the store of Azure's protocol, needs npm: install Node.js 20 or newer")
    say(f"installing Azurite with {npm}; it is kept in {folder}")
    place, partial = folder / f"azurite-{VERSION}", folder / f".azurite-{VERSION}"
    partial.mkdir(exist_ok=True)
    (partial / "package.json").write_text("{}")
    run_build([npm, "install", "--no-audit", "--no-fund", f"azurite@{VERSION}"], partial, {})
    partial.rename(place)


@contextmanager
def running_azurite(folder: Path) -> Iterator[Azurite]:
    """One without containers that runs while the block does."""
    folder.mkdir(parents=True, exist_ok=True)
    server = AzuriteServer(folder)
    try:
        state = server.up()
        key = base64.b64encode(state.password.encode()).decode()
        yield Azurite(f"http://{HOST}:{state.port}/{state.user}", state.user, key)
    finally:
        server.down()
