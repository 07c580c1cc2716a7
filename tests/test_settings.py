import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from duckicelake.errors import InvalidSettingsError
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import (
    forget_secret_files,
    list_effective_settings,
    load_sources,
    read_settings,
    save_sources,
)
from tests.support.commands import run_here


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.upper().startswith("DUCKICELAKE_")]:
        monkeypatch.delenv(variable)


def test_settings_without_any_source_are_the_documented_defaults(tmp_path: Path) -> None:
    settings = read_settings(folder=tmp_path)
    assert settings.model_dump() == Settings().model_dump()
    assert (settings.lake, settings.host, settings.port, settings.workers) == (Path("lake"), "127.0.0.1", 8181, 1)
    assert (settings.snapshot_ids, settings.cache_max, settings.log_format) == ("client", 1024, "auto")
    assert settings.max_body_bytes == 64 * 1024 * 1024


def test_flag_beats_environment_beats_file_beats_lake_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "duckicelake.toml").write_text('host = "from-lake"\nport = 1\nworkers = 2\ncache_max = 7\n')
    (tmp_path / "duckicelake.toml").write_text("port = 2\nworkers = 3\nsnapshot_ids = 'ducklake'\n")
    monkeypatch.setenv("DUCKICELAKE_WORKERS", "4")
    monkeypatch.setenv("DUCKICELAKE_SNAPSHOT_IDS", "ducklake")
    settings = read_settings({"snapshot_ids": "client", "port": None}, tmp_path)
    assert (settings.cache_max, settings.host) == (7, "from-lake")
    assert settings.port == 2
    assert settings.workers == 4
    assert settings.snapshot_ids == "client"


def test_lake_flag_decides_whose_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "duckicelake.toml").write_text("port = 9999\n")
    assert read_settings(folder=tmp_path).port == 8181
    assert read_settings({"lake": tmp_path / "other"}, tmp_path).port == 9999


def test_lake_file_that_names_another_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "duckicelake.toml").write_text('lake = "elsewhere"\n')
    with pytest.raises(InvalidSettingsError, match=r"elsewhere.*remove that line"):
        read_settings(folder=tmp_path)


def test_unknown_variable_is_refused_with_the_nearest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKICELAKE_DATABSE_URL", "postgresql://x")
    with pytest.raises(InvalidSettingsError, match=r"DUCKICELAKE_DATABSE_URL.*did you mean DUCKICELAKE_DATABASE_URL"):
        read_settings(folder=tmp_path)


def test_unknown_file_key_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "duckicelake.toml").write_text("wharehouse = 'x'\n")
    with pytest.raises(InvalidSettingsError, match=r"wharehouse in .*duckicelake\.toml.*did you mean warehouse"):
        read_settings(folder=tmp_path)


def test_unknown_key_like_nothing_lists_the_settings(tmp_path: Path) -> None:
    (tmp_path / "duckicelake.toml").write_text("zzzzzzzz = 1\n")
    with pytest.raises(InvalidSettingsError, match=r"the settings are .*allowed_locations.*workers"):
        read_settings(folder=tmp_path)


def test_broken_toml_names_the_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "duckicelake.toml").write_text("port = 1\nhost = \n")
    with pytest.raises(InvalidSettingsError, match=r"duckicelake\.toml can't be read: .*line 2"):
        read_settings(folder=tmp_path)


def test_database_without_warehouse_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKICELAKE_DATABASE_URL", "postgresql://localhost/x")
    with pytest.raises(InvalidSettingsError, match="Set DUCKICELAKE_WAREHOUSE"):
        read_settings(folder=tmp_path)


def test_warehouse_without_database_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKICELAKE_WAREHOUSE", "file:///data")
    assert read_settings(folder=tmp_path).warehouse == "file:///data"


def test_database_of_another_engine_is_refused(tmp_path: Path) -> None:
    flags = {"database_url": "mysql://localhost/x", "warehouse": "file:///data"}
    with pytest.raises(InvalidSettingsError, match="must be a Postgres URL"):
        read_settings(flags, tmp_path)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "eighty"),
        ("PORT", "70000"),
        ("WORKERS", "0"),
        ("SNAPSHOT_IDS", "random"),
        ("LOG_FORMAT", "xml"),
        ("CACHE_MAX", "-1"),
    ],
)
def test_bad_value_names_variable_and_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"DUCKICELAKE_{variable}", value)
    with pytest.raises(InvalidSettingsError, match=f"DUCKICELAKE_{variable} is '{value}': Input should be"):
        read_settings(folder=tmp_path)


def test_bad_flag_is_spelled_as_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match="--snapshot-ids is 'both'"):
        read_settings({"snapshot_ids": "both"}, tmp_path)


def test_allowed_locations_split_at_commas_in_environment_and_list_in_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckicelake.toml").write_text('allowed_locations = ["file:///c"]\n')
    assert read_settings(folder=tmp_path).allowed_locations == ("file:///c",)
    monkeypatch.setenv("DUCKICELAKE_ALLOWED_LOCATIONS", "file:///a, file:///b,")
    assert read_settings(folder=tmp_path).allowed_locations == ("file:///a", "file:///b")


def test_settings_survive_the_way_through_a_workers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {
        "database_url": "postgresql://localhost/x",
        "warehouse": "file:///data",
        "allowed_locations": ("file:///a", "file:///b"),
        "snapshot_ids": "ducklake",
        "workers": 3,
        "lake": tmp_path / "l",
    }
    settings = read_settings(flags, tmp_path)
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert read_settings(folder=tmp_path).model_dump() == settings.model_dump()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().port = 1


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"s3_access_key_id": "a"}, "s3_access_key_id and s3_secret_access_key belong together"),
        ({"s3_secret_access_key": "geheim"}, "s3_access_key_id and s3_secret_access_key belong together"),
        ({"s3_session_token": "geheim"}, "s3_session_token is set without s3_access_key_id"),
        ({"s3_access_key_id": "a", "s3_secret_access_key": "geheim", "s3_profile": "p"}, "both name a key"),
        ({"s3_secret_access_key": ["geheim"]}, "s3-secret-access-key is wrong: "),
        ({"s3_endpoint": "minio:9000"}, "s3-endpoint is 'minio:9000': expected https://<host>"),
        ({"s3_endpoint": "http://user:geheim@minio:9000"}, "is 'http://…@minio:9000': expected https://<host>"),
        ({"s3_public_endpoint": "http://minio/path"}, "without user, path or query"),
        ({"s3_max_attempts": 0}, "s3-max-attempts is 0"),
    ],
)
def test_settings_of_s3_that_make_no_sense_are_reported(
    values: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSettingsError, match=complaint):
        read_settings(values, tmp_path)


@pytest.mark.parametrize("origin", ["ui.example", "https://ui.example/app", "https://me@ui.example", "null"])
def test_origin_that_no_browser_says_is_reported(origin: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsError, match=f"Invalid origin '{origin}': expected https://<host>"):
        read_settings({"cors_origins": f"https://a.example,{origin}"}, tmp_path)


def test_origins_are_taken_as_browsers_say_them(tmp_path: Path) -> None:
    settings = read_settings({"cors_origins": "https://UI.example/,http://localhost:5173"}, tmp_path)
    assert settings.cors_origins == ("https://ui.example", "http://localhost:5173")
    assert read_settings({"cors_origins": "*"}, tmp_path).cors_origins == ("*",)


def test_secrets_reach_workers_and_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"s3_access_key_id": "key", "s3_secret_access_key": "geheim", "s3_session_token": "geheimer"}
    settings = read_settings({**given, "s3_endpoint": "http://minio:9000/"}, tmp_path)
    assert settings.s3_endpoint == "http://minio:9000"
    assert "geheim" not in repr(settings) + str(settings) + repr(settings.model_dump()) + settings.model_dump_json()
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    again = read_settings(folder=tmp_path)
    assert again.model_dump() == settings.model_dump()
    assert again.s3_session_token is not None
    assert again.s3_session_token.get_secret_value() == "geheimer"
    with pytest.raises(InvalidSettingsError) as caught:
        read_settings({"s3_secret_access_key": ["geheim"]}, tmp_path)
    assert "geheim" not in str(caught.value)


def test_secrets_are_read_from_files_that_variables_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"oauth_keys": "k:" + "0" * 32, "database_url": "postgresql://lake:geheim@db/lake"}.items():
        (tmp_path / name).write_text(value + "\n")
        monkeypatch.setenv(f"DUCKICELAKE_{name.upper()}_FILE", str(tmp_path / name))
    settings = read_settings({"warehouse": "/w"}, tmp_path)
    assert settings.database_url == "postgresql://lake:geheim@db/lake"
    assert settings.oauth_keys is not None
    assert settings.oauth_keys.get_secret_value() == "k:" + "0" * 32
    assert settings.sources["oauth_keys"] == "DUCKICELAKE_OAUTH_KEYS_FILE"
    forget_secret_files()
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert read_settings(folder=tmp_path).model_dump() == settings.model_dump(), "as workers read them"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"OPA_TOKEN_FILE": "/nowhere"},
            "DUCKICELAKE_OPA_TOKEN_FILE names /nowhere, which can't be read: ",
        ),
        ({"OPA_TOKEN_FILE": "/dev/null"}, "/dev/null, which DUCKICELAKE_OPA_TOKEN_FILE names, is set, but empty"),
        (
            {"OPA_TOKEN_FILE": "/x", "OPA_TOKEN": "y"},
            "OPA_TOKEN_FILE and DUCKICELAKE_OPA_TOKEN are both set",
        ),
        ({"PORT_FILE": "/x"}, "DUCKICELAKE_PORT_FILE is not a setting"),
    ],
)
def test_files_of_secrets_that_cannot_be_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"DUCKICELAKE_{name}", value)
    with pytest.raises(InvalidSettingsError, match=said):
        read_settings(folder=tmp_path)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"tls_certificate": Path("server.pem")}, "tls_certificate and tls_key belong together"),
        ({"tls_key": Path("server.key")}, "tls_certificate and tls_key belong together"),
        ({"trusted_proxies": "10.0.0.1/8"}, "10.0.0.1/8 has host bits set; expected an address, or a network such as"),
        ({"trusted_proxies": "*"}, "does not appear to be an IPv4 or IPv6 network"),
        ({"require_https": True}, "require_https refuses every request: set trusted_proxies"),
    ],
)
def test_settings_of_the_edge_that_cannot_work_are_refused(tmp_path: Path, flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettingsError, match=said):
        read_settings(flags, tmp_path)


def test_settings_of_the_edge_survive_the_way_through_a_workers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {
        "tls_certificate": tmp_path / "server.pem",
        "tls_key": tmp_path / "server.key",
        "trusted_proxies": "10.0.0.0/8, fd00::1",
        "require_https": True,
        "cors_origins": "https://a.example,https://b.example",
        "statement_seconds": 0.5,
    }
    settings = read_settings(flags, tmp_path)
    assert settings.trusted_proxies == ("10.0.0.0/8", "fd00::1")
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert read_settings(folder=tmp_path).model_dump() == settings.model_dump()


def test_policies_of_all_tables_are_properties_with_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = ("maintenance.flush.min-rows=10", "history.expire.min-snapshots-to-keep=3")
    monkeypatch.setenv("DUCKICELAKE_MAINTENANCE", ", ".join(policies))
    assert read_settings(folder=tmp_path).maintenance == policies
    monkeypatch.setenv("DUCKICELAKE_MAINTENANCE", "flush=10")
    with pytest.raises(InvalidSettingsError, match="Invalid policy 'flush=10': expected <property>=<value>"):
        read_settings(folder=tmp_path)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("maintenance.flush.Min_Rows", "maintenance.flush.min-rows"),
        ("maintenance.flush.min-row", "maintenance.flush.min-rows"),
        ("history.expire.max-snapshot-age", "history.expire.max-snapshot-age-ms"),
        ("history.expire.Min_Snapshots_To_Keep", "history.expire.min-snapshots-to-keep"),
    ],
)
def test_server_does_not_start_with_a_misspelt_policy(wrong: str, meant: str, tmp_path: Path) -> None:
    ended = run_here("serve", "--lake", str(tmp_path), DUCKICELAKE_MAINTENANCE=f"{wrong}=9")
    assert ended.returncode == 2, ended
    assert f"there is no property {wrong}; did you mean {meant}?" in ended.stderr


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "LINEAGE_CATALOG_URI",
            "lake.example",
            "Invalid URI 'lake.example': expected the catalog's URI",
        ),
        ("OIDC_JWKS_URL", "id.example/keys", "Invalid URL 'id.example/keys': expected https://"),
    ],
)
def test_addresses_are_written_in_full(
    name: str, value: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"DUCKICELAKE_{name}", value)
    with pytest.raises(InvalidSettingsError, match=says):
        read_settings(folder=tmp_path)


def test_issuer_that_is_no_url_takes_the_url_of_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ISSUER": "accounts.example", "AUDIENCE": "lake", "JWKS_URL": "https://id.example/k"}.items():
        monkeypatch.setenv(f"DUCKICELAKE_OIDC_{name}", value)
    assert read_settings(folder=tmp_path).oidc_issuer == "accounts.example"


CLOSING = (
    *("oauth_clients", "oauth_keys", "require_auth", "oidc_issuer", "oidc_audience", "oidc_scopes", "oidc_jwks_url"),
    *("database_logins", "secret_keys", "bootstrap_admin", "oidc_group_claim"),
    *("opa_url", "opa_token", "require_https", "tls_certificate", "tls_key", "lineage_api_keys", "lineage_kafka"),
    *("s3_access_key_id", "s3_secret_access_key", "s3_session_token", "s3_profile", "s3_vending", "s3_sts_endpoint"),
    *("s3_role_arn", "s3_external_id", "s3_static_access_key_id", "s3_static_secret_access_key"),
    *("gcs_key_file", "gcs_vending", "azure_tenant_id", "azure_client_id", "azure_token_file", "azure_vending"),
    *("azure_account_key", "azure_client_secret"),
)


@pytest.mark.parametrize("empty", ["", " ", "\t"])
def test_empty_value_of_what_shuts_others_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: str
) -> None:
    for name in CLOSING:
        variable = f"DUCKICELAKE_{name.upper()}"
        monkeypatch.setenv(variable, empty)
        with pytest.raises(InvalidSettingsError, match=f"{variable} is set, but empty"):
            read_settings(folder=tmp_path)
        monkeypatch.delenv(variable)
        (tmp_path / "duckicelake.toml").write_text(f"{name} = '{empty}'\n")
        with pytest.raises(InvalidSettingsError, match=f"{name} in .* is set, but empty"):
            read_settings(folder=tmp_path)
        (tmp_path / "duckicelake.toml").unlink()


def test_empty_value_of_other_settings_is_their_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [name for name in Settings.model_fields if name not in CLOSING]
    for name in others:
        monkeypatch.setenv(f"DUCKICELAKE_{name.upper()}", "")
    assert read_settings(folder=tmp_path) == Settings()


def test_hosts_are_names_addresses_or_networks(tmp_path: Path) -> None:
    good = "lake.example,*.example,10.0.0.0/8,10.1.2.3,2001:db8::1,[::1],*"
    assert read_settings({"allowed_hosts": good}, tmp_path).allowed_hosts == tuple(good.split(","))
    for bad in ("http://lake.example", "lake.example:8181", "lake/x", "*.", "a b"):
        with pytest.raises(InvalidSettingsError, match=r"Invalid host .*: expected lake\.example"):
            read_settings({"allowed_hosts": bad}, tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hidden@db/lake",
        "postgresql://db/lake?user=me&password=hidden&sslmode=require",
        "host=db user=me password=hidden dbname=lake",
        "host=db password='hid den hidden' dbname=lake",
        "host=db sslpassword = hidden dbname=lake",
    ],
)
def test_passwords_of_a_url_are_hidden_wherever_they_stand(tmp_path: Path, url: str) -> None:
    settings = read_settings({"database_url": url, "warehouse": "file:///data"}, tmp_path)
    (shown,) = [one for one in list_effective_settings(settings) if one.name == "database_url"]
    assert "hidden" not in str(shown.value)
    assert "lake" in str(shown.value)


def test_passwords_in_lists_of_urls_are_hidden(tmp_path: Path) -> None:
    urls = "https://me:hidden@lineage.example/path?timeout=10&api_key=hidden,console"
    settings = read_settings({"lineage_transports": urls}, tmp_path)
    (shown,) = [one for one in list_effective_settings(settings) if one.name == "lineage_transports"]
    assert shown.value == ("https://…@lineage.example/path?timeout=10&api_key=…", "console")


def test_workers_name_where_settings_came_from_and_what_the_server_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKICELAKE_PORT", "8282")
    settings = read_settings({"workers": 2}, tmp_path).model_copy(update={"oauth_keys": SecretStr("k:" + "0" * 32)})
    save_sources(settings, tmp_path / "sources.json")
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    worker = load_sources(read_settings(folder=tmp_path), tmp_path / "sources.json")
    found = {one.name: one for one in list_effective_settings(worker)}
    assert found == {one.name: one for one in list_effective_settings(settings)}
    assert [found[name].source for name in ("port", "workers", "oauth_keys", "host")] == [
        *("DUCKICELAKE_PORT", "--workers", "the server", "default")
    ]
    assert (found["oauth_keys"].value, found["oauth_keys"].default) == ("set", "unset")
    assert all(one.meaning for one in found.values())
