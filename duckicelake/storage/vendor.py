"""Vend keys to clients: by a store's own vendor for each scheme, kept while clients can use them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from threading import Lock
from typing import ClassVar, Final, Protocol

from duckicelake.errors import UnavailableError
from duckicelake.storage.policy import StoreFolder

MAX_CACHED_KEYS: Final = 4096
_Key = tuple[str, tuple[StoreFolder, ...], int]
"""The holder of keys, their folders, and the seconds for which they are made."""
_MIN_REMAINING_MS: Final = 5 * 60 * 1000
"""Milliseconds before the end at which clients renew keys; cached keys must last longer."""


class StoreKeys(Protocol):
    """What a client gets at files with.

    Attributes:
        refresh_prefix: the prefix of the properties by which clients renew them.

    """

    refresh_prefix: ClassVar[str]

    @property
    def expires_at_ms(self) -> int | None:
        """The end, in epoch milliseconds; None: there is none."""

    @property
    def name(self) -> str:
        """The name in the audit trail, which reveals no secret."""

    def list_properties(self) -> Mapping[str, str]:
        """Return the keys as Iceberg's properties."""

    def list_secret_options(self, client: Mapping[str, str]) -> Mapping[str, str]:
        """Return the options of DuckDB's CREATE SECRET, TYPE among them. client: how clients reach the store."""


@dataclass(frozen=True, slots=True)
class FolderKeys:
    """Keys, and the folders that they reach."""

    keys: StoreKeys
    folders: tuple[StoreFolder, ...]


@dataclass(frozen=True, slots=True)
class VendedKeys:
    """Keys for a client.

    Attributes:
        vended: keys with their folders.
        uncovered: folders for which no keys could be made.
        renew_at_ms: time to make new keys, well before the end of these.

    """

    vended: tuple[FolderKeys, ...]
    uncovered: tuple[StoreFolder, ...] = ()
    renew_at_ms: float = inf

    @property
    def expires_at_ms(self) -> int | None:
        """The end of the key that ends first."""
        ends = [folder.keys.expires_at_ms for folder in self.vended if folder.keys.expires_at_ms is not None]
        return min(ends, default=None)


class Vendor(Protocol):
    """Make keys for folders."""

    def vend(self, holder: str, folders: Sequence[StoreFolder], most_seconds: int | None = None) -> VendedKeys:
        """Return keys for the folders. Raises UnavailableError.

        holder: the client's name in the store's logs. most_seconds: for which they may live at most.
        """


@dataclass(frozen=True, slots=True)
class SchemeVendor:
    """Several vendors as one, by the scheme of folders."""

    vendors: Mapping[str, Vendor]

    def vend(self, holder: str, folders: Sequence[StoreFolder], most_seconds: int | None = None) -> VendedKeys:
        vended: list[FolderKeys] = []
        uncovered: list[StoreFolder] = []
        renew_at_ms = inf
        for scheme in dict.fromkeys(folder.scheme for folder in folders):
            own = [folder for folder in folders if folder.scheme == scheme]
            if scheme not in self.vendors:
                uncovered += own
                continue
            made = self.vendors[scheme].vend(holder, own, most_seconds)
            vended += made.vended
            uncovered += made.uncovered
            renew_at_ms = min(renew_at_ms, made.renew_at_ms)
        return VendedKeys(tuple(vended), tuple(uncovered), renew_at_ms)


class CachingVendor(ABC):
    """A vendor that keeps keys by holder and folders, and makes them once for threads that ask at the same time.

    seconds: for which keys are made at most.
    """

    def __init__(self, seconds: int, clock: Callable[[], int], most_kept: int = MAX_CACHED_KEYS) -> None:
        self._seconds = seconds
        self._clock = clock
        self._most_kept = most_kept
        self._lock = Lock()
        self._kept: OrderedDict[_Key, Future[VendedKeys]] = OrderedDict()

    @abstractmethod
    def make_keys(
        self, holder: str, folders: Sequence[StoreFolder], seconds: int
    ) -> tuple[Sequence[FolderKeys], Sequence[StoreFolder]]:
        """Make (keys with their folders, folders that none can reach). Raises UnavailableError."""

    def vend(self, holder: str, folders: Sequence[StoreFolder], most_seconds: int | None = None) -> VendedKeys:
        key = (holder, tuple(folders), min(self._seconds, most_seconds or self._seconds))
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and (not kept.done() or kept.result().renew_at_ms > self._clock()):
                self._kept.move_to_end(key)
                future, is_ours = kept, False
            else:
                future, is_ours = Future(), True
                self._kept[key] = future
                self._kept.move_to_end(key)
                self._forget_oldest()
        if is_ours:
            self._fulfil(key, future, None if kept is None else kept.result())
        return future.result()

    def _left(self, vending: VendedKeys) -> float:
        end = vending.expires_at_ms
        return inf if end is None else end - self._clock()

    def _enough(self, seconds: int) -> int:
        return max(_MIN_REMAINING_MS, seconds * 250)

    def _forget_oldest(self) -> None:
        while len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)

    def _fulfil(self, key: _Key, future: Future[VendedKeys], before: VendedKeys | None) -> None:
        """Make keys; if STS fails, reuse the previous keys while clients can use them."""
        try:
            future.set_result(self._make(*key))
        except UnavailableError as error:
            if before is not None and self._left(before) > _MIN_REMAINING_MS:
                future.set_result(before)
            else:
                self._give_up(key, future, error)
        except BaseException as error:  # waiting threads must get it, whatever it is
            self._give_up(key, future, error)
            raise

    def _give_up(self, key: _Key, future: Future[VendedKeys], error: BaseException) -> None:
        with self._lock:
            if self._kept.get(key) is future:
                del self._kept[key]
        future.set_exception(error)

    def _make(self, holder: str, folders: Sequence[StoreFolder], seconds: int) -> VendedKeys:
        vended, uncovered = self.make_keys(holder, folders, seconds)
        ends = VendedKeys(tuple(vended)).expires_at_ms
        renew_at_ms = inf if ends is None else ends - self._enough(seconds)
        return VendedKeys(tuple(vended), tuple(uncovered), renew_at_ms)
