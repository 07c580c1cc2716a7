"""Parse DuckLake's `changes_made`: which namespaces, tables and views a snapshot touched, and how."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce
from typing import Final

from duckicelake.changelog import object_names
from duckicelake.changelog.entries import ChangeKind
from duckicelake.changelog.object_names import Begun, NamedObject
from duckicelake.changelog.source import LakeSnapshot, read_delete_file_begins
from duckicelake.iceberg.identifiers import format_full_name
from duckicelake.lake.model import ADDITION_KINDS, MOVE_KINDS, REMOVAL_KINDS, complete_kinds, parse_changes
from duckicelake.postgres.queries import Transaction

_OF_TABLES: Final = ADDITION_KINDS | REMOVAL_KINDS | MOVE_KINDS | {"altered_table", "dropped_table"}
_OF_VIEWS: Final = frozenset({"altered_view", "dropped_view"})
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"')
_MAX_ID_DIGITS: Final = 18
_FIRST: Final = (
    *(ChangeKind.DROP_TABLE, ChangeKind.DROP_VIEW, ChangeKind.DROP_NAMESPACE),
    *(ChangeKind.RENAME_NAMESPACE, ChangeKind.CREATE_NAMESPACE),
)
"""Kinds that come first in a snapshot: names are freed before they are used again."""

ChangeWords = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """An object that a snapshot touched. words: DuckLake's. kinds: the most specific first.

    born: the schema and name at its creation. place: location and format version that Iceberg clients see.
    """

    kinds: tuple[ChangeKind, ...]
    namespace: str
    name: str | None
    object_id: int | None = None
    uuid: str | None = None
    previous: str | None = None
    words: frozenset[str] = frozenset()
    born: tuple[str, str | None] | None = None
    place: tuple[str, int | None] | None = None

    @property
    def resource(self) -> str:
        return format_full_name(self.namespace, self.name)


class ChangedObjectReader:
    """Finds the objects of several snapshots, with one query for all."""

    def __init__(self, cursor: Transaction, snapshots: Sequence[LakeSnapshot]) -> None:
        self._words = {snapshot.snapshot_id: parse_changes(snapshot.changes_made) for snapshot in snapshots}
        self._others: Mapping[int, set[int]] = {
            snapshot.snapshot_id: {iceberg.table_id for iceberg in snapshot.iceberg} for snapshot in snapshots
        }
        """Tables that a snapshot concerns, perhaps without naming them."""
        self._with_delete_files = _find_delete_files(cursor, self._words)
        self._new_tables = object_names.find_begun_tables(cursor, self._begun("created_table"))
        self._new_views = object_names.find_begun_views(cursor, self._begun("created_view"))
        self._new_schemas = object_names.find_begun_schemas(
            cursor, [begun[:2] for begun in self._begun("created_schema")]
        )
        tables = {
            *self._ids(_OF_TABLES),
            *(id_ for ids in self._new_tables.values() for id_ in ids),
            *(id_ for ids in self._others.values() for id_ in ids),
        }
        views = {*self._ids(_OF_VIEWS), *(id_ for ids in self._new_views.values() for id_ in ids)}
        schemas = {*self._ids({"dropped_schema"}), *(id_ for ids in self._new_schemas.values() for id_ in ids)}
        self._names: defaultdict[int, list[NamedObject]] = defaultdict(list)
        for named in (
            *object_names.read_table_names(cursor, tables),
            *object_names.read_view_names(cursor, views),
            *object_names.read_schema_names(cursor, schemas),
        ):
            self._names[named.object_id].append(named)
        for named in object_names.read_last_names(cursor, (tables | views | schemas) - self._names.keys()):
            self._names[named.object_id].append(named)

    def of(self, snapshot_id: int) -> list[ChangedObject]:
        """Return a snapshot's objects in a possible order of the changes, without those of unknown names."""
        words = self._words[snapshot_id]
        found = [
            *self._schemas(snapshot_id, words),
            *self._tables(snapshot_id, words),
            *self._views(snapshot_id, words),
        ]
        return sorted(found, key=_sort_key)

    def _begun(self, kind: str) -> list[Begun]:
        return [
            (at, *_unquote(value)) for at, words in self._words.items() for word, value in words if word == kind
        ]  # fmt: skip

    def _ids(self, kinds: AbstractSet[str]) -> set[int]:
        return {id_ for words in self._words.values() for id_ in _group_by_id(words, kinds)}

    def _schemas(self, at: int, words: ChangeWords) -> list[ChangedObject]:
        """Find the schemas; one that goes on under another name has the uuid of one that ends."""
        found = []
        dropped = [
            change
            for schema_id in _group_by_id(words, {"dropped_schema"})
            for change in self._thing(at, schema_id, (ChangeKind.DROP_NAMESPACE,))
        ]
        before = {change.uuid: change.namespace for change in dropped if change.uuid is not None}
        created = dict.fromkeys(_unquote(value)[0] for kind, value in words if kind == "created_schema")
        for name in created:
            new = self._new_schemas.get((at, name), [None])
            found += [self._new_schema(name, object_id, before) for object_id in new]
        moved = {change.uuid for change in found if change.previous is not None}
        return [*(change for change in dropped if change.uuid not in moved), *found]

    def _new_schema(self, recorded_name: str, object_id: int | None, before: Mapping[str, str]) -> ChangedObject:
        named = next(iter(self._names.get(-1 if object_id is None else object_id, ())), None)
        name, uuid = (recorded_name, None) if named is None else (named.namespace, named.uuid)
        previous = before.get(uuid or "")
        kind = ChangeKind.CREATE_NAMESPACE if previous is None else ChangeKind.RENAME_NAMESPACE
        return ChangedObject((kind,), name, None, object_id, uuid, previous)

    def _tables(self, at: int, words: ChangeWords) -> list[ChangedObject]:
        by_id = {
            table_id: set(complete_kinds(kinds, has_delete_file=(at, table_id) in self._with_delete_files))
            for table_id, kinds in _group_by_id(words, _OF_TABLES).items()
        }
        for table_id in self._others.get(at, ()):
            by_id.setdefault(table_id, set())
        created = [_unquote(value) for kind, value in words if kind == "created_table"]
        unknown: list[ChangedObject] = []
        for schema, name in created:
            new = self._new_tables.get((at, schema, name))
            if new is None:
                unknown.append(ChangedObject((ChangeKind.CREATE_TABLE,), schema, name))
            for table_id in new or ():
                by_id.setdefault(table_id, set()).add("created_table")
        if len(unknown) < len(created):
            unknown = []  # a name that the same transaction gave and took away again
        things = (self._thing(at, id_, self._table_kinds(at, id_, kinds), kinds) for id_, kinds in by_id.items())
        return [*unknown, *(change for found in things for change in found)]

    def _table_kinds(self, at: int, table_id: int, words: AbstractSet[str]) -> tuple[ChangeKind, ...]:
        if "dropped_table" in words and "created_table" not in words:
            return (ChangeKind.DROP_TABLE,)
        kinds: list[ChangeKind] = []
        if "created_table" in words:
            kinds.append(ChangeKind.RENAME_TABLE if self._before(at, table_id) else ChangeKind.CREATE_TABLE)
        elif "altered_table" in words:
            kinds.append(ChangeKind.ALTER_TABLE)
        data = _classify_data(words)
        return (*kinds, data) if data else tuple(kinds) or (ChangeKind.UPDATE_TABLE,)

    def _views(self, at: int, words: ChangeWords) -> list[ChangedObject]:
        by_id = _group_by_id(words, _OF_VIEWS)
        replaced = {self._name(at, id_) for id_, kinds in by_id.items() if "dropped_view" in kinds}
        found: list[ChangedObject] = []
        created = dict.fromkeys(_unquote(value) for kind, value in words if kind == "created_view")
        for view_id in (view_id for names in created for view_id in self._new_views.get((at, *names), ())):
            by_id.pop(view_id, None)
            if self._before(at, view_id):
                kind = ChangeKind.RENAME_VIEW
            else:
                kind = ChangeKind.ALTER_VIEW if self._name(at, view_id) in replaced else ChangeKind.CREATE_VIEW
            found += self._thing(at, view_id, (kind,))
        names = {(change.namespace, change.name) for change in found}
        for view_id, kinds in by_id.items():
            is_dropped = "dropped_view" in kinds
            if not (is_dropped and self._name(at, view_id) in names):
                found += self._thing(at, view_id, (ChangeKind.DROP_VIEW if is_dropped else ChangeKind.ALTER_VIEW,))
        return found

    def _thing(
        self, at: int, object_id: int, kinds: tuple[ChangeKind, ...], words: Iterable[str] = ()
    ) -> list[ChangedObject]:
        named, before = self._find_name(at, object_id), self._before(at, object_id)
        if named is None:
            return []
        previous = (
            format_full_name(before.namespace, before.name) if before is not None and named is not before else None
        )
        first = self._names[object_id][0]
        born = first.namespace, first.name
        place = None if named.location is None else (named.location, named.format_version)
        said = named.namespace, named.name, object_id, named.uuid, previous, frozenset(words)
        return [ChangedObject(kinds, *said, born, place)]

    def _find_name(self, at: int, object_id: int) -> NamedObject | None:
        """Find the object's name from the snapshot on, else its name until then, else its last name."""
        names = self._names.get(object_id, [])
        now = [named for named in names if named.visible(at)] or [named for named in names if named.end == at]
        return now[0] if now else names[-1] if names else None

    def _before(self, at: int, object_id: int) -> NamedObject | None:
        """Find the object's name until the snapshot, if that renamed or dropped it."""
        return next((named for named in self._names.get(object_id, ()) if named.end == at), None)

    def _name(self, at: int, object_id: int) -> tuple[str, str | None] | None:
        named = self._find_name(at, object_id)
        return None if named is None else (named.namespace, named.name)


def _find_delete_files(cursor: Transaction, words: Mapping[int, ChangeWords]) -> AbstractSet[tuple[int, int]]:
    """Find the (snapshot, table) at which a delete file begins, among those at which files were inserted."""
    written = {(at, id_) for at, said in words.items() for id_ in _group_by_id(said, {"inserted_into_table"})}
    return read_delete_file_begins(cursor, written) if written else frozenset()


def _group_by_id(words: ChangeWords, kinds: AbstractSet[str]) -> dict[int, set[str]]:
    """Group words by the id of their object. Words without an id are skipped, as DuckLake's readers do."""
    found: dict[int, set[str]] = {}
    for kind, value in words:
        if kind in kinds and value.isascii() and value.isdigit() and len(value) <= _MAX_ID_DIGITS:
            found.setdefault(int(value), set()).add(kind)
    return found


def _classify_data(words: AbstractSet[str]) -> ChangeKind | None:
    """Classify the change of rows. A flush also reports deletes of rows that were deleted before it."""
    if words & ADDITION_KINDS:
        return ChangeKind.OVERWRITE if words & REMOVAL_KINDS else ChangeKind.APPEND
    if words & MOVE_KINDS:
        return ChangeKind.REPLACE
    return ChangeKind.DELETE if words & REMOVAL_KINDS else None


def _unquote(value: str) -> tuple[str, str]:
    """Split a quoted name into schema and name. The name is empty for a schema, and for a text without quotes.

    Of more than two names the last one is the object's; the others are the levels of its schema.
    """
    first, *others = [part.replace('""', '"') for part in _NAME.findall(value)] or [value]
    *levels, name = others or [""]
    return reduce(format_full_name, levels, first), name


def _sort_key(thing: ChangedObject) -> tuple[int, int]:
    rank = _FIRST.index(thing.kinds[0]) if thing.kinds[0] in _FIRST else len(_FIRST)
    return rank, thing.object_id if thing.object_id is not None else -1
