"""What the corpus is made of: one function per Delta table, registered by its name with the feature that it covers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Statement = str


class Making:
    """A table in the making: its folder, and a Spark session of its own where Spark Delta writes it."""

    def __init__(self, name: str, root: Path, session: Any) -> None:
        self.name = name
        self.root = root
        self.session = session

    @property
    def log(self) -> Path:
        return self.root / "_delta_log"

    def beside(self, name: str) -> Path:
        """A folder that belongs to the table without being in it, as that of a clone's source."""
        folder = self.root.parent.parent / "sources" / self.root.name / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        return folder

    def sql(self, *statements: Statement) -> None:
        """Run them one after the other; `{t}` is the table."""
        for statement in statements:
            self.session.sql(statement.replace("{t}", f"delta.`{self.root}`"))

    def conf(self, **settings: str) -> None:
        """Set what this table's session writes by; `__` stands for a dot."""
        for name, value in settings.items():
            self.session.conf.set(name.replace("__", "."), value)

    def create(self, columns: str, clauses: str = "", /, **properties: str) -> None:
        """CREATE TABLE; of properties' names, `_` stands for a dot and `delta.` is left out.

        By a name, as a table that goes by its path alone can have no generated columns.
        """
        listed = ", ".join(f"'delta.{name.replace('_', '.')}' = '{value}'" for name, value in properties.items())
        told = f" TBLPROPERTIES ({listed})" if listed else ""
        self.sql(f"CREATE TABLE {self.name} ({columns}) USING delta {clauses} LOCATION '{self.root}'{told}")

    def insert(self, *rows: str) -> None:
        """One commit of one file that holds the rows, each said as SQL says them."""
        self.sql(f"INSERT INTO {{t}} VALUES {', '.join(f'({row})' for row in rows)}")


@dataclass(frozen=True, slots=True)
class Case:
    """A table of the corpus. `needs_spark`: Spark Delta writes it, so that making it takes a JVM."""

    name: str
    feature: str
    needs_spark: bool
    make: Callable[[Making], None]


CASES: Final[dict[str, Case]] = {}


def _registered(feature: str, *, needs_spark: bool) -> Callable[[Callable[[Making], None]], Callable[[Making], None]]:
    def register(make: Callable[[Making], None]) -> Callable[[Making], None]:
        if make.__name__ in CASES:
            raise ValueError(f"there are two tables called {make.__name__}")
        CASES[make.__name__] = Case(make.__name__, feature, needs_spark, make)
        return make

    return register


def by_spark(feature: str) -> Callable[[Callable[[Making], None]], Callable[[Making], None]]:
    return _registered(feature, needs_spark=True)


def by_delta_rs(feature: str) -> Callable[[Callable[[Making], None]], Callable[[Making], None]]:
    return _registered(feature, needs_spark=False)


def chosen(names: Sequence[str]) -> list[Case]:
    """The cases of these names, all if there are none."""
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        raise ValueError(f"the corpus has no {', '.join(unknown)}; it has {', '.join(CASES)}")
    return [case for case in CASES.values() if not names or case.name in names]
