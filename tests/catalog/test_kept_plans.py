"""What is kept of plans: filters and answers, as long as they are true, and no more of them than fits."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duckicelake.catalog import scan_explanation, scan_pages
from duckicelake.catalog.context.scan_cache import SizedCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_explanation import ExplainQuery, explain_table_scan
from duckicelake.catalog.scan_plans import fetch_scan_tasks, plan_table_scan
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.rest import PlanTableScanRequest
from tests.support.client import Client, delete

ROW_FILTER = {"type": "gt-eq", "term": "id", "value": 0}
PYICEBERG, JAVA = "PyIceberg 0.12.0", "Apache Iceberg 1.12.0"


def plan(services: Services, wanted: Any = ROW_FILTER, agent: str = JAVA, **more: Any) -> dict[str, Any]:
    body = json.dumps({"filter": wanted, **more}).encode()
    request = PlanTableScanRequest.model_validate_json(body)
    answer: dict[str, Any] = json.loads(plan_table_scan(services, ("ns",), "t", request, body, agent))
    return answer


@pytest.fixture
def appended(client: Client) -> Client:
    client.create()
    for number in range(4):
        client.append((number, f"n{number}"))
    return client


def test_a_repeated_plan_is_answered_without_looking_at_files(
    services: Services, appended: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(services)
    monkeypatch.setattr(scan_pages.PageFinder, "find_pages", None)
    assert plan(services) == first
    assert len(first["file-scan-tasks"]) == 4


def test_a_kept_answer_is_of_its_version_request_and_client(services: Services, appended: Client) -> None:
    assert len(plan(services)["file-scan-tasks"]) == 4
    appended.append((9, "n9"))
    found = plan(services)
    assert len(found["file-scan-tasks"]) == 5
    path = found["file-scan-tasks"][0]["data-file"]["file-path"]
    appended.commit(delete(appended.metadata(), (path, 0)))
    assert [task.get("delete-file-references") for task in plan(services)["file-scan-tasks"]].count([0]) == 1
    assert len(plan(services, {**ROW_FILTER, "value": 3})["file-scan-tasks"]) == 2
    with_bounds = plan(services, **{"stats-fields": ["id"]})["file-scan-tasks"][0]["data-file"]
    assert "lower-bounds" in with_bounds
    assert plan(services, agent=PYICEBERG)["file-scan-tasks"]


def test_a_name_that_changed_columns_is_looked_up_anew(services: Services, appended: Client) -> None:
    assert len(plan(services, {**ROW_FILTER, "value": 3})["file-scan-tasks"]) == 1
    schema = appended.metadata()["schemas"][-1]
    fields = [{**field, "name": {"id": "was_id"}.get(field["name"], field["name"])} for field in schema["fields"]]
    update = {"action": "add-schema", "schema": {**schema, "schema-id": 1, "fields": fields}, "last-column-id": 2}
    appended.commit({"requirements": [], "updates": [update, {"action": "set-current-schema", "schema-id": -1}]})
    renamed = {**ROW_FILTER, "term": "was_id", "value": 3}
    assert len(plan(services, renamed)["file-scan-tasks"]) == 1
    with pytest.raises(InvalidRequestError, match="Cannot find field 'nowhere'"):
        plan(services, {**ROW_FILTER, "term": "nowhere"})


def test_a_long_filter_is_bound_once_for_all_of_its_pages(
    services: Services, appended: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_pages, "PAGE_TASKS", 1)
    values = [*range(10**6, 10**6 + 5_000), 0, 1, 2, 3]
    found = plan(services, {"type": "in", "term": "id", "values": values})
    assert len(found["plan-tasks"]) == 3
    monkeypatch.setattr(scan_pages, "bind_scan_filter", None)
    with ThreadPoolExecutor(3) as threads:
        pages = threads.map(lambda task: fetch_scan_tasks(services, ("ns",), "t", task, JAVA), found["plan-tasks"])
        assert [len(json.loads(page)["file-scan-tasks"]) for page in pages] == [1, 1, 1]


def test_the_values_used_last_are_kept_up_to_a_size() -> None:
    cache: SizedCache[str] = SizedCache(100)
    for key in "abc":
        cache.put(key, key, 40)
        assert cache.get("a") == "a"
    assert [cache.get(key) for key in "abc"] == ["a", None, "c"]
    cache.put("large", "large", 51)
    assert cache.get("large") is None
    SizedCache[str](0).put("a", "a", 1)


def test_a_scan_of_too_many_files_is_not_explained(
    services: Services, appended: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_explanation, "MAX_EXPLAINED_FILES", 3)
    with pytest.raises(InvalidRequestError, match="up to 3 files are explained, and this one is of 4: plan it"):
        explain_table_scan(services, ("ns",), "t", ExplainQuery("id = 1"))
