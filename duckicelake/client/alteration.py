"""Build commits that change a table's columns, partitions and order from clauses like those of SQL's ALTER TABLE.

add column note string after id
partition by day(time), bucket(16, id)
"""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Final

from duckicelake.client.models import Json
from duckicelake.client.schema_text import (
    ColumnReader,
    find_column,
    list_children,
    parse_partition_fields,
    parse_path,
    parse_sort_fields,
)
from duckicelake.errors import BadInputError
from duckicelake.rest.names import Namespace

_NOTHING: Final = "nothing"
_CLAUSES: Final = (
    "add column, drop column, rename column, alter column, identifier fields, partition by or order by, as in "
    "`add column note string comment 'text' after id`"
)


def build_alteration(metadata: Json, clauses: Sequence[str]) -> Json:
    """Build the commit that applies the clauses one after the other, as JSON: requirements and updates.

    Its requirements hold while the table's columns, partitions and order are those of `metadata`. Raises BadInputError.
    """
    draft = _Draft(metadata)
    for clause in clauses:
        draft.apply(clause)
    return draft.build()


def build_view(namespace: Namespace, schema: Json, texts: Mapping[str, str]) -> Json:
    """Build a view's schema and version, as JSON. texts: its query by dialect."""
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": int(time.time() * 1000),
        "summary": {},
        "default-namespace": list(namespace),
        "representations": [{"type": "sql", "sql": text, "dialect": dialect} for dialect, text in texts.items()],
    }
    return {"schema": schema | {"schema-id": 0}, "view-version": version}


class _Draft:
    """A table's definition while clauses change it."""

    def __init__(self, metadata: Json) -> None:
        self._metadata = metadata
        self._base = _get_current(metadata, "schemas", "schema-id", "current-schema-id")
        self._schema = deepcopy(self._base)
        self._last_id: int = metadata["last-column-id"]
        self._spec: Json | None = None
        self._order: Json | None = None

    def apply(self, clause: str) -> None:
        reader = ColumnReader(clause, self._last_id, what="change")
        verb = reader.take().lower() if reader.peek() else ""
        acts: Mapping[str, Callable[[ColumnReader], None]] = {
            "add": self._add,
            "drop": self._drop,
            "rename": self._rename,
            "alter": self._alter,
        }
        if verb in acts:
            reader.expect("column")
            acts[verb](reader)
            if reader.peek():
                raise reader.build_error("nothing more")
        elif verb == "identifier":
            reader.expect("fields")
            self._set_keys(reader)
        elif verb in {"partition", "order"} and reader.peek().lower() == "by":
            reader.take()
            self._arrange(verb, reader.take_rest())
        else:
            raise BadInputError(f"Invalid change {clause!r}: expected {_CLAUSES}")

    def build(self) -> Json:
        metadata = self._metadata
        requirements: list[Json] = [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}]
        updates: list[Json] = []
        if self._schema != self._base:
            requirements += [
                {"type": "assert-current-schema-id", "current-schema-id": self._base["schema-id"]},
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata["last-column-id"]},
            ]
            added = {"action": "add-schema", "schema": self._schema, "last-column-id": self._last_id}
            updates += [added, {"action": "set-current-schema", "schema-id": -1}]
        if self._spec is not None:
            requirements += [
                {"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]},
                {
                    "type": "assert-last-assigned-partition-id",
                    "last-assigned-partition-id": metadata["last-partition-id"],
                },
            ]
            updates += [{"action": "add-spec", "spec": self._spec}, {"action": "set-default-spec", "spec-id": -1}]
        if self._order is not None:
            order_id = metadata["default-sort-order-id"]
            requirements.append({"type": "assert-default-sort-order-id", "default-sort-order-id": order_id})
            updates += [
                {"action": "add-sort-order", "sort-order": self._order},
                {"action": "set-default-sort-order", "sort-order-id": -1},
            ]
        return {"requirements": requirements, "updates": updates}

    def _add(self, reader: ColumnReader) -> None:
        *parent, name = _read_path(reader)
        siblings = self._find_siblings(parent)
        if any(field["name"] == name for field in siblings):
            raise BadInputError(f"There is a column {'.'.join((*parent, name))!r} already")
        field = reader.read_description(name)
        siblings.append(field)
        self._last_id = reader.last_id
        if reader.peek():
            self._move(reader, siblings, field)

    def _drop(self, reader: ColumnReader) -> None:
        path = _read_path(reader)
        field = self._find(path)
        self._find_siblings(path[:-1]).remove(field)
        gone = {field["id"], *_list_ids(field["type"])}
        self._keep_keys(lambda key: key not in gone)

    def _rename(self, reader: ColumnReader) -> None:
        path = _read_path(reader)
        field = self._find(path)
        reader.expect("to")
        name = reader.read_name()
        if any(other["name"] == name for other in self._find_siblings(path[:-1]) if other is not field):
            raise BadInputError(f"There is a column {'.'.join((*path[:-1], name))!r} already")
        field["name"] = name

    def _alter(self, reader: ColumnReader) -> None:
        path = _read_path(reader)
        field = self._find(path)
        what = reader.peek().lower()
        if what in {"first", "after"}:
            self._move(reader, self._find_siblings(path[:-1]), field)
            return
        reader.take()
        if what == "type":
            field["type"] = reader.read_type()
            self._last_id = reader.last_id
        elif what == "comment":
            field["doc"] = reader.read_text()
            if not field["doc"]:
                del field["doc"]
        elif what == "drop":
            reader.expect("not")
            reader.expect("null")
            field["required"] = False
        else:
            raise reader.build_error("type, comment, drop not null, first or after before it")

    def _move(self, reader: ColumnReader, siblings: list[Json], field: Json) -> None:
        siblings.remove(field)
        if reader.take().lower() == "first":
            siblings.insert(0, field)
            return
        name = reader.read_name()
        places = [place for place, other in enumerate(siblings) if other["name"] == name]
        if not places:
            raise BadInputError(f"No column {name!r} beside {field['name']!r}, to stand after")
        siblings.insert(places[0] + 1, field)

    def _set_keys(self, reader: ColumnReader) -> None:
        names = reader.take_rest()
        paths = [] if names.lower() == _NOTHING else [parse_path(name.strip()) for name in names.split(",")]
        keys = [self._find(path)["id"] for path in paths]
        self._keep_keys(lambda _: False)
        if keys:
            self._schema["identifier-field-ids"] = keys

    def _keep_keys(self, keeps: Callable[[int], bool]) -> None:
        keys = [key for key in self._schema.get("identifier-field-ids", ()) if keeps(key)]
        self._schema.pop("identifier-field-ids", None)
        if keys:
            self._schema["identifier-field-ids"] = keys

    def _arrange(self, verb: str, fields: str) -> None:
        text = "" if fields.lower() == _NOTHING else fields
        if not fields:
            raise BadInputError(f"Invalid change '{verb} by': expected fields, as day(time), id; or {_NOTHING}")
        if verb == "order":
            self._order = parse_sort_fields(text, self._schema)
            return
        spec = parse_partition_fields(text, self._schema)
        known = _get_current(self._metadata, "partition-specs", "spec-id", "default-spec-id")["fields"]
        names = {(field.get("source-id"), field["transform"]): field["name"] for field in known}
        for field in spec["fields"]:
            del field["field-id"]  # the server's to choose: a field that was there before keeps its own
            field["name"] = names.get((field["source-id"], field["transform"]), field["name"])
        self._spec = spec

    def _find(self, path: list[str]) -> Json:
        found = find_column(self._schema["fields"], path)
        if found is None:
            names = ", ".join(field["name"] for field in self._schema["fields"])
            raise BadInputError(f"No column {'.'.join(path)!r}; the columns are {names}")
        return found

    def _find_siblings(self, parent: list[str]) -> list[Json]:
        if not parent:
            fields: list[Json] = self._schema["fields"]
            return fields
        type_ = self._find(parent)["type"]
        if isinstance(type_, str) or type_["type"] != "struct":
            raise BadInputError(f"{'.'.join(parent)} is no struct: it has no columns of its own")
        return list_children(type_)


def _get_current(metadata: Json, what: str, id_name: str, current: str) -> Json:
    return next(one for one in metadata[what] if one[id_name] == metadata[current])


def _read_path(reader: ColumnReader) -> list[str]:
    path = [reader.read_name()]
    while reader.peek() == ".":
        reader.take()
        path.append(reader.read_name())
    return path


def _list_ids(type_: Json) -> list[int]:
    return [one for child in list_children(type_) for one in (child["id"], *_list_ids(child["type"]))]
