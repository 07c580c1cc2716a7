"""How jobs tell how far they are. `duckicelake/cli/pipeline/` shows it on a terminal; `SILENT` shows nothing."""

from typing import Final, Protocol


class Reporter(Protocol):
    """Hears of one step of work at a time."""

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        """A step begins, as `reading flights.csv`; total: how much there is to do, None if nobody knows."""

    def advance(self, amount: int = 1) -> None:
        """So much more of the step is done."""

    def say(self, line: str) -> None:
        """A line for people, which stays."""

    def done(self) -> None:
        """The step is over."""


class Silent:
    """Tells nobody."""

    def begin(self, what: str, total: int | None = None, unit: str = "") -> None:
        pass

    def advance(self, amount: int = 1) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def done(self) -> None:
        pass


SILENT: Final = Silent()
