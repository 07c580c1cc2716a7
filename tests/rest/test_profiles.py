"""Profiles of connections: which options win, where secrets come from, what is refused."""

import re
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend

from duckicelake.errors import BadCredentialsError, BadInputError, PipelineError
from duckicelake.rest.connection import Connection
from duckicelake.rest.profiles import find_profiles_file, list_profiles, read_connection

TEXT = """
default = "work"

[work]
uri = "https://lake.example.com"
warehouse = "sales"
credential-command = "printf 'etl:first line\\\\nsecond'"

[home]
uri = "http://localhost:8181"
token-env = "MY_TOKEN"
scope = "ns:a:r"
oauth2-server-uri = "http://localhost/login"

[plain]
uri = "http://h"
token = "t"
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "profiles.toml"
    monkeypatch.setenv("DUCKICELAKE_CLIENT_PROFILES", str(path))
    path.write_text(TEXT)
    return path


def test_default_profile_is_taken_without_a_name() -> None:
    assert read_connection() == Connection("https://lake.example.com", credential="etl:first line", warehouse="sales")


def test_profile_is_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    expected = Connection(
        "http://localhost:8181", None, "secret", oauth2_server_uri="http://localhost/login", scope="ns:a:r"
    )
    assert read_connection("home") == expected


def test_options_take_the_place_of_the_profiles(file: Path) -> None:
    file.write_text('[p]\nuri = "http://h"\ncredential-command = "false"')
    assert read_connection("p", token="t", warehouse="w") == Connection("http://h", token="t", warehouse="w")


def test_uri_alone_gets_no_secret_of_the_default_profile() -> None:
    assert read_connection(uri="http://other") == Connection("http://other")


def test_without_a_file_the_connection_is_to_this_machine(file: Path) -> None:
    file.unlink()
    assert read_connection() == Connection()


def test_file_is_in_the_configuration_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUCKICELAKE_CLIENT_PROFILES")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    assert find_profiles_file() == Path("/c/duckicelake/profiles.toml")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert find_profiles_file() == Path("/h/.config/duckicelake/profiles.toml")


@pytest.mark.parametrize(
    ("profile", "text", "message"),
    [
        ("hom", TEXT, r"No profile 'hom' in .*profiles.toml: did you mean home\?"),
        ("zzz", "", r"No profile 'zzz' in .*: it has none"),
        ("default", TEXT, "No profile 'default'"),
        ("p", "[p]\nurl = 'x'", r"profile p in .*: url is unknown; did you mean uri\?"),
        ("p", "[p]\nxyz = 'x'", "xyz is unknown; use uri, warehouse"),
        ("p", "[p]\nuri = 5", "uri is 5; expected a text"),
        ("p", "[p", "profiles.toml can't be read"),
    ],
)
def test_what_is_wrong_in_the_file_is_said(file: Path, profile: str, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(BadInputError, match=message):
        read_connection(profile)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('credential-command = "false"', "credential-command fails"),
        ('token-command = "no-such-program-at-all x"', "token-command fails"),
        ('token-command = "\'"', "token-command fails"),
        ('token-command = "true"', "prints nothing"),
        ('token-env = "NOT_SET_AT_ALL"', "token-env names NOT_SET_AT_ALL, which is not set"),
    ],
)
def test_secret_that_is_not_there_is_said(file: Path, line: str, message: str) -> None:
    file.write_text(f'[p]\nuri = "http://h"\n{line}')
    with pytest.raises(BadCredentialsError, match=message):
        read_connection("p")


def test_secret_is_in_no_text_of_the_connection() -> None:
    assert "first" not in repr(read_connection())


class OneSecretKeyring(KeyringBackend):
    """A keyring with one secret, as a library's backend is."""

    priority = 1.0

    def get_password(self, service: str, username: str) -> str | None:
        return "etl:s3cret" if (service, username) == ("lake", "ann") else None

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


@pytest.fixture
def one_secret() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(OneSecretKeyring())
    yield
    keyring.set_keyring(before)


@pytest.mark.usefixtures("one_secret")
def test_secret_is_read_from_the_keyring(file: Path) -> None:
    file.write_text('[work]\ncredential-keyring = "lake/ann"\n')
    assert read_connection("work").credential == "etl:s3cret"


@pytest.mark.usefixtures("one_secret")
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("lake/bob", "the keyring has no secret of lake/bob: `keyring set lake bob`"),
        ("lake", "expected <service>/<user>"),
    ],
)
def test_keyring_without_the_secret_is_an_error(file: Path, entry: str, message: str) -> None:
    file.write_text(f'[work]\ntoken-keyring = "{entry}"\n')
    with pytest.raises(PipelineError, match=re.escape(message)):
        read_connection("work")


def test_profile_may_forbid_changes(file: Path) -> None:
    file.write_text('[work]\nread-only = true\n[home]\nread-only = false\n[bad]\nread-only = "yes"\n')
    assert read_connection("work").read_only_by == "profile work"
    assert read_connection("home").read_only_by is None
    with pytest.raises(BadInputError, match="read-only is 'yes'; expected true or false"):
        read_connection("bad")
    assert [name for name, _ in list_profiles()] == ["work", "home", "bad"]
