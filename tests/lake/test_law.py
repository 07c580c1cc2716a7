"""The law: project(write(state, diff(project(state), target))) == target, for commits that Iceberg clients can make.

And its counterpart: what DuckDB then changes natively leaves everything else of the metadata as it was.
"""

import random
from dataclasses import replace

import pytest

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.tables import commit_table
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata_builder import apply_updates
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.schema_evolution import check_evolution
from tests.support.lakes import iceberg_rows

CREATE = "CREATE TABLE t (id BIGINT, day DATE, moment TIMESTAMP, s VARCHAR, n STRUCT(x INTEGER, y VARCHAR))"
INSERT = "INSERT INTO t (id) SELECT i FROM range(20) r(i)"
TYPES = ["int", "string", "timestamptz", "uuid", "decimal(9, 2)", "binary"]


class Client:
    """Makes requests that the specification allows, from the metadata it sees."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0

    def updates(self, metadata):
        kinds = [
            self.set_properties, self.remove_properties, self.add_columns, self.rename_column, self.drop_column,
            self.move_column, self.document, self.reserve_column, self.add_spec, self.add_order, self.tag, self.untag,
            self.branch, self.statistics, self.reset_schema, self.reset_spec, self.tables_comment, self.widen,
        ]  # fmt: skip
        return self.random.choice(kinds)(metadata)

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def set_properties(self, _):
        value = self.random.choice(["", "ü 'x'", "a\0b", "{}"])
        return [{"action": "set-properties", "updates": {self.name("p"): value, "p0": "x"}}]

    def tables_comment(self, _):
        return [{"action": "set-properties", "updates": {"comment": self.name("it's ")}}]

    def remove_properties(self, metadata):
        return [{"action": "remove-properties", "removals": [*list(metadata.properties)[:2], "absent"]}]

    def schema(self, metadata, fields, **others):
        schema = {**metadata.schema().to_json(), "fields": fields, **others}
        return [
            {"action": "add-schema", "schema": schema, "last-column-id": metadata.last_column_id},
            {"action": "set-current-schema", "schema-id": -1},
        ]

    def fields(self, metadata):
        return metadata.schema().to_json()["fields"]

    def used(self, metadata):
        return {f.source_id for spec in metadata.partition_specs for f in spec.fields} | {
            f.source_id for order in metadata.sort_orders for f in order.fields
        }

    def add_columns(self, metadata):
        first = metadata.last_column_id
        inner = {"id": first + 3, "name": "deep", "required": False, "type": self.random.choice(TYPES)}
        nested = {"type": "list", "element-id": first + 2, "element": {"type": "struct", "fields": [inner]},
                  "element-required": False}  # fmt: skip
        new = [
            {"id": first + 1, "name": self.name("list"), "required": False, "type": nested, "doc": "documented"},
            {"id": first + 4, "name": self.name("c"), "required": False, "type": self.random.choice(TYPES)},
        ]
        return self.schema(metadata, [*self.fields(metadata), *new])

    def reserve_column(self, metadata):
        new = {"id": metadata.last_column_id + 5, "name": self.name("unseen"), "required": False, "type": "int"}
        return self.schema(metadata, [*self.fields(metadata), new])[:1]

    def rename_column(self, metadata):
        fields = self.fields(metadata)
        self.random.choice([{}, *(f for f in fields if f["id"] != 1)])["name"] = self.name("renamed")
        return self.schema(metadata, fields)

    def widen(self, metadata):
        fields = self.fields(metadata)
        for field in fields:
            field["type"] = {"int": "long", "decimal(9, 2)": "decimal(12, 2)"}.get(str(field["type"]), field["type"])
        return self.schema(metadata, fields)

    def document(self, metadata):
        fields = self.fields(metadata)
        self.random.choice(fields)["doc"] = self.name("doc")
        return self.schema(metadata, fields)

    def drop_column(self, metadata):
        fields, used = self.fields(metadata), self.used(metadata)
        kept = [f for f in fields if f["id"] in {1, *used} or self.random.random() < 0.7]
        return self.schema(metadata, kept)

    def move_column(self, metadata):
        fields = self.fields(metadata)
        self.random.shuffle(fields)
        return self.schema(metadata, fields)

    def reset_schema(self, metadata):
        names = {f.name for spec in metadata.partition_specs for f in spec.fields}
        schemas = [s for s in metadata.schemas if self.used(metadata) <= s.map_fields_by_id().keys()]
        schemas = [s for s in schemas if not names & {f.name for f in s.fields} - {"s"}]
        schemas = [s for s in schemas if reads_rows_of(metadata, s)]
        chosen = self.random.choice([*schemas, metadata.schema()])
        return [{"action": "set-current-schema", "schema-id": chosen.schema_id}]

    def primitives(self, metadata):
        return {f["type"]: f["id"] for f in self.fields(metadata) if isinstance(f["type"], str)}

    def add_spec(self, metadata):
        by_type = self.primitives(metadata)
        possible = [
            (by_type[type_], transform)
            for type_, transform in [
                ("date", "day"), ("timestamp", "hour"), ("timestamp", "month"), ("string", "truncate[3]"),
                ("string", "identity"), ("long", "bucket[4]"), ("long", "void"), ("uuid", "bucket[3]"),
                ("int", "identity"),
            ]
            if type_ in by_type
        ]  # fmt: skip
        chosen = self.random.sample(possible, min(len(possible), self.random.randint(0, 2)))
        fields = [{"source-id": s, "name": self.name("part"), "transform": t} for s, t in dict(chosen).items()]
        return [
            {"action": "add-spec", "spec": {"fields": fields}},
            {"action": "set-default-spec", "spec-id": -1},
        ]

    def reset_spec(self, metadata):
        sources = metadata.schema().map_fields_by_id()
        legal = [s for s in metadata.partition_specs if all(f.source_id in sources for f in s.fields)]
        return [{"action": "set-default-spec", "spec-id": self.random.choice(legal).spec_id}]

    def add_order(self, metadata):
        transforms = self.random.choice([["identity"], ["identity", "bucket[2]"]])
        ids = self.random.sample(sorted(self.primitives(metadata).values()), 1)
        fields = [
            {"source-id": ids[0], "transform": t, "direction": self.random.choice(["asc", "desc"]),
             "null-order": "nulls-last"}
            for t in transforms
        ]  # fmt: skip
        order = {"order-id": 1, "fields": fields}
        return [
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ]

    def tag(self, metadata):
        chosen = self.random.choice(metadata.snapshots)
        ref = {"type": "tag", "ref-name": self.name("tag"), "snapshot-id": chosen.snapshot_id, "max-ref-age-ms": 10**12}
        return [{"action": "set-snapshot-ref", **ref}]

    def branch(self, metadata):
        ref = {"type": "branch", "ref-name": "main", "snapshot-id": metadata.current_snapshot_id,
               "min-snapshots-to-keep": self.random.randint(1, 9)}  # fmt: skip
        return [{"action": "set-snapshot-ref", **ref}]

    def untag(self, metadata):
        tags = [name for name in metadata.refs if name != "main"]
        return [{"action": "remove-snapshot-ref", "ref-name": name} for name in tags[:1]]

    def statistics(self, metadata):
        file = {
            "snapshot-id": metadata.current_snapshot_id, "statistics-path": "s3://b/stats.puffin",
            "file-size-in-bytes": 4, "file-footer-size-in-bytes": 2, "blob-metadata": [],
        }  # fmt: skip
        return [{"action": "set-statistics", "statistics": file}]


def reads_rows_of(metadata, schema):
    """Whether rows under the current schema can be read under another."""
    try:
        check_evolution(metadata.schema(), schema, metadata.partition_specs, metadata.format_version)
    except InvalidRequestError:
        return False
    return True


def uncached(services):
    return replace(services, cache=TableCache())


def essence(metadata):
    return metadata.replace_fields(last_updated_ms=0, metadata_log=())


@pytest.mark.parametrize("seed", range(4))
def test_what_is_committed_is_what_is_projected_and_duckdb_keeps_it(lake, seed):
    client = Client(seed)
    lake.run(CREATE, INSERT, "INSERT INTO t (id) VALUES (100)", "DELETE FROM t WHERE id = 3")
    made = []
    for _ in range(16):
        base = lake.metadata()
        updates = client.updates(base)
        made.append(updates)
        request = CommitTableRequest.model_validate({"requirements": [], "updates": updates})
        target = apply_updates(base, request.updates, lake.services.clock())

        commit_table(lake.services, ("main",), "t", request)

        found = load_current_table(uncached(lake.services), ("main",), "t").metadata
        expected = target.replace_fields(
            properties={**target.properties, "ducklake.snapshot-id": found.properties["ducklake.snapshot-id"]}
        )
        assert essence(found) == essence(expected), made
        lake.run(f"INSERT INTO t (id) VALUES ({1000 + len(made)})", f"COMMENT ON TABLE t IS 'comment {len(made)}'")
        after = lake.metadata()
        assert after.properties["comment"] == f"comment {len(made)}"
        for name in ("schemas", "current_schema_id", "partition_specs", "default_spec_id", "sort_orders",
                     "default_sort_order_id", "last_column_id", "last_partition_id", "location",
                     "statistics"):  # fmt: skip
            if name != "partition_specs" or any(not spec.fields for spec in found.partition_specs):
                assert getattr(after, name) == getattr(found, name), (name, made)
    columns = sorted(lake.duck.sql("FROM t LIMIT 0").columns)
    static = lake.static()
    assert sorted(static.schema().as_arrow().names) == columns
    ids = (
        [(row["id"],) for row in static.scan(selected_fields=("id",)).to_arrow().to_pylist()] if "id" in columns else []
    )
    assert sorted(ids) == sorted(lake.duck.sql("SELECT id FROM t").fetchall() if ids else [])
    assert lake.one("SELECT count(*) FROM t") == (len(iceberg_rows(static)),)
