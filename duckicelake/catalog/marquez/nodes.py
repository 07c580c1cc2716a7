"""Graphs as Marquez's API has them."""

from typing import Any

from duckicelake.catalog.marquez.shapes import MarquezDataset, MarquezJob, Shape


class MarquezEdge(Shape):
    """From node to node."""

    origin: str
    destination: str


class MarquezNode(Shape):
    """A dataset, a job or a field, with what leads to it and from it."""

    id: str
    type: str
    data: MarquezDataset | MarquezJob | dict[str, Any]
    in_edges: tuple[MarquezEdge, ...]
    out_edges: tuple[MarquezEdge, ...]


class MarquezGraph(Shape):
    """A graph."""

    graph: tuple[MarquezNode, ...]
