"""The Grafana dashboard asks for exactly the metrics that the server exports, by labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duckicelake.catalog.context import meter
from duckicelake.catalog.context.meter import Phase, Retry
from duckicelake.server.telemetry.metrics import Metrics
from duckicelake.settings.forms import PREFIX
from duckicelake.settings.model import Settings
from tests.support.documents import PAGES, ROOT

TEXT = (ROOT / "scripts" / "grafana" / "dashboard.json").read_text()
DASHBOARD: dict[str, Any] = json.loads(TEXT)
OF_PROMETHEUS = {"instance"}
"""Labels that no server gives."""

SELECTOR = re.compile(r"(duckicelake_\w+)\{([^}]*)\}")
BY = re.compile(r"by \(([^)]*)\)")


def expressions() -> Iterator[tuple[str, str]]:
    """(panel's title, PromQL), and the legend's labels as if they were grouped by."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            legend = " ".join(f"by ({label})" for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            yield panel["title"], f"{target['expr']} {legend}"


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """The labels of each series of a server on which everything has happened once."""
    metrics = Metrics(dict)
    metrics.request_started()
    metrics.request_ended("GET", "/v1/config", 200, 0.01)
    metrics.login("login")
    metrics.request_shed()
    metrics.report_received("scan-report")
    metrics.conflict("assert-ref-snapshot-id")
    metrics.caught_up(1)
    metrics.scan_planned(2, 1)
    metrics.job_ended("compact", "done")
    metrics.written_together(1)
    metrics.count_retry("stale_base")
    metrics.lineage_sent("console", "delivered", 1)
    metrics.lineage_waiting("console", 0)
    metrics.feed_behind(0.01)
    metrics.task_failed("follow")
    metrics.upkeep_queued("north", {"queued": 1}, 1.0)
    metrics.upkeep_failed("north", {"compact": 1})
    metrics.warehouse_request("north", 200, 0.01)
    metrics.warehouse_refused("north")
    with metrics.phase("plan"), metrics.store_call("read"):
        pass
    families = text_string_to_metric_families(metrics.render().decode())
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


IN_POSTGRES = set(
    re.findall(r"duckicelake_\w+", "".join(path.read_text() for path in (ROOT / "duckicelake").rglob("*.sql")))
)
"""Names of tables and triggers, which documentation may name, too."""


def asked_for() -> set[str]:
    return {name for _, expression in expressions() for name, _ in SELECTOR.findall(expression)}


def family(series: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", series)


def test_every_metric_is_shown_and_every_shown_one_is_exported(exported: dict[str, set[str]]) -> None:
    assert asked_for() <= set(exported)
    assert set(map(family, exported)) == set(map(family, asked_for()))


def test_documentation_names_metrics_that_are_exported(exported: dict[str, set[str]]) -> None:
    named = [found for text in PAGES.values() for found in re.findall(r"`(duckicelake_\w+)(?:\{([^}]*)\})?`", text)]
    named = [found for found in named if found[0] not in IN_POSTGRES]
    assert len(named) > 5
    for name, matchers in named:
        labels = exported.get(name, exported.get(f"{name}_count"))
        assert labels is not None, name
        assert {each.partition("=")[0] for each in matchers.split(",") if each} <= labels, name


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_expression_uses_labels_of_its_metrics(title: str, expression: str, exported: dict[str, set[str]]) -> None:
    selectors = SELECTOR.findall(expression)
    assert selectors, title
    labels = OF_PROMETHEUS.union(*(exported[name] for name, _ in selectors))
    used = {label for group in BY.findall(expression) for label in group.split(", ")}
    used |= {part.partition("=")[0] for _, matchers in selectors for part in matchers.split(",")}
    assert used <= labels
    assert all('instance=~"$instance"' in matchers for _, matchers in selectors)


def test_quantiles_keep_the_buckets() -> None:
    for title, expression in expressions():
        assert ("histogram_quantile" in expression) == ("_bucket{" in expression), title
        assert "histogram_quantile" not in expression or "by (le" in expression, title


def test_panels_lie_side_by_side_and_have_ids_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) == 23
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_phase_and_reason_is_reported_by_a_use_case() -> None:
    modules = (path for path in (ROOT / "duckicelake").rglob("*.py") if path != Path(meter.__file__))
    counted = set(re.findall(r"\.(?:phase|took|count_retry)\(\"(\w+)\"", "".join(path.read_text() for path in modules)))
    assert counted == {*get_args(Phase), *get_args(Retry)}


def test_settings_and_values_that_texts_name_are_there() -> None:
    assert set(re.findall(rf"{PREFIX}\w+", TEXT)) <= {PREFIX + name.upper() for name in Settings.model_fields}
    named = set(re.findall(r"[a-z_]+(?= grows| near|: DuckDB)", TEXT))
    assert named == {"lock_wait", "critical_section", "serialization"}
    assert named <= {*get_args(Phase), *get_args(Retry)}
