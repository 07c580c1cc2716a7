"""Commits as clients send them, chained: name -> (the scenario it starts from, updates)."""

from typing import Any

Json = Any

CREATED = 1_700_000_000_000


def act(action: str, **keys: Json) -> Json:
    return {"action": action} | {key.replace("_", "-"): value for key, value in keys.items()}


def column(field_id: int, name: str, kind: Json, required: bool = False, **more: Json) -> Json:
    return {"id": field_id, "name": name, "required": required, "type": kind} | {
        key.replace("_", "-"): value for key, value in more.items()
    }


def add_schema(*fields: Json, schema_id: int = 0, identifiers: tuple[int, ...] = ()) -> Json:
    schema = {"type": "struct", "schema-id": schema_id, "fields": list(fields)}
    return act("add-schema", schema=schema | ({"identifier-field-ids": list(identifiers)} if identifiers else {}))


def add_spec(*fields: tuple[int, int | None, str, str], spec_id: int = 0) -> Json:
    items = [
        {"source-id": source, "name": name, "transform": transform}
        | ({} if field_id is None else {"field-id": field_id})
        for source, field_id, name, transform in fields
    ]
    return act("add-spec", spec={"spec-id": spec_id, "fields": items})


def add_order(*fields: tuple[int, str], order_id: int = 1) -> Json:
    items = [
        {"source-id": source, "transform": transform, "direction": "asc", "null-order": "nulls-first"}
        for source, transform in fields
    ]
    return act("add-sort-order", sort_order={"order-id": order_id if fields else 0, "fields": items})


def snapshot(snapshot_id: int, parent: int | None = None, **more: Json) -> Json:
    body = {
        "snapshot-id": snapshot_id,
        "sequence-number": snapshot_id,
        "timestamp-ms": CREATED + snapshot_id,
        "manifest-list": f"file:/lake/t/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "added-records": "3"},
        "schema-id": 0,
    } | ({} if parent is None else {"parent-snapshot-id": parent})
    given = {key.replace("_", "-"): value for key, value in more.items()}
    return act("add-snapshot", snapshot={key: value for key, value in (body | given).items() if value is not None})


def point(name: str, snapshot_id: int, kind: str = "branch", **more: Json) -> Json:
    return act("set-snapshot-ref", ref_name=name, type=kind, snapshot_id=snapshot_id, **more)


def statistics(snapshot_id: int, path: str) -> Json:
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1]}
    return act(
        "set-statistics",
        snapshot_id=snapshot_id,
        statistics={
            "snapshot-id": snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": 413,
            "file-footer-size-in-bytes": 42,
            "blob-metadata": [blob | {"properties": {"ndv": "3"}}],
        },
    )


def partition_statistics(snapshot_id: int, path: str) -> Json:
    body = {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 43}
    return act("set-partition-statistics", partition_statistics=body)


ID, AT, NAME = column(1, "id", "long", True, doc="key"), column(2, "at", "timestamptz"), column(3, "name", "string")
NESTED = column(4, "tags", {"type": "list", "element-id": 5, "element": "decimal(9, 2)", "element-required": False})


def staged_create(version: int) -> list[Json]:
    """What the Java client commits after a staged create, in its order."""
    return [
        act("assign-uuid", uuid="9c12d441-03fe-4693-9a96-a0705ddf69c1"),
        act("upgrade-format-version", format_version=version),
        add_schema(ID, AT, NAME, NESTED, identifiers=(1,)),
        act("set-current-schema", schema_id=-1),
        add_spec((2, 1000, "at_day", "day"), (1, 1001, "id_bucket", "bucket[16]")),
        act("set-default-spec", spec_id=-1),
        add_order((1, "identity"), (2, "day")),
        act("set-default-sort-order", sort_order_id=-1),
        act("set-location", location="file:/lake/t"),
        act("set-properties", updates={"write.format.default": "parquet", "owner": "ada"}),
    ]


def lineage(version: int, first: int, added: int = 3) -> Json:
    """What snapshots have in some versions only: row ids in version 3, no sequence number in version 1."""
    if version == 1:
        return {"sequence_number": None}
    return {"first_row_id": first, "added_rows": added} if version == 3 else {}


def scenarios(version: int) -> dict[str, tuple[str | None, list[Json]]]:
    """All scenarios on tables of one format version; the name of each says what it does."""
    return {
        "created": (None, staged_create(version)),
        "created unpartitioned and unsorted": (
            None,
            [
                *staged_create(version)[:4],
                add_spec(),
                act("set-default-spec", spec_id=-1),
                add_order(),
                act("set-default-sort-order", sort_order_id=-1),
                act("set-location", location="file:/lake/u"),
            ],
        ),
        "created with data": (
            None,
            [
                *staged_create(version),
                snapshot(1, **lineage(version, 0)),
                point("main", 1),
            ],
        ),
        "appended": ("created with data", [snapshot(2, 1, **lineage(version, 3)), point("main", 2)]),
        "appended again": ("appended", [snapshot(3, 2, **lineage(version, 6, 0)), point("main", 3)]),
        "overwritten in two snapshots": (
            "appended",
            [
                snapshot(3, 2, **lineage(version, 6)),
                point("main", 3),
                snapshot(4, 3, **lineage(version, 9)),
                point("main", 4),
            ],
        ),
        "staged without a ref": ("appended", [snapshot(3, 2, **lineage(version, 6))]),
        "branched and tagged": (
            "appended again",
            [
                point("audit", 2, max_ref_age_ms=86_400_000, max_snapshot_age_ms=3_600_000, min_snapshots_to_keep=2),
                point("v1", 1, "tag", max_ref_age_ms=86_400_000),
                point("old", 1),
            ],
        ),
        "appended to a branch": ("branched and tagged", [snapshot(5, 2, **lineage(version, 6)), point("audit", 5)]),
        "branch removed": (
            "branched and tagged",
            [
                act("remove-snapshot-ref", ref_name="audit"),
                act("remove-snapshot-ref", ref_name="unknown"),
            ],
        ),
        "rolled back": ("appended again", [point("main", 1)]),
        "first snapshot expired": ("appended again", [act("remove-snapshots", snapshot_ids=[1, 777])]),
        "middle snapshot expired": ("appended again", [act("remove-snapshots", snapshot_ids=[2])]),
        "tagged snapshots expired": ("branched and tagged", [act("remove-snapshots", snapshot_ids=[1, 2])]),
        "current snapshot expired": ("appended again", [act("remove-snapshots", snapshot_ids=[3])]),
        "main removed": ("appended", [act("remove-snapshot-ref", ref_name="main")]),
        "replaced": (
            "appended",
            [
                act("remove-snapshot-ref", ref_name="main"),
                add_schema(ID, column(6, "other", "double"), schema_id=1),
                act("set-current-schema", schema_id=-1),
                add_spec(spec_id=1),
                act("set-default-spec", spec_id=-1),
                add_order(),
                act("set-default-sort-order", sort_order_id=-1),
                snapshot(9, schema_id=1, **lineage(version, 6)),
                point("main", 9),
            ],
        )
        if version > 1
        else ("appended", [act("remove-snapshot-ref", ref_name="main")]),
        "column added": (
            "created",
            [
                add_schema(ID, AT, NAME, NESTED, column(6, "n", "int"), schema_id=7, identifiers=(1,)),
                act("set-current-schema", schema_id=-1),
            ],
        ),
        "column added and taken back": ("column added", [act("set-current-schema", schema_id=0)]),
        "old schema removed": ("column added", [act("remove-schemas", schema_ids=[0, 42])]),
        "field ids of a spec left to the server": (
            "created",
            [
                add_spec(
                    (2, 1000, "at_day", "day"), (1, 1001, "id_bucket", "bucket[16]"), (3, 1002, "n", "truncate[2]")
                ),
                act("set-default-spec", spec_id=-1),
            ],
        ),
        "equal spec and order added": (
            "created",
            [
                add_spec((2, 1000, "at_day", "day"), (1, 1001, "id_bucket", "bucket[16]"), spec_id=5),
                add_order((1, "identity"), (2, "day"), order_id=5),
            ],
        ),
        "order added": ("created", [add_order((3, "identity")), act("set-default-sort-order", sort_order_id=2)]),
        "old spec removed": (
            "field ids of a spec left to the server",
            [act("remove-partition-specs", spec_ids=[0, 9])],
        ),
        "statistics set": (
            "appended",
            [
                statistics(1, "file:/lake/t/metadata/1.stats"),
                statistics(2, "file:/lake/t/metadata/2.stats"),
                statistics(1, "file:/lake/t/metadata/1b.stats"),
                partition_statistics(1, "file:/lake/t/metadata/1.parquet"),
                partition_statistics(2, "file:/lake/t/metadata/2.parquet"),
            ],
        ),
        "statistics removed": (
            "statistics set",
            [
                act("remove-statistics", snapshot_id=1),
                act("remove-partition-statistics", snapshot_id=2),
                act("remove-statistics", snapshot_id=99),
            ],
        ),
        "statistics expired": ("statistics set", [act("remove-snapshots", snapshot_ids=[1])]),
        "properties changed": (
            "created",
            [
                act("set-properties", updates={"owner": "grace", "comment": "flights"}),
                act("remove-properties", removals=["write.format.default", "unknown"]),
            ],
        ),
        "moved": ("created", [act("set-location", location="file:/lake/elsewhere")]),
        "upgraded": ("appended", [act("upgrade-format-version", format_version=3)]),
        "appended after the upgrade": (
            "upgraded",
            [
                snapshot(8, 2, **(lineage(3, 6) if version == 3 else lineage(3, 0))),
                point("main", 8),
            ],
        ),
    } | (_version_3() if version == 3 else {})


def _version_3() -> dict[str, tuple[str | None, list[Json]]]:
    key = {"key-id": "k1", "encrypted-key-metadata": "c2VjcmV0", "encrypted-by-id": "root", "properties": {"a": "b"}}
    return {
        "keys added": (
            "created",
            [
                act("add-encryption-key", encryption_key=key),
                act("add-encryption-key", encryption_key={"key-id": "k2", "encrypted-key-metadata": "eA=="}),
            ],
        ),
        "keys removed": (
            "keys added",
            [
                act("remove-encryption-key", key_id="k1"),
                act("remove-encryption-key", key_id="unknown"),
            ],
        ),
        "types of version 3 added": (
            "created",
            [
                add_schema(
                    ID,
                    AT,
                    NAME,
                    NESTED,
                    column(6, "v", "variant"),
                    column(7, "g", "geometry(EPSG:3857)"),
                    column(8, "e", "geography(OGC:CRS84, karney)"),
                    column(9, "t", "timestamptz_ns"),
                    column(10, "d", "int", True, initial_default=7, write_default=8),
                    column(11, "u", "unknown"),
                    identifiers=(1,),
                ),
                act("set-current-schema", schema_id=-1),
            ],
        ),
    }
