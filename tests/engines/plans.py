"""How many scans a served lake has planned, by which a test knows that it was the server."""

from urllib.request import Request, urlopen

from scripts.demo_job.server import RunningLake


def count_plans(lake: RunningLake) -> int:
    """Return how many scans the server has planned since it started, in all of its workers."""
    with urlopen(Request(f"{lake.uri}/metrics", headers=lake.login()), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("duckicelake_scan_plans"))
