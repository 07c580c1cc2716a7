"""What Postgres and MinIO have in common: a folder, a port, a password, and a file that remembers all of it."""

import json
import os
import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from scripts.backends_job.processes import BackendError, Process, free_port, is_free, start, stop, wait_until_ready
from scripts.backends_job.users import User

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class State:
    """Where a server is or last was, and its administrator. The password is the folder's, as long as its data."""

    port: int
    user: str
    password: str
    pid: int = 0
    born: str = ""

    @property
    def process(self) -> Process:
        return Process(self.pid, self.born)


class Server(ABC):
    """A server whose files are `<folder>/<name>`, `<name>.log` and `<name>.json`."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    user: User | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / self.name
        self.log = self.folder / f"{self.name}.log"
        self._file = self.folder / f"{self.name}.json"

    @abstractmethod
    def prepare(self, state: State) -> tuple[Sequence[str], Mapping[str, str]]:
        """(command, environment) that start the server, once its data folder is there."""

    @abstractmethod
    def is_ready(self, state: State) -> bool:
        """Whether it answers."""

    def up(self, port: int | None = None) -> State:
        """Start it unless it runs, with the data, password and, if it is still free, the port of before.

        BackendError if it can't start, or runs on another port than the one asked for.
        """
        known = self.state()
        if known and known.process.runs():
            if port not in (None, known.port):
                raise BackendError(f"{self.name} runs on port {known.port}, not {port}: stop it first")
            return known
        state = self._new_state(known, port)
        command, environment = self.prepare(state)
        process = start(command, self.log, environment, self.user)
        state = replace(state, pid=process.pid, born=process.born)
        self._remember(state)
        wait_until_ready(process, lambda: self.is_ready(state), self.log)
        return state

    def down(self) -> bool:
        """Stop it; whether it ran."""
        state = self.state()
        if state is None or not state.process.runs():
            return False
        stop(state.process, self.stop_signal)
        return True

    def state(self) -> State | None:
        """What is remembered; None if it never ran here."""
        try:
            return State(**json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None

    def _new_state(self, known: State | None, port: int | None) -> State:
        if port is not None and not is_free(port):
            raise BackendError(f"port {port}, asked for {self.name}, is taken by another program: name another")
        if known is None:
            return State(port or free_port(), "duckicelake", secrets.token_hex(16))
        return replace(known, port=port or (known.port if is_free(known.port) else free_port()))

    def _remember(self, state: State) -> None:
        """Readable for us alone, from the first byte on."""
        new = self._file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(state), file)
        new.replace(self._file)
