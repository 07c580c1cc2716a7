"""What the console does to a lake. Each is done thrice: by button, by command, by request."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.console.conftest import ShownLake, field
from tests.support.browsers import Visit

pytestmark = pytest.mark.console
HOWS = ("button", "command", "request")
_numbers = count(1)
COLUMNS = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        field(1, "id", "int", required=True),
        field(2, "note", "string"),
        field(3, "place", {"type": "struct", "fields": [field(4, "city", "string")]}),
    ],
}


@dataclass(frozen=True)
class Act:
    """An act as its user does it: what it is called in the menu, what is typed, the button, and what it comes to."""

    menu: str
    fill: Callable[[Locator], None]
    verb: str
    check: Callable[[ShownLake, str], None]


@pytest.fixture(scope="module")
def catalog(lake: ShownLake) -> RestCatalog:
    loaded = load_catalog("rest", type="rest", uri=lake.uri)
    assert isinstance(loaded, RestCatalog)
    return loaded


@pytest.fixture
def space(lake: ShownLake) -> str:
    """A namespace of the test's own, with a table of two snapshots, of two rows and of one, and a view."""
    made = f"acts{next(_numbers)}"
    lake.ask("POST", "/v1/namespaces", {"namespace": [made], "properties": {"owner": "ann"}})
    properties = {"owner": "ann", "old": "1"}
    table = {"name": "t", "schema": COLUMNS, "properties": properties}
    lake.ask("POST", f"/v1/namespaces/{made}/tables", table)
    for rows in ([{"id": 1}, {"id": 2}], [{"id": 3}]):
        lake.ask("POST", f"/v1/namespaces/{made}/tables/t/rows", rows)
        lake.ask("POST", f"/v1/namespaces/{made}/tables/t/rows/flush")
        metadata(lake, made)
    representation = {"type": "sql", "sql": "SELECT id FROM t", "dialect": "duckdb"}
    version = {"version-id": 1, "schema-id": 0, "timestamp-ms": 1, "summary": {}, "default-namespace": [made]}
    schema = {"type": "struct", "schema-id": 0, "fields": [field(1, "id", "int")]}
    view = {"name": "v", "schema": schema, "view-version": version | {"representations": [representation]}}
    lake.ask("POST", f"/v1/namespaces/{made}/views", view | {"properties": {}})
    return made


def metadata(lake: ShownLake, space: str, name: str = "t") -> Any:
    return lake.ask("GET", f"/v1/namespaces/{space}/tables/{name}")["metadata"]


def view_metadata(lake: ShownLake, space: str, name: str = "v") -> Any:
    return lake.ask("GET", f"/v1/namespaces/{space}/views/{name}")["metadata"]


def properties_of(lake: ShownLake, space: str) -> Any:
    return lake.ask("GET", f"/v1/namespaces/{space}")["properties"]


def has(lake: ShownLake, kind: str, space: str) -> list[str]:
    return [one["name"] for one in lake.ask("GET", f"/v1/namespaces/{space}/{kind}")["identifiers"]]


def query(lake: ShownLake, sql: str) -> list[Any]:
    answer = httpx.post(f"{lake.uri}/sql/v1/query", json={"sql": sql, "namespace": ["main"]}, timeout=60)
    return [json.loads(line) for line in answer.raise_for_status().text.splitlines()]


def run_shell(text: str, folder: Path) -> str:
    """Run what a dialog shows, as it was copied, with nothing known of the lake."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text],
        env=kept | {"PATH": path, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert '"error":{' not in done.stdout.replace(" ", ""), f"{text}\n{done.stdout}"
    return done.stdout


def carry_out(page: Page, how: str, verb: str, folder: Path) -> None:
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name=verb, exact=True)
    expect(button).to_be_enabled()
    if how == "button":
        button.click()
        expect(dialog.get_by_role("button", name="Cancel")).to_have_count(0)
        return
    dialog.get_by_text("The same by command").click()
    text = dialog.get_by_label(f"the {how}", exact=True).inner_text()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    run_shell(text, folder)


def choose(page: Page, menu: str, act: str) -> Locator:
    page.locator("summary", has_text=menu).click()
    page.locator(".menu[open]").get_by_role("button", name=act, exact=True).click()
    return page.get_by_role("dialog")


def nothing(_: Locator) -> None: ...


def fill_columns(dialog: Locator) -> None:
    dialog.get_by_label("Name of column 2", exact=True).fill("remark")
    dialog.get_by_label("Comment of column 2", exact=True).fill("it's one")
    dialog.get_by_label("Type of column 1", exact=True).fill("long")
    dialog.get_by_label("Not null of column 1", exact=True).uncheck()
    dialog.get_by_role("button", name="Add a column inside of column 3").click()
    dialog.get_by_label("Name of column 3.2").fill("zip`code")
    dialog.get_by_label("Type of column 3.2").fill("decimal(9,2)")
    dialog.get_by_role("button", name="Remove column 3.1").click()
    dialog.get_by_role("button", name="Add a column", exact=True).click()
    dialog.get_by_label("Name of column 4").fill("tags & more")
    dialog.get_by_label("Type of column 4").fill("map<string, list<struct<a b: int>>>")
    expect(dialog.get_by_text("There is no type b")).to_be_visible()
    dialog.get_by_label("Type of column 4").fill("map<string, list<struct<a: int, `b c`: timestamptz>>>")
    dialog.get_by_role("button", name="Move column 4 up").click()
    expect(dialog.get_by_label("What will change")).to_contain_text("rename column note to remark")


def check_columns(lake: ShownLake, space: str) -> None:
    schema = load(lake, space).schema()
    assert [(one.name, one.required, one.doc or None) for one in schema.fields] == [
        ("id", False, None),
        ("remark", False, "it's one"),
        ("tags & more", False, None),
        ("place", False, None),
    ]
    assert str(schema.find_field("id").field_type) == "long"
    assert str(schema.find_field("place.zip`code").field_type) == "decimal(9, 2)"
    assert str(schema.find_field("tags & more.value.element.b c").field_type) == "timestamptz"
    assert schema.find_field("id").field_id == 1
    assert schema.find_field("remark").field_id == 2


def load(lake: ShownLake, space: str) -> Table:
    return load_catalog("rest", type="rest", uri=lake.uri).load_table((space, "t"))


def fill_arrangement(dialog: Locator) -> None:
    for name in ("Partitioned by", "Sorted by"):
        dialog.get_by_role("group", name=name).get_by_role("button", name="Add a field").click()
    dialog.get_by_label("Transform 1 of Partitioned by").select_option("bucket")
    dialog.get_by_label("Buckets 1 of Partitioned by").fill("4")
    dialog.get_by_label("Column 1 of Sorted by").select_option(label="place.city")
    dialog.get_by_label("Direction 1").select_option("desc")


def check_arrangement(lake: ShownLake, space: str) -> None:
    table = load(lake, space)
    assert [(one.source_id, str(one.transform), one.name) for one in table.spec().fields] == [
        (1, "bucket[4]", "id_bucket")
    ]
    (order,) = table.sort_order().fields
    assert (order.source_id, order.direction.value, order.null_order.value) == (4, "desc", "nulls-first")


def fill_properties(dialog: Locator) -> None:
    expect(dialog.get_by_label("Name 1", exact=True)).to_be_visible()
    names = [one.input_value() for one in dialog.get_by_label(re.compile(r"^Name \d+$")).all()]
    dialog.get_by_label(f"Value {names.index('owner') + 1}", exact=True).fill("bob=1 'x'")
    if "old" in names:
        dialog.get_by_role("button", name=f"Remove property {names.index('old') + 1}", exact=True).click()
    dialog.get_by_role("button", name="Add a property").click()
    last = dialog.get_by_label(re.compile(r"^Name \d+$")).count()
    dialog.get_by_label(f"Name {last}", exact=True).fill("a key")
    dialog.get_by_label(f"Value {last}", exact=True).fill("<b>1</b>")


def check_properties(found: Any) -> None:
    assert (found["owner"], found["a key"], "old" in found) == ("bob=1 'x'", "<b>1</b>", False)


def fill_comment(dialog: Locator) -> None:
    dialog.get_by_label("Comment").fill('-it\'s "new"\n<b>שלום</b>')


COMMENT = '-it\'s "new"\n<b>שלום</b>'


def fill_constraint(dialog: Locator) -> None:
    dialog.get_by_label("Name", exact=True).fill("positive")
    dialog.get_by_label("Condition").fill("id > 0")


def fill_tag(dialog: Locator) -> None:
    dialog.get_by_label("Name", exact=True).fill("main")
    expect(dialog.get_by_text("There is a branch or tag of this name.")).to_be_visible()
    dialog.get_by_label("Name", exact=True).fill("end of year")


def fill_clone(dialog: Locator) -> None:
    name = dialog.get_by_label("Name of the clone, with its namespace")
    name.fill(f"{name.input_value().split('.')[0]}.copy~.1")
    dialog.get_by_label("With its history").check()


def fill_restore(dialog: Locator) -> None:
    expect(dialog.get_by_text("0 rows would come back, 1 would go")).to_be_visible()
    expect(dialog.get_by_role("img", name="Rows now 3, then 2")).to_be_visible()


def fill_expire(dialog: Locator) -> None:
    expect(dialog.get_by_text(re.compile("0 snapshots would go, [2-9] stay."))).to_be_visible()
    dialog.get_by_label("Older than, in days").fill("0")
    expect(dialog.get_by_text(re.compile("[1-9] snapshots? would go, 1 stay."))).to_be_visible()


def fill_rename(dialog: Locator) -> None:
    name = dialog.get_by_label(re.compile("^New name"))
    name.fill(f"{name.input_value()}~.2")


def fill_drop(word: str) -> Callable[[Locator], None]:
    def fill(dialog: Locator) -> None:
        expect(dialog.get_by_role("button", name="Drop", exact=True)).to_be_disabled()
        dialog.get_by_label(re.compile("^Type")).fill(word)

    return fill


def expects(check: Callable[[ShownLake, str], object], expected: object) -> Callable[[ShownLake, str], None]:
    def run(lake: ShownLake, space: str) -> None:
        assert check(lake, space) == expected

    return run


TABLE_ACTS = {
    "comment": Act(
        "Edit the comment",
        fill_comment,
        "Save",
        expects(lambda lake, space: metadata(lake, space)["properties"]["comment"], COMMENT),
    ),
    "columns": Act("Edit columns", fill_columns, "Save", check_columns),
    "arrangement": Act("Edit partitions and order", fill_arrangement, "Save", check_arrangement),
    "properties": Act(
        "Edit properties",
        fill_properties,
        "Save",
        lambda lake, space: check_properties(metadata(lake, space)["properties"]),
    ),
    "constraint": Act(
        "Add a constraint",
        fill_constraint,
        "Add",
        expects(lambda lake, space: metadata(lake, space)["properties"]["constraint.positive"], "id > 0"),
    ),
    "tag": Act(
        "Make a branch or tag",
        fill_tag,
        "Make it",
        expects(lambda lake, space: metadata(lake, space)["refs"]["end of year"]["type"], "tag"),
    ),
    "flush": Act("Write rows to files", nothing, "Write", lambda *_: None),
    "clone": Act(
        "Clone",
        fill_clone,
        "Clone",
        expects(lambda lake, space: query(lake, f'SELECT count(*) AS n FROM {space}."copy.1"'), [{"n": 3}]),
    ),
    "restore": Act(
        "Restore",
        fill_restore,
        "Restore",
        expects(
            lambda lake, space: query(lake, f"SELECT id FROM {space}.t ORDER BY id"),
            [{"id": 1}, {"id": 2}],
        ),
    ),
    "expire": Act(
        "Expire snapshots",
        fill_expire,
        "Expire",
        expects(lambda lake, space: len(metadata(lake, space)["snapshots"]), 1),
    ),
    "protect": Act(
        "Protect",
        nothing,
        "Protect",
        expects(lambda lake, space: metadata(lake, space)["properties"]["ducklake.protected"], "true"),
    ),
    "rename": Act("Rename", fill_rename, "Rename", expects(lambda lake, space: has(lake, "tables", space), ["t.2"])),
    "drop": Act("Drop", fill_drop("t"), "Drop", expects(lambda lake, space: has(lake, "tables", space), [])),
}
VIEW_ACTS = {
    "comment": Act(
        "Edit the comment",
        fill_comment,
        "Save",
        expects(lambda lake, space: view_metadata(lake, space)["properties"]["comment"], COMMENT),
    ),
    "query": Act(
        "Edit the query",
        lambda dialog: write_query(dialog, 'SELECT id, id + 1 AS "n\'ext" FROM t;'),
        "Save",
        expects(lambda lake, space: query(lake, f"FROM {space}.v ORDER BY id LIMIT 1"), [{"id": 1, "n'ext": 2}]),
    ),
    "protect": Act(
        "Protect",
        nothing,
        "Protect",
        expects(lambda lake, space: view_metadata(lake, space)["properties"]["ducklake.protected"], "true"),
    ),
    "rename": Act("Rename", fill_rename, "Rename", expects(lambda lake, space: has(lake, "views", space), ["v.2"])),
    "drop": Act("Drop", fill_drop("v"), "Drop", expects(lambda lake, space: has(lake, "views", space), [])),
}
NAMESPACE_ACTS = {
    "comment": Act(
        "Edit the comment",
        fill_comment,
        "Save",
        expects(lambda lake, space: properties_of(lake, space)["comment"], COMMENT),
    ),
    "properties": Act(
        "Edit properties",
        fill_properties,
        "Save",
        lambda lake, space: check_properties(properties_of(lake, space)),
    ),
    "protect": Act(
        "Protect",
        nothing,
        "Protect",
        expects(lambda lake, space: properties_of(lake, space)["ducklake.protected"], "true"),
    ),
    "rename": Act(
        "Rename",
        fill_rename,
        "Rename",
        expects(lambda lake, space: has(lake, "tables", f"{space}.2"), ["t"]),
    ),
}


def write_query(dialog: Locator, sql: str) -> None:
    field = dialog.get_by_label(re.compile("^Query, in DuckDB"))
    field.fill("SELECT nope FROM t")
    dialog.get_by_role("button", name="Check").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nope")
    field.fill(sql)
    dialog.get_by_role("button", name="Check").click()
    expect(dialog.get_by_role("status")).to_contain_text("It has")


def list_cases(acts: dict[str, Act]) -> list[Any]:
    return [pytest.param(act, how, id=f"{name}-{how}") for name, act in acts.items() for how in HOWS]


@pytest.mark.parametrize(("act", "how"), list_cases(TABLE_ACTS))
def test_act_on_a_table(lake: ShownLake, window: Visit, space: str, tmp_path: Path, act: Act, how: str) -> None:
    window.page.goto(f"{lake.uri}/ui/w/duckicelake/tables/{space}.t")
    act.fill(choose(window.page, "Change", act.menu))
    carry_out(window.page, how, act.verb, tmp_path)
    act.check(lake, space)


@pytest.mark.parametrize(("act", "how"), list_cases(VIEW_ACTS))
def test_act_on_a_view(lake: ShownLake, window: Visit, space: str, tmp_path: Path, act: Act, how: str) -> None:
    window.page.goto(f"{lake.uri}/ui/w/duckicelake/views/{space}.v")
    act.fill(choose(window.page, "Change", act.menu))
    window.complaints.clear()
    carry_out(window.page, how, act.verb, tmp_path)
    act.check(lake, space)


@pytest.mark.parametrize(("act", "how"), list_cases(NAMESPACE_ACTS))
def test_act_on_a_namespace(lake: ShownLake, window: Visit, space: str, tmp_path: Path, act: Act, how: str) -> None:
    window.page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}")
    act.fill(choose(window.page, "Change", act.menu))
    carry_out(window.page, how, act.verb, tmp_path)
    act.check(lake, space)
    if act.verb == "Rename" and how == "button":
        expect(window.page.get_by_role("dialog", name="Views to make again")).to_contain_text(f"{space}.2.v")
        window.page.get_by_role("button", name="Close").click()
        expect(window.page.get_by_role("heading", name=f"{space}.2")).to_be_visible()


@pytest.mark.parametrize("how", HOWS)
def test_empty_namespace_is_dropped(lake: ShownLake, window: Visit, space: str, tmp_path: Path, how: str) -> None:
    page = window.page
    lake.ask("POST", "/v1/namespaces", {"namespace": [space, "empty"], "properties": {}})
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}.empty")
    fill_drop("empty")(choose(page, "Change", "Drop"))
    carry_out(page, how, "Drop", tmp_path)
    assert not lake.ask("GET", f"/v1/namespaces?parent={space}")["namespaces"]


@pytest.mark.parametrize("how", HOWS)
def test_table_is_purged_and_brought_back(lake: ShownLake, window: Visit, space: str, tmp_path: Path, how: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/{space}.t")
    dialog = choose(page, "Change", "Drop")
    dialog.get_by_label("Purge").check()
    fill_drop("t")(dialog)
    carry_out(page, how, "Drop", tmp_path)
    (dropped,) = lake.ask("GET", f"/v1/dropped?namespace={space}")["dropped"]
    assert dropped["purge-requested"]
    page.goto(f"{lake.uri}/ui/w/duckicelake/dropped")
    page.get_by_role("row", name=f"{space}.t").get_by_role("button", name="Bring back").click()
    page.get_by_role("dialog").get_by_label("Name").fill("a.gain")
    carry_out(page, how, "Bring back", tmp_path)
    assert len(metadata(lake, space, "a.gain")["snapshots"]) == 2


@pytest.mark.parametrize("how", HOWS)
def test_namespace_is_made(lake: ShownLake, window: Visit, space: str, tmp_path: Path, how: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}")
    dialog = choose(page, "New", "New namespace")
    dialog.get_by_label("Name").fill(f"{space}.a~.b")
    dialog.get_by_label("Comment").fill("it's new")
    carry_out(page, how, "Create", tmp_path)
    assert lake.ask("GET", f"/v1/namespaces?parent={space}")["namespaces"] == [[space, "a.b"]]
    assert properties_of(lake, f"{space}%1Fa.b")["comment"] == "it's new"


TYPES = (
    *("boolean", "int", "long", "float", "double", "decimal(38, 10)", "date", "time", "timestamp", "timestamptz"),
    *("string", "uuid", "binary", "list<int>", "map<string, double>", "timestamp_ns", "timestamptz_ns"),
    "struct<`a b`: list<string>, c: map<int, string>>",
)


@pytest.mark.parametrize("how", HOWS)
def test_table_of_all_types_is_made(
    lake: ShownLake, window: Visit, space: str, tmp_path: Path, how: str, catalog: RestCatalog
) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=table")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name, with its namespace").fill(f"{space}.every~.type")
    dialog.get_by_label("Comment", exact=True).fill("all of them")
    dialog.get_by_label("Format").select_option("3")
    dialog.get_by_label("Not null of column 1", exact=True).check()
    for place, type_ in enumerate(TYPES, 2):
        dialog.get_by_role("button", name="Add a column", exact=True).click()
        dialog.get_by_label(f"Name of column {place}", exact=True).fill(f"c {place}'s")
        dialog.get_by_label(f"Type of column {place}", exact=True).fill(type_)
    dialog.get_by_label("Default of column 3", exact=True).fill("-7")
    dialog.get_by_label("Comment of column 3", exact=True).fill("it's -7")
    for name in ("Partitioned by", "Sorted by"):
        dialog.get_by_role("group", name=name).get_by_role("button", name="Add a field").click()
    dialog.get_by_label("Column 1 of Partitioned by").select_option(label="c 11's")
    dialog.get_by_label("Transform 1 of Partitioned by").select_option("day")
    dialog.get_by_label("Properties").fill("owner=ann=1\nx=2")
    carry_out(page, how, "Create", tmp_path)
    found = metadata(lake, space, "every.type")
    assert found["format-version"] == 3
    assert (found["properties"]["comment"], found["properties"]["owner"]) == ("all of them", "ann=1")
    table = catalog.load_table((space, "every.type"))
    assert len(table.schema().fields) == len(TYPES) + 1
    assert table.schema().find_field("id").required
    standard = table.schema().find_field("c 3's")
    assert (standard.initial_default, standard.doc) == (-7, "it's -7")
    assert [str(one.transform) for one in table.spec().fields] == ["day"]
    assert len(table.sort_order().fields) == 1


@pytest.mark.parametrize("how", HOWS)
def test_view_is_made(lake: ShownLake, window: Visit, space: str, tmp_path: Path, how: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in={space}&new=view")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name, with its namespace").fill(f"{space}.made")
    write_query(dialog, "SELECT id, [id] AS ids, {'a': note} AS s FROM t -- all")
    window.complaints.clear()
    carry_out(page, how, "Create", tmp_path)
    assert query(lake, f"SELECT ids FROM {space}.made WHERE id = 1") == [{"ids": [1]}]


REFERENCE_ACTS = {
    "forward": ("Move forward: old", nothing, "Move it"),
    "retention": (
        "How long it is kept: old",
        lambda dialog: dialog.get_by_label("Dropped after, in days").fill("90"),
        "Save",
    ),
    "drop": ("Drop: old", fill_drop("old"), "Drop"),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", REFERENCE_ACTS)
def test_branch_changes(lake: ShownLake, window: Visit, space: str, tmp_path: Path, name: str, how: str) -> None:
    page, (act, fill, verb) = window.page, REFERENCE_ACTS[name]
    before = metadata(lake, space)
    now, old = before["current-snapshot-id"], before["snapshots"][0]["snapshot-id"]
    update = {"action": "set-snapshot-ref", "ref-name": "old", "type": "branch", "snapshot-id": old}
    lake.ask("POST", f"/v1/namespaces/{space}/tables/t", {"requirements": [], "updates": [update]})
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/{space}.t?page=snapshots")
    page.get_by_role("button", name=act).click()
    fill(page.get_by_role("dialog"))
    carry_out(page, how, verb, tmp_path)
    ref = metadata(lake, space)["refs"].get("old")
    expected: Any = {
        "forward": {"snapshot-id": now, "type": "branch"},
        "retention": {"snapshot-id": old, "type": "branch", "max-ref-age-ms": 90 * 86_400_000},
        "drop": None,
    }
    assert ref == expected[name]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("act", ["Verify", "Drop"])
def test_constraint_is_verified_and_dropped(
    lake: ShownLake, window: Visit, space: str, tmp_path: Path, act: str, how: str
) -> None:
    page = window.page
    updates = {"constraint.short": "length(note) < 9 OR note IS NULL"}
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": updates}]}
    lake.ask("POST", f"/v1/namespaces/{space}/tables/t", body)
    lake.ask(
        "POST", f"/v1/namespaces/{space}/tables/t", {"requirements": [], "updates": [mark_unverified(lake, space)]}
    )
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/{space}.t")
    page.get_by_role("region", name="Constraints").get_by_role("button", name=act, exact=True).click()
    if act == "Verify":
        expect(page.get_by_text("None of 3 rows violates it.")).to_be_visible()
    carry_out(page, how, {"Verify": "Mark as verified", "Drop": "Drop"}[act], tmp_path)
    found = metadata(lake, space)["properties"]
    assert "constraint-unverified.short" not in found
    assert ("constraint.short" in found) == (act == "Verify")


def mark_unverified(lake: ShownLake, space: str) -> dict[str, object]:
    snapshot = str(metadata(lake, space)["current-snapshot-id"])
    return {"action": "set-properties", "updates": {"constraint-unverified.short": snapshot}}
