"""MISSING.md says exactly what is refused: no more, no less."""

import ast
import re
from pathlib import Path

from duckicelake.server.routes.catalog import ENDPOINTS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "MISSING.md").read_text()

OPERATIONS = 33
"""The REST specification's operations but GET /v1/config and POST /v1/oauth/tokens, which aren't advertised."""


def refused_features() -> set[str]:
    calls = (
        node
        for path in (ROOT / "duckicelake").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "UnsupportedError"
    )
    return {str(ast.literal_eval(call.args[0])) for call in calls}


def missing_routes() -> set[str]:
    return set(re.findall(r"^- ((?:GET|HEAD|POST|DELETE) /v1/\S+)$", TEXT, re.MULTILINE))


def test_headings_are_the_features_that_the_code_refuses() -> None:
    assert set(re.findall(r"^### `([\w-]+)`$", TEXT, re.MULTILINE)) == refused_features()


def test_missing_routes_and_served_ones_are_the_whole_specification() -> None:
    assert not missing_routes() & set(ENDPOINTS)
    assert len(missing_routes() | set(ENDPOINTS)) == OPERATIONS
