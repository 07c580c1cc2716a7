"""Walks through a graph, and the graph as text of other programs."""

import random
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

import pytest

from duckicelake.lineage.graph.export import format_dot, format_mermaid, read_facet_schema
from duckicelake.lineage.graph.model import (
    ColumnEdge,
    GraphEdge,
    GraphJob,
    GraphNode,
    GraphWalk,
    LineageGraphView,
    is_same_or_nested,
)
from duckicelake.lineage.graph.parsed_event import read_engine, read_facet_word

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Steps:
    """Edges between numbers, and how often they were asked for."""

    def __init__(self, *edges: tuple[int, int]) -> None:
        self.edges = edges
        self.asked = 0

    def __call__(self, places: Collection[int], limit: int) -> Iterator[tuple[int, int]]:
        self.asked += 1
        found = [(source, target) for source, target in self.edges if source in places]
        return iter(found[:limit])


def distances(steps: Steps, depth: int = 20, most: int = 100) -> tuple[dict[int, int], bool]:
    walk: GraphWalk[int] = GraphWalk()
    walk.go([0], steps, depth, most, 1)
    return walk.distances, walk.is_truncated


def test_walk_finds_the_shortest_way_and_ends_in_circles() -> None:
    steps = Steps((0, 1), (1, 2), (0, 2), (2, 0), (2, 3), (3, 3))
    assert distances(steps) == ({0: 0, 1: 1, 2: 1, 3: 2}, False)
    assert steps.asked == 3


def test_walk_goes_as_deep_as_asked() -> None:
    steps = Steps(*((number, number + 1) for number in range(10)))
    assert distances(steps, depth=3) == ({0: 0, 1: 1, 2: 2, 3: 3}, False)


@pytest.mark.parametrize(("most", "is_truncated"), [(1, True), (5, True), (10, True), (11, False), (12, False)])
def test_walk_says_whether_there_is_more_than_there_is_room_for(most: int, is_truncated: bool) -> None:
    steps = Steps(*((0, number) for number in range(1, 11)))
    found, truncated = distances(steps, most=most)
    assert (len(found), truncated) == (min(most, 11), is_truncated)


def test_walk_both_ways_keeps_what_is_nearest_first() -> None:
    walk: GraphWalk[int] = GraphWalk()
    walk.go([0], Steps((0, 1), (1, 2)), 5, 100, -1)
    walk.go([0], Steps((0, 2), (2, 3)), 5, 100, 1)
    assert walk.distances == {0: 0, 1: -1, 2: -2, 3: 2}


def test_walks_are_as_a_plain_search_finds_them() -> None:
    chance = random.Random(5)
    for _ in range(50):
        edges = tuple((chance.randrange(15), chance.randrange(15)) for _ in range(chance.randrange(40)))
        expected, frontier, depth = {0: 0}, {0}, 0
        while frontier:
            depth += 1
            frontier = {to for since, to in edges if since in frontier} - expected.keys()
            expected |= dict.fromkeys(frontier, depth)
        assert distances(Steps(*edges)) == (expected, False)


@pytest.mark.parametrize(
    ("asked", "field", "expected"),
    [("a", "a", True), ("a", "a.b", True), ("a.b", "a", True), ("a", "ab", False), ("a.b", "a.c", False)],
)
def test_what_holds_of_a_struct_holds_of_its_fields(asked: str, field: str, expected: bool) -> None:
    assert is_same_or_nested(asked, field) is expected


def graph(name: str, job: str = "job", confidence: float | None = None) -> LineageGraphView:
    nodes = (
        GraphNode(1, "file", "/x", "TABLE", ("ns", name), None, NOW, ()),
        GraphNode(2, "kafka://b", name, "DATASET", None, None, NOW, (), columns=("a",)),
    )
    column = ColumnEdge("a", "", "INDIRECT", "FILTER", None, False, None)
    edge = GraphEdge(2, 1, GraphJob("tests", job), NOW, NOW, confidence, columns=(column,))
    return LineageGraphView(1, None, nodes, (edge,), False)


def test_graphviz_has_boxes_for_tables_and_dashes_for_guesses() -> None:
    text = format_dot(graph("orders", confidence=0.5))
    assert '  n1 [label="ns.orders", shape=box, penwidth=2];' in text
    assert '  n2 -> n1 [label="job\\na → every row (FILTER)", style=dashed];' in text


def test_mermaid_has_a_line_for_each_edge() -> None:
    assert format_mermaid(graph("orders")).splitlines() == [
        "flowchart LR",
        '  n1["ns.orders"]',
        '  n2["orders<br/>a"]',
        '  n2 -->|"job<br/>a → every row (FILTER)"| n1',
        "  style n1 stroke-width:3px",
    ]


@pytest.mark.parametrize("name", ['"];rm', "a\\", "a\\n", "\x1b[31m", "<script>", "]|(end", "a\nb", "#35;", "`${x}`"])
def test_names_cant_leave_their_strings(name: str) -> None:
    for line in format_dot(graph(name, job=name)).splitlines()[3:-1]:
        escaped = line.replace("\\\\", "").replace('\\"', "")
        assert escaped.count('"') == 2
    for line in format_mermaid(graph(name, job=name)).splitlines()[1:-1]:
        assert line.count('"') == 2
        assert "<script" not in line
        assert "\x1b" not in line


@pytest.mark.parametrize("name", ["../graph", "", "x", "x" * 300, "DUCKICELAKE_TABLE", "schemas/duckicelake_table"])
def test_schemas_are_those_of_our_facets_alone(name: str) -> None:
    assert read_facet_schema(name) is None
    assert read_facet_schema("duckicelake_inferred") is not None


@pytest.mark.parametrize(
    ("facet", "said"),
    [
        (None, None),
        ([], None),
        ({"name": 1}, None),
        ({"name": "spark"}, "spark"),
        ({"name": "spark", "version": "unknown"}, "spark"),
        ({"name": "spark", "version": "4.0.1"}, "spark 4.0.1"),
    ],
)
def test_engine_is_reported_as_far_as_it_is_known(facet: object, said: str | None) -> None:
    assert read_engine(facet) == said
    assert read_facet_word({"x": facet}, "x", "nothing") is None
