"""Delta tables with random histories, written by hand, and the rows that each version has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tests.delta.import_.tables import again, column, defined, gone, new_table, vector, with_features, written
from tests.delta.import_.versions import Rows, rows
from tests.delta.logs import Action, HandMade

TYPES = {"long": pa.int64(), "string": pa.string(), "double": pa.float64(), "date": pa.date32(), "boolean": pa.bool_()}
TEXTS = ["x", "é'", "a/b", "50%", " ", "k=v", "__HIVE_DEFAULT_PARTITION__x"]


@dataclass(slots=True, eq=False)
class Column:
    """`physical` is what files call it."""

    id: int
    name: str
    type: str
    physical: str


@dataclass(slots=True)
class File:
    """A live data file: its last `add`, its rows by column id, and which are deleted."""

    add: Action
    rows: list[dict[int, Any]]
    deleted: set[int] = field(default_factory=set)


class RandomTable:
    """Grows by a version at a time; is_mapped: columns go by physical names and may be renamed and dropped."""

    def __init__(self, folder: Path, random: Random, *, is_mapped: bool) -> None:
        self.table: HandMade = new_table(folder)
        self._random = random
        self._is_mapped = is_mapped
        self._numbers: Iterator[int] = count(1)
        self._columns = [self._column("id", "long"), self._column("p", random.choice(["string", "date", "boolean"]))]
        self._columns.append(self._column("s", "string"))
        self._partition = ["p"] if random.random() < 0.7 else []
        self._live: dict[str, File] = {}
        self._past: dict[str, File] = {}

    def grow(self, versions: int) -> dict[int, Rows]:
        """Write so many versions; the rows of each."""
        return {version: self._commit(version) for version in range(versions)}

    def _commit(self, version: int) -> Rows:
        if version == 0:
            features = with_features("deletionVectors", "columnMapping")
            self.table.commit(0, features, self._defined(), *self._append())
        else:
            self.table.commit(version, *self._random.choice(self._operations())())
        return self._rows()

    def _operations(self) -> list[Callable[[], list[Action]]]:
        own = [
            self._append,
            self._delete,
            self._undelete,
            self._remove,
            self._return,
            self._overwrite,
            self._add_column,
        ]
        return [*own, self._rename, self._drop_column] if self._is_mapped else own

    def _append(self) -> list[Action]:
        return [self._new_file() for _ in range(self._random.randint(1, 3))]

    def _delete(self) -> list[Action]:
        return [
            action
            for path, file in sorted(self._live.items())
            if self._random.random() < 0.5
            for action in self._with_deleted(path, file.deleted | {self._random.randrange(len(file.rows))})
        ]

    def _undelete(self) -> list[Action]:
        return [
            action
            for path, file in sorted(self._live.items())
            if file.deleted
            for action in self._with_deleted(path, set(sorted(file.deleted)[1:]))
        ]

    def _with_deleted(self, path: str, deleted: set[int]) -> list[Action]:
        file, before = self._live[path], self._live[path].add
        file.deleted, file.add = deleted, again(before, vector(*sorted(deleted)) if deleted else None)
        return [gone(before), file.add]

    def _remove(self) -> list[Action]:
        chosen = [path for path in sorted(self._live) if self._random.random() < 0.4]
        self._past.update((path, self._live.pop(path)) for path in chosen)
        return [gone(self._past[path].add) for path in chosen]

    def _return(self) -> list[Action]:
        """As RESTORE does: files of before come back as they were."""
        returning = {path: self._past.pop(path) for path in sorted(self._past)}
        self._live.update(returning)
        return [file.add for file in returning.values()]

    def _overwrite(self) -> list[Action]:
        removed = [gone(file.add) for file in self._live.values()]
        self._live.clear()
        self._past.clear()
        if self._random.random() < 0.5:
            self._partition = [] if self._partition else ["p"]
        return [*removed, self._defined(), self._new_file()]

    def _add_column(self) -> list[Action]:
        self._columns.append(self._column(f"c{next(self._numbers)}", self._random.choice(list(TYPES))))
        return [self._defined(), self._new_file()]

    def _rename(self) -> list[Action]:
        """Two columns exchange their names."""
        one, other = self._random.sample([each for each in self._columns if each.name != "p"], 2)
        one.name, other.name = other.name, one.name
        return [self._defined()]

    def _drop_column(self) -> list[Action]:
        droppable = [each for each in self._columns if each.name != "p"]
        if len(droppable) > 2:
            self._columns.remove(self._random.choice(droppable))
        return [self._defined()]

    def _column(self, name: str, kind: str) -> Column:
        number = next(self._numbers)
        return Column(number, name, kind, f"col-{number}" if self._is_mapped else name)

    def _defined(self) -> Action:
        columns = [
            column(each.name, each.type, each.id if self._is_mapped else None, each.physical) for each in self._columns
        ]
        mode = {"delta.columnMapping.mode": "name"} if self._is_mapped else {}
        return defined(*columns, partition_by=self._partition, **mode)

    def _new_file(self) -> Action:
        partition = {each: self._value(each.type) for each in self._columns if each.name in self._partition}
        data = [each for each in self._columns if each.name not in self._partition]
        held = [{each.id: self._value(each.type) for each in data} for _ in range(self._random.randint(1, 4))]
        path = f"{self._folder(partition)}f{next(self._numbers)}.parquet"
        values = {each.physical: _text(value) for each, value in partition.items()}
        columns = {each.physical: pa.array([row[each.id] for row in held], TYPES[each.type]) for each in data}
        action = written(self.table, path, pa.table(columns), path=quote(path), partitionValues=values)
        constant = {each.id: value for each, value in partition.items()}
        self._live[path] = File(action, [row | constant for row in held])
        return action

    def _folder(self, partition: dict[Column, Any]) -> str:
        """Folders that say the partition, as Hive's do, or something else."""
        if self._random.random() < 0.5:
            return self._random.choice(["", "x%/", "a folder/"])
        texts = {each.physical: _text(value) or "__HIVE_DEFAULT_PARTITION__" for each, value in partition.items()}
        return "".join(f"{name}={quote(text, safe='')}/" for name, text in texts.items())

    def _value(self, kind: str) -> Any:
        if self._random.random() < 0.2:
            return None
        made: dict[str, Callable[[], Any]] = {
            "long": lambda: self._random.randint(-5, 5) * 10**12,
            "string": lambda: self._random.choice(TEXTS),
            "double": lambda: self._random.choice([1.5, -0.25]),
            "date": lambda: date(2024, 1, self._random.randint(1, 28)),
            "boolean": lambda: self._random.random() < 0.5,
        }
        return made[kind]()

    def _rows(self) -> Rows:
        found = [
            {each.name: row.get(each.id) for each in self._columns}
            for file in self._live.values()
            for position, row in enumerate(file.rows)
            if position not in file.deleted
        ]
        return rows(pa.Table.from_pylist(found, pa.schema([(each.name, TYPES[each.type]) for each in self._columns])))


def _text(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
