"""The chart: Helm renders it, Kubernetes' schemas accept what it renders, and wrong values are named."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.documents import ROOT

pytestmark = [pytest.mark.image]
CHART = ROOT / "deploy" / "chart" / "duckicelake"
VALUES = sorted((Path(__file__).parent / "values").glob("*.yaml"))
PROGRAMS = Path.home() / ".cache" / "duckicelake" / "bin"
VERSION = "1.30"
OPERATORS = ("ExternalSecret", "ServiceMonitor")
"""Kinds whose schemas the validator doesn't bring."""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if not (PROGRAMS / program).exists():
        pytest.skip(f"there is no {program}: scripts/image tools")
    return subprocess.run([PROGRAMS / program, *arguments], capture_output=True, text=True, check=False, timeout=120)


def render(*options: str) -> subprocess.CompletedProcess[str]:
    return run("helm", "template", "lake", str(CHART), "--kube-version", f"{VERSION}.0", *options)


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
@pytest.mark.parametrize("options", [(), ("--is-upgrade",)], ids=["install", "upgrade"])
def test_manifests_are_valid(values: Path, options: tuple[str, ...], tmp_path: Path) -> None:
    linted = run("helm", "lint", "--strict", "--kube-version", f"{VERSION}.0", str(CHART), "--values", str(values))
    assert linted.returncode == 0, linted.stdout + linted.stderr
    rendered = render("--values", str(values), *options)
    assert rendered.returncode == 0, rendered.stderr
    manifests = [one for one in yaml.safe_load_all(rendered.stdout) if one]
    known = tmp_path / "known.yaml"
    known.write_text(yaml.safe_dump_all([one for one in manifests if one["kind"] not in OPERATORS]))
    checked = run("kubectl-validate", str(known), "--version", VERSION)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_containers_are_closed_and_get_the_settings() -> None:
    (values,) = [path for path in VALUES if path.stem == "all"]
    manifests = {one["kind"]: one for one in yaml.safe_load_all(render("--values", str(values)).stdout) if one}
    for kind in ("Deployment", "Job"):
        pod = manifests[kind]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        variables = {one["name"]: one["value"] for one in container["env"]}
        assert variables["DUCKICELAKE_MAX_BODY_BYTES"] == "67108864"
        assert variables["DUCKICELAKE_METRICS_PUBLIC"] == "true"
        assert container["envFrom"] == [{"secretRef": {"name": "lake-duckicelake"}}]
    assert manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 15 + 25 + 20
    assert manifests["ExternalSecret"]["spec"]["secretStoreRef"] == {"name": "vault", "kind": "ClusterSecretStore"}
    assert manifests["ServiceMonitor"]["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "DUCKICELAKE_DATABASE_URL is missing"),
        (("existingSecret=a", "externalSecret.enabled=true"), "choose one"),
        (("externalSecret.enabled=true",), "externalSecret.store.name is missing"),
        (("settings.DUCKICELAKE_DATABASE_URL=postgresql://db/lake",), "settings.DUCKICELAKE_WAREHOUSE is missing"),
        (("existingSecret=a", "settings.DUCKICELAKE_PORT=1"), "settings.DUCKICELAKE_PORT is set by the chart"),
        (("existingSecret=a", "replicas=two"), "replicas"),
        (("existingSecret=a", "replica=2"), "replica"),
    ],
)
def test_wrong_values_are_named(options: tuple[str, ...], reason: str) -> None:
    refused = render(*(word for option in options for word in ("--set", option)))
    assert refused.returncode != 0
    assert reason in refused.stderr
