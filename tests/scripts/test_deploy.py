"""The files of `deploy/` name settings, ports, versions and files that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from duckicelake import __version__
from duckicelake.settings.forms import PREFIX
from duckicelake.settings.model import Settings
from tests.support.documents import PAGES, ROOT

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart" / "duckicelake"
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields} | {PREFIX + "DATABASE_URL_FILE"}
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
INSTALL = (DEPLOY / "image" / "install").read_text()
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
UNIT = (DEPLOY / "duckicelake.service").read_text()


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_settings_that_are_named_exist(path: Path) -> None:
    assert set(re.findall(r"\bDUCKICELAKE_[A-Z0-9_]+\b", path.read_text())) <= SETTINGS


def test_port_is_the_default_everywhere() -> None:
    port = str(Settings().port)
    assert re.findall(r"^EXPOSE (\d+)$", CONTAINERFILE, re.MULTILINE) == [port]
    assert COMPOSE["services"]["server"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"or {port})" in (DEPLOY / "image" / "healthcheck.py").read_text()


def test_server_has_time_to_stop() -> None:
    """The server takes its own seconds, and ends 8 later; 10 more are advised."""
    needed = Settings().shutdown_seconds + 20
    (of_unit,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert needed == seconds(COMPOSE["services"]["server"]["stop_grace_period"]) == int(of_unit)
    assert f"--stop-timeout {needed:g} " in PAGES["docs/how-to/container.md"]


def test_services_start_once_those_before_them_are_healthy() -> None:
    services = COMPOSE["services"]
    assert services["server"]["depends_on"] == {
        name: {"condition": "service_healthy"} for name in services if name != "server"
    }
    assert all("healthcheck" in services[name] for name in services if name != "server")


def test_compose_publishes_to_this_machine_alone_and_has_no_password() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    text = (DEPLOY / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text))
    assert asked == set(re.findall(r"^(\w+)=", (DEPLOY / "env.example").read_text(), re.MULTILINE))
    assert not re.findall(r"PASSWORD: (?!\$\{)", text)


def test_image_is_closed_as_the_page_says() -> None:
    (started,) = re.findall(r"```bash\npodman run (.*?)```", PAGES["docs/how-to/container.md"], re.DOTALL)
    of_script = (ROOT / "scripts" / "image").read_text()
    for option in ("--read-only", "--tmpfs /tmp", "--cap-drop all", "--security-opt no-new-privileges"):
        assert option in started
        assert option in of_script.replace("\\\n    ", "")
    server = COMPOSE["services"]["server"]
    assert (server["read_only"], server["cap_drop"], server["tmpfs"]) == (True, ["ALL"], ["/tmp"])


def copied() -> Iterator[str]:
    for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE):
        yield from line.split()[:-1]


def test_build_has_what_it_copies_and_ignores_the_rest() -> None:
    allowed = re.findall(r"^!(.*)$", (ROOT / ".containerignore").read_text(), re.MULTILINE)
    for path in copied():
        assert (ROOT / path).exists()
        assert any(path == one or path.startswith(f"{one}/") for one in allowed), path
    assert (ROOT / ".dockerignore").read_text() == (ROOT / ".containerignore").read_text()


def test_build_arguments_are_those_of_the_page() -> None:
    page = PAGES["docs/how-to/container.md"]
    declared = re.findall(r"^ARG (\w+)=\"?([^\"\n]*)", CONTAINERFILE, re.MULTILINE)
    rows = dict(re.findall(r"^\| `([A-Z]+)` \| (.*?) \|", page, re.MULTILINE))
    assert rows == {name: f"`{default}`" if default else "none" for name, default in declared}


def test_python_of_the_image_is_one_that_the_package_supports() -> None:
    (version,) = set(re.findall(r"python(3\.\d+)", INSTALL))
    assert f"Programming Language :: Python :: {version}" in (ROOT / "pyproject.toml").read_text()


def test_user_of_the_image_is_a_number_and_the_same_everywhere() -> None:
    (user,) = re.findall(r"^USER (\d+):\1$", CONTAINERFILE, re.MULTILINE)
    assert re.findall(r"^USER_ID=(\d+)$", INSTALL, re.MULTILINE) == [user]
    assert f"is the user {user}." in PAGES["docs/how-to/container.md"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd isn't installed")
def test_unit_is_understood_and_closed() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(DEPLOY / "duckicelake.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:]
    assert "Unknown" not in done.stderr


def list_values(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Paths and defaults of a chart's values; `resources` is one value."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from list_values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def list_schema(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, part in schema["properties"].items():
        if "properties" in part:
            yield from list_schema(part, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_values_of_the_chart_are_those_of_its_page_and_its_schema() -> None:
    values = dict(list_values(yaml.safe_load((CHART / "values.yaml").read_text())))
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert {name: yaml.safe_load(default) for name, default in rows} == values
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(list_schema(schema)) - {"global"} == set(values)


def test_chart_has_the_version_port_and_seconds_of_the_server() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert values["service"]["port"] == Settings().port
    assert values["shutdownSeconds"] == Settings().shutdown_seconds
    assert f"containerPort: {Settings().port}" in (CHART / "templates" / "deployment.yaml").read_text()


def test_values_of_the_page_are_settings() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGES["docs/how-to/kubernetes.md"], re.DOTALL)
    values = yaml.safe_load(block)
    assert set(values["settings"]) <= SETTINGS
    assert set(values) <= set(yaml.safe_load((CHART / "values.yaml").read_text()))
