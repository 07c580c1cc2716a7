"""`duckicelake explain`: what people read at a terminal, and what programs read."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.cli.test_commands import lake, serving
from tests.support.commands import run_here

__all__ = ["lake"]

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "region_of_the_customer", "type": "string", "required": False},
    ],
}
SPEC = {"fields": [{"source-id": 2, "field-id": 1000, "name": "region_of_the_customer", "transform": "identity"}]}


@pytest.fixture
def filled(lake: Path) -> Path:
    """A lake with ns.t: two partitions, four files."""
    with serving(lake) as served, httpx.Client(base_url=f"{served.uri}/v1", timeout=60) as http:
        http.post("namespaces", json={"namespace": ["ns"]}).raise_for_status()
        made = {
            "name": "t",
            "schema": SCHEMA,
            "partition-spec": SPEC,
            "properties": {"ducklake.data-inlining-row-limit": "0"},
        }
        http.post("namespaces/ns/tables", json=made).raise_for_status()
        for region in ("south", "north"):
            for number in range(2):
                rows = [{"id": number + 10 * n, "region_of_the_customer": region} for n in range(5)]
                http.post("namespaces/ns/tables/t/rows", json=rows).raise_for_status()
    return lake


def test_a_terminal_shows_tables_and_programs_get_json(filled: Path) -> None:
    where = "region_of_the_customer = 'north' AND id = 21 AND length(region_of_the_customer) > 2"
    shown = run_here("explain", "ns.t", "--where", where, "--lake", str(filled))
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["ns.t", "files", "size", "rows"]
    assert re.fullmatch(r"whole table +4 +[0-9.]+ kB +20", lines[1].strip())
    assert any(re.match(r"region_of_the_customer=north +2 +2 ", line) for line in lines)
    assert "Partitions read: 1 of 2." in lines
    assert "Prunes nothing, as no statistics decide it: LENGTH(region_of_the_customer) > 2" in lines
    assert any(line.startswith("Worth sorting by id: ") for line in lines)
    found = json.loads(run_here("explain", "ns.t", "--where", where, "--json", "--lake", str(filled)).stdout)
    assert (found["table"], found["read"]["files"], found["total"]["rows"]) == ("ns.t", 2, 20)
    assert found["partitions"][0]["partition"] == {"region_of_the_customer": "north"}
    narrow = run_here("explain", "ns.t", "--where", where, "--lake", str(filled), COLUMNS="30", FORCE_COLOR="1")
    words = {word for line in lines for word in line.split()}
    assert "\x1b[" in narrow.stdout, "as on a terminal"
    assert set(re.sub(r"\x1b\[[0-9;]*m", "", narrow.stdout).split()) <= words, "no word is broken"
    assert run_here("explain", "ns.t", "--where", "i = 1", "--lake", str(filled)).returncode == 2
    older = run_here("explain", "ns.t", "--at", "main", "--json", "--lake", str(filled))
    assert json.loads(older.stdout)["read"]["files"] == 4


def test_a_filter_that_no_row_passes_is_said_to_be_one(filled: Path) -> None:
    printed = run_here("explain", "ns.t", "--lake", str(filled), "--where", "id = NULL").stdout
    assert re.search(r"pruned, as no row can pass +4", printed), printed
    assert "pruned by partition" not in printed
