"""Two servers of one lake behind HAProxy, on a Postgres with a standby: processes of their own, on loopback."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx
import psutil
import pytest

from scripts.backends_job.processes import free_port
from tests.cli.test_commands import COMMAND, ROOT, environment
from tests.support.documents import PAGES
from tests.support.waits import wait_until

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
NGINX_CONFIG = """
daemon off;
pid {folder}/nginx.pid;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
access_log off;
client_body_temp_path {folder}/bodies;
proxy_temp_path {folder}/answers;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{shown}
}}
"""
NAMES = ("a", "b")
CHECK_SECONDS = 0.5
"""Between two questions of the proxy's whether a server is ready."""
DRAIN_SECONDS = 5.0
"""More than two such questions, with a busy machine's delay."""
START_SECONDS = 120.0
CONFIG = """
global
  maxconn 2000
defaults
  mode http
  timeout connect 2s
  timeout client 120s
  timeout server 120s
  timeout check 10s
  retries 3
  option redispatch
  retry-on conn-failure empty-response
frontend states
  bind 127.0.0.1:{states_port}
  stats enable
  stats uri /
frontend clients
  bind 127.0.0.1:{port}
  # A request may be sent again if it only reads, or if its key makes that harmless.
  http-request disable-l7-retry unless METH_GET or {{ req.hdr(idempotency-key) -m found }}
  default_backend lake
backend lake
  option httpchk GET /readyz
  default-server check inter {milliseconds}ms fall 2 rise 1
{servers}
"""
"""`docs/high-availability.md` shows the same."""


@dataclass(slots=True)
class Server:
    """One of the servers, at the same port however often it starts."""

    name: str
    folder: Path
    settings: Mapping[str, str]
    source: Path = ROOT
    """The checkout that it runs."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}-{self.starts}.log"

    def start(self, *arguments: str) -> None:
        self.starts += 1
        paths = {"PYTHONPATH": str(self.source)}
        inherited = environment(**self.settings)
        if self.source != ROOT:  # an older version doesn't know this setting
            inherited.pop("DUCKICELAKE_UPKEEP_WORKERS")
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", "--lake", str(self.folder / "lake"), "--port", str(self.port), *arguments],
                cwd=self.folder,
                env=inherited | paths,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(lambda: self.is_ready() or self.has_ended(), START_SECONDS)
        assert not self.has_ended(), self.log.read_text()

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.uri}/readyz", timeout=20).status_code == 200
        except httpx.TransportError:
            return False

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def stop(self) -> None:
        """Let it drain and end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(START_SECONDS) == 0, self.log.read_text()

    def kill(self) -> None:
        """As if its machine were gone: with its workers, and without a word to anyone."""
        assert self.process is not None
        workers = psutil.Process(self.process.pid).children(recursive=True)
        os.killpg(self.process.pid, signal.SIGKILL)
        psutil.wait_procs(workers, 60)
        self.process.wait()


@dataclass(slots=True)
class Pair:
    """The servers, and where clients reach them."""

    servers: Sequence[Server]
    uri: str
    states: str
    """The URI of the servers' states as the proxy sees them."""
    folder: Path
    settings: Mapping[str, str]

    @property
    def database_url(self) -> str:
        return self.settings["DUCKICELAKE_DATABASE_URL"]

    @property
    def proxy(self) -> SimpleNamespace:
        """As the history check calls what clients reach."""
        return SimpleNamespace(target=self.uri, uri=self.uri)

    def start(self) -> None:
        first, *others = self.servers
        first.start("--create")
        for other in others:
            other.start()
        for server in self.servers:
            self.wait_for(server)

    def restore(self) -> None:
        """Start what a failed test has left behind."""
        for server in self.servers:
            if server.has_ended():
                server.start()
            self.wait_for(server)

    def wait_for(self, server: Server) -> None:
        """Wait until the proxy sends requests to the server."""
        wait_until(lambda: f"lake,{server.name}," in self._up())

    def _up(self) -> str:
        lines = httpx.get(self.states, timeout=20).text.splitlines()
        return "\n".join(line for line in lines if ",UP," in line)

    def end(self) -> None:
        for server in self.servers:
            if not server.has_ended():
                server.kill()


@contextmanager
def pair_of(database_url: str, *, source: Path = ROOT, **settings: str) -> Iterator[Pair]:
    """Two servers and their proxy; the lake is made by the first one that starts."""
    if HAPROXY is None:
        pytest.skip("HAProxy isn't installed: apt-get install haproxy")
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-pair-"))
    folder.chmod(0o755)  # as root, Postgres runs as another user
    everyone = {
        "DUCKICELAKE_DATABASE_URL": database_url,
        "DUCKICELAKE_WAREHOUSE": str(folder / "lake" / "warehouse"),
        "DUCKICELAKE_DRAIN_SECONDS": str(DRAIN_SECONDS),
        "DUCKICELAKE_LOG_FORMAT": "json",
        "DUCKICELAKE_QUERY_PROCESSES": "0",
        **settings,
    }
    (folder / "lake").mkdir()
    servers = [Server(name, folder, everyone, source) for name in NAMES]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        uri, states = stack.enter_context(proxied(folder, servers))
        pair = Pair(servers, uri, states, folder / "lake", everyone)
        stack.callback(pair.end)
        yield pair


@contextmanager
def proxied(folder: Path, servers: Sequence[Server]) -> Iterator[tuple[str, str]]:
    """HAProxy before the servers, whether these have started or not; its URI, and that of their states."""
    port, states_port, config = free_port(), free_port(), folder / "haproxy.cfg"
    lines = "\n".join(f"  server {server.name} 127.0.0.1:{server.port}" for server in servers)
    milliseconds = round(CHECK_SECONDS * 1000)
    config.write_text(CONFIG.format(port=port, states_port=states_port, milliseconds=milliseconds, servers=lines))
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([str(HAPROXY), "-db", "-f", str(config)], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{states_port}/;csv"
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def nginx_before(pair: Pair) -> Iterator[str]:
    """Nginx before the same servers, as `docs/high-availability.md` shows it; its URI."""
    if NGINX is None:
        pytest.skip("nginx isn't installed: apt-get install nginx-light")
    (shown,) = re.findall(r"```text\n(upstream lake .*?)```", PAGES["docs/high-availability.md"], re.DOTALL)
    port = free_port()
    for server, address in zip(pair.servers, ("10.0.0.1:8181", "10.0.0.2:8181"), strict=True):
        shown = shown.replace(address, f"127.0.0.1:{server.port}")
    shown = shown.replace("listen 8181", f"listen 127.0.0.1:{port}")
    with tempfile.TemporaryDirectory(prefix="duckicelake-nginx-") as place:
        config = Path(place) / "nginx.conf"
        config.write_text(NGINX_CONFIG.format(folder=place, shown=shown))
        process = subprocess.Popen([NGINX, "-p", place, "-c", str(config), "-e", f"{place}/error.log"])
        try:
            wait_until(lambda: process.poll() is not None or has_listener(port))
            assert process.poll() is None, (Path(place) / "error.log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def has_listener(port: int) -> bool:
    """Whether something accepts connections at a port of loopback."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
