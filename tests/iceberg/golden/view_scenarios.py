"""Commits to views as clients send them, chained: name -> (the scenario it starts from, updates)."""

from scenarios import CREATED, Json, act, add_schema, column

UUID = "fa6506c3-7681-40c8-86dc-e36561f83385"
DROPPING = {"replace.drop-dialect.allowed": "true"}

Scenarios = dict[str, tuple[str | None, list[Json]]]


def version(number: int, *queries: str, schema_id: int = -1, **more: Json) -> Json:
    """Each query is "dialect: sql"."""
    pairs = (query.split(": ", 1) for query in queries)
    body = {
        "version-id": number,
        "schema-id": schema_id,
        "timestamp-ms": CREATED + number,
        "summary": {"engine-name": "spark", "engine-version": "4.1"},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in pairs],
    }
    return act("add-view-version", view_version=body | {key.replace("_", "-"): value for key, value in more.items()})


def current(number: int = -1) -> Json:
    return act("set-current-view-version", view_version_id=number)


def properties(**values: str) -> Json:
    return act("set-properties", updates=values)


ID = column(1, "id", "long", required=True)
NAMES = (ID, column(2, "names", {"type": "list", "element-id": 3, "element": "string", "element-required": False}))
ONE, TWO, THREE = "spark: SELECT 1", "spark: SELECT 2", "spark: SELECT 3"

SCENARIOS: Scenarios = {
    "created": (
        None,
        [
            act("assign-uuid", uuid=UUID),
            act("set-location", location="file:/lake/v"),
            properties(comment="first"),
            add_schema(ID),
            version(1, ONE),
            current(),
        ],
    ),
    "properties are set and removed": (
        "created",
        [properties(a="1", b="2"), act("remove-properties", removals=["comment", "nothing"]), properties(b="3")],
    ),
    "location is set": ("created", [act("set-location", location="file:/lake/other")]),
    "same uuid and version": (
        "created",
        [act("assign-uuid", uuid=UUID), act("upgrade-format-version", format_version=1)],
    ),
    "version with a new schema": ("created", [add_schema(*NAMES, schema_id=1), version(2, TWO), current()]),
    "version with the schema there is": ("created", [version(2, TWO, schema_id=0), current()]),
    "version that isn't made current": ("created", [version(2, TWO, schema_id=0)]),
    "version with another id than the next": ("created", [version(7, TWO, schema_id=0), current(7)]),
    "version whose id is taken": ("version with a new schema", [version(2, THREE, schema_id=0), current()]),
    "version that is there already": ("version with a new schema", [version(3, ONE, schema_id=0), current(1)]),
    "version with a default catalog": ("created", [version(2, ONE, schema_id=0, default_catalog="c"), current()]),
    "version in an empty namespace": ("created", [version(2, ONE, schema_id=0, default_namespace=[]), current()]),
    "two versions at once": (
        "created",
        [version(2, TWO, schema_id=0), version(3, THREE, schema_id=0), current()],
    ),
    "back to the first version": ("version with a new schema", [current(1)]),
    "current version stays": ("version with a new schema", [current(2)]),
    "second dialect": ("created", [version(2, ONE, "trino: SELECT 1", schema_id=0), current()]),
    "dialect in other letters": ("created", [version(2, "SPARK: SELECT 2", schema_id=0), current()]),
    "dialect dropped where that is allowed": (
        "second dialect",
        [act("set-properties", updates=DROPPING), version(3, THREE, schema_id=0), current()],
    ),
    "history of two": (
        "version with a new schema",
        [
            act("set-properties", updates={"version.history.num-entries": "2"}),
            version(3, THREE, schema_id=0),
            current(),
        ],
    ),
    "history of one, back to the first": (
        "version with a new schema",
        [act("set-properties", updates={"version.history.num-entries": "1"}), current(1)],
    ),
    "history of one keeps what is new": (
        "version with a new schema",
        [
            act("set-properties", updates={"version.history.num-entries": "1"}),
            version(3, THREE, schema_id=0),
            version(4, "spark: SELECT 4", schema_id=0),
            current(3),
        ],
    ),
}
for _number in range(2, 13):
    _before = "created" if _number == 2 else f"{_number - 1} versions"
    _query = f"spark: SELECT {_number} AS n"
    SCENARIOS[f"{_number} versions"] = (_before, [version(_number, _query, schema_id=0), current()])
SCENARIOS["back to the oldest of many"] = ("12 versions", [current(3), version(13, TWO, schema_id=0), current()])

REFUSED: Scenarios = {
    "another uuid": ("created", [act("assign-uuid", uuid="11111111-7681-40c8-86dc-e36561f83385")]),
    "older format": ("created", [act("upgrade-format-version", format_version=0)]),
    "newer format": ("created", [act("upgrade-format-version", format_version=2)]),
    "schema that isn't there": ("created", [version(2, TWO, schema_id=5), current()]),
    "last schema of none": ("created", [version(2, TWO), current()]),
    "version that isn't there": ("created", [current(9)]),
    "last version of none": ("created", [current()]),
    "dialect twice": ("created", [version(2, "trino: SELECT 1", "Trino: SELECT 2", schema_id=0)]),
    "dialect dropped": ("second dialect", [version(3, THREE, schema_id=0), current()]),
    "no history": ("created", [act("set-properties", updates={"version.history.num-entries": "0"})]),
}
