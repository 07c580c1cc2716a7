"""Who may log in, as people configure it: what is refused at the start, what is warned of, and what is never shown."""

import re
import subprocess
from pathlib import Path

import httpx
import pytest
from argon2 import PasswordHasher

from duckicelake.catalog.context.caller import Capability
from duckicelake.cli.wiring.authentication import ANY_HOST_WARNING, OPEN_SERVER_WARNING, is_open_to_all, list_warnings
from duckicelake.server.auth.oauth_clients import parse_clients
from duckicelake.settings.model import Settings
from tests.cli.test_commands import COMMAND, environment, lake, run, serving
from tests.support.commands import invoke

__all__ = ["lake"]

SECRET = "hunter2-hunter2-hunter2"
KEY = "k" * 32
CLIENTS = {"DUCKICELAKE_OAUTH_CLIENTS": f"etl:{SECRET}|ns:sales:rw", "DUCKICELAKE_OAUTH_KEYS": f"one:{KEY}"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"DUCKICELAKE_REQUIRE_AUTH": "1"}, "set DUCKICELAKE_OAUTH_CLIENTS, or DUCKICELAKE_OIDC_ISSUER"),
        (
            {"DUCKICELAKE_OAUTH_CLIENTS": f"etl:{SECRET}"},
            "client 1 of DUCKICELAKE_OAUTH_CLIENTS is not id:secret|scope",
        ),
        (CLIENTS | {"DUCKICELAKE_OAUTH_KEYS": f"one:{SECRET}"}, "take at least 32, for example"),
        ({"DUCKICELAKE_OAUTH_CLIENTS": "etl:x|*"}, "the secret of client 1 of DUCKICELAKE_OAUTH_CLIENTS has 1 bytes"),
        ({"DUCKICELAKE_OAUTH_CLIENTS": ""}, "DUCKICELAKE_OAUTH_CLIENTS is set, but empty"),
        ({"DUCKICELAKE_CORS_ORIGINS": "*"}, "Name the origins"),
        ({"DUCKICELAKE_OIDC_ISSUER": "https://id.example"}, "oidc_issuer and oidc_audience belong together"),
        ({"DUCKICELAKE_OIDC_SCOPES": "a=*"}, "need an oidc_issuer"),
        (
            {"DUCKICELAKE_OIDC_ISSUER": "id.example", "DUCKICELAKE_OIDC_AUDIENCE": "lake"},
            "oidc_issuer 'id.example' is no URL, so its keys can't be discovered",
        ),
        (
            {
                "DUCKICELAKE_OIDC_ISSUER": "https://id.example",
                "DUCKICELAKE_OIDC_AUDIENCE": "lake",
                "DUCKICELAKE_OIDC_SCOPES": "a=all",
            },
            "'all' is not a scope",
        ),
    ],
)
def test_server_that_no_one_could_log_in_to_does_not_start(lake: Path, settings: dict[str, str], says: str) -> None:
    ended = invoke("serve", "--lake", str(lake), "--port", "0", **settings)
    assert ended.exit_code == 2
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert SECRET not in ended.stderr


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.commands)])
def test_workers_accept_each_others_tokens_and_no_secret_is_shown(lake: Path, workers: str) -> None:
    without_keys = {name: value for name, value in CLIENTS.items() if "KEYS" not in name}
    form = {"grant_type": "client_credentials", "client_id": "etl", "client_secret": SECRET}
    with serving(lake, "--workers", workers, "--snapshot-ids", "client", **without_keys) as served:
        assert httpx.get(f"{served.uri}/v1/config", timeout=30).status_code == 401
        for _ in range(8):
            answer = httpx.post(f"{served.uri}/v1/oauth/tokens", data=form, timeout=30)
            headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
            assert httpx.get(f"{served.uri}/v1/config", headers=headers, timeout=30).status_code == 200
        printed = served.printed
    shown = printed + run("info", "--lake", str(lake), **CLIENTS).stdout
    assert "ducklake-attach" in shown
    for secret in (SECRET, KEY, headers["Authorization"]):
        assert secret not in shown


def test_hash_of_a_secret_comes_from_standard_input_alone() -> None:
    made = subprocess.run(
        [*COMMAND, "hash-secret"], input=f"{SECRET}\n", env=environment(), capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"\$argon2id\$\S+\n", made.stdout)
    assert PasswordHasher().verify(made.stdout.strip(), SECRET)
    assert run("hash-secret", SECRET).returncode == 2


def test_settings_show_no_secret_and_workers_get_all_of_it() -> None:
    settings = Settings(oauth_clients=f"etl:{SECRET}|*", oauth_keys=f"one:{KEY}")
    for secret in (SECRET, KEY):
        assert secret not in repr(settings)
        assert secret not in str(settings.model_dump())
    assert settings.as_environment()["DUCKICELAKE_OAUTH_CLIENTS"] == f"etl:{SECRET}|*"
    assert settings.as_environment()["DUCKICELAKE_OAUTH_KEYS"] == f"one:{KEY}"


@pytest.mark.parametrize(
    ("host", "is_open"),
    [
        ("127.0.0.1", False),
        ("localhost", False),
        ("::1", False),
        ("0.0.0.0", True),
        ("::", True),
        ("lake.example", True),
    ],
)
def test_server_open_to_all_is_known(host: str, is_open: bool) -> None:
    assert is_open_to_all(Settings(host=host)) is is_open
    assert not is_open_to_all(Settings(host=host, oauth_clients="a:b|*"))


def test_what_opens_a_server_is_warned_of_at_each_start() -> None:
    assert list_warnings(Settings()) == ()
    assert list_warnings(Settings(host="0.0.0.0", allowed_hosts=("*",))) == (OPEN_SERVER_WARNING, ANY_HOST_WARNING)
    assert list_warnings(Settings(host="0.0.0.0", allowed_hosts=("*",), oauth_clients="a:b|*")) == ()


@pytest.mark.commands
def test_server_open_to_all_warns_and_starts(lake: Path) -> None:
    with serving(lake, "--host", "0.0.0.0") as served:
        assert "everyone who reaches this address may read, change and drop everything" in served.printed
        assert httpx.get(f"{served.uri}/v1/config", timeout=30).status_code == 200


def test_documented_client_may_make_the_namespace_that_the_example_makes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    (scopes,) = re.findall(r'export DUCKICELAKE_OAUTH_CLIENTS="etl:.*\|([^"]*)"', text)
    namespace, refused = re.findall(r"""--json '\{"namespace": \["(\w+)"\]\}'""", text)
    (client,) = parse_clients(f"etl:{SECRET}|{scopes}")
    assert client.principal.may(Capability.MANAGE, (namespace,))
    assert not client.principal.may(Capability.MANAGE, (refused,))
