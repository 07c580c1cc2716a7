"""One of two servers ends, is killed or is replaced under load: the other one goes on, and no client loses anything."""

import time
from collections import Counter

import httpx
import pytest

from tests.ha.pair import DRAIN_SECONDS, Pair, nginx_before, pair_of
from tests.ha.traffic import Traffic
from tests.support.replicas import running_cluster
from tests.support.waits import wait_until

FAIL_SECONDS = 2
"""For so long nginx sends nothing to a server that refused a connection (`docs/high-availability.md`)."""
pytestmark = [pytest.mark.ha, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["1", "2"], ids=["one worker", "two workers"])
def servers(request):
    with running_cluster() as postgres, pair_of(postgres.url, DUCKICELAKE_WORKERS=request.param) as pair:
        pair.start()
        yield pair


@pytest.fixture
def pair(servers):
    servers.restore()
    return servers


def traffic_of(pair: Pair, name: str, *, retries: bool = False) -> Traffic:
    traffic = Traffic(pair.uri, [f"{name}{number}_{time.time_ns()}" for number in range(3)], retries)
    traffic.prepare()
    return traffic


def test_rolling_restart_fails_no_request(pair, measured):
    traffic = traffic_of(pair, "rolling")
    with traffic.running():
        for server in pair.servers:
            traffic.wait_for_more()
            server.stop()
            traffic.wait_for_more()
            server.start()
            pair.wait_for(server)
        traffic.wait_for_more()
    measured["answered"] = traffic.count()
    measured["longest request, in seconds"] = round(max(traffic.seconds), 1)
    assert not traffic.failures, traffic.failures[:5]
    traffic.assert_all_is_there(pair.uri)


def test_rolling_restart_behind_nginx_fails_hardly_a_request_and_loses_nothing(pair, measured):
    """It learns that a server ends by a refused connection. One that is made in the very moment is reset."""
    with nginx_before(pair) as uri:
        traffic = Traffic(uri, [f"nginx{number}_{time.time_ns()}" for number in range(3)], retries=True)
        traffic.prepare()
        with traffic.running():
            for server in pair.servers:
                traffic.wait_for_more()
                server.stop()
                traffic.wait_for_more()
                server.start()
                time.sleep(FAIL_SECONDS)
            traffic.wait_for_more()
    measured["answered"] = traffic.count()
    measured["longest request, in seconds"] = round(max(traffic.seconds), 1)
    measured["failures"] = Counter(failure.said[:3] for failure in traffic.failures)
    assert measured["failures"].keys() <= {"502"}
    assert len(traffic.failures) <= traffic.count() / 100
    traffic.assert_all_is_there(pair.uri)


def test_draining_server_says_that_it_ends_and_serves_on_until_it_does(pair):
    first = pair.servers[0]
    with httpx.Client(base_url=first.uri, timeout=30) as client:
        kept = client.get("/healthz")
        assert "connection" not in kept.headers
        assert first.process is not None
        first.process.terminate()
        began = wait_until(lambda: client.get("/readyz").status_code == 503)
        assert began < DRAIN_SECONDS
        refused = client.get("/readyz")
        assert refused.json()["error"]["message"] == "This server ends: send requests to another one"
        served = client.get("/v1/namespaces")
        assert served.status_code == 200
        assert served.headers["connection"] == "close"
        assert first.process.wait(60) == 0
    first.start()


def test_second_signal_ends_the_drain(pair):
    first = pair.servers[0]
    assert first.process is not None
    first.process.terminate()
    wait_until(lambda: httpx.get(f"{first.uri}/readyz", timeout=30).status_code == 503)
    began = time.monotonic()
    first.process.terminate()
    assert first.process.wait(60) == 0
    assert time.monotonic() - began < DRAIN_SECONDS
    first.start()


def test_killed_server_loses_and_doubles_nothing(pair, measured):
    traffic = traffic_of(pair, "killed", retries=True)
    with traffic.running():
        for server in pair.servers:
            traffic.wait_for_more()
            server.kill()
            traffic.wait_for_more()
            server.start()
            pair.wait_for(server)
        traffic.wait_for_more()
    measured["answered"] = traffic.count()
    measured["failures"] = Counter(f"{failure.what}: {failure.said[:60]}" for failure in traffic.failures)
    measured["longest request, in seconds"] = round(max(traffic.seconds), 1)
    measured["seconds without any answer"] = round(traffic.longest_gap(), 1)
    assert len(traffic.failures) < traffic.count() / 10
    traffic.assert_all_is_there(pair.uri)
