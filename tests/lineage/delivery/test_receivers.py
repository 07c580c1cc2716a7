"""Receivers as a person writes them down."""

import os
from pathlib import Path

import pytest

from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery.couriers import read_receivers
from duckicelake.lineage.delivery.receivers import (
    ConsoleReceiver,
    FileReceiver,
    HttpReceiver,
    KafkaReceiver,
    parse_receivers,
)
from duckicelake.settings.model import Settings

URL = "https://marquez.example:5000"


def test_each_kind_is_reported_by_its_url() -> None:
    written = [URL, "http://b/x/y?timeout=2.5&compression=gzip", "file:///v/l.ndjson", "console", "kafka://a:1;b:2/t"]
    assert parse_receivers(written) == [
        HttpReceiver(URL, "marquez.example:5000", f"{URL}/api/v1/lineage"),
        HttpReceiver("http://b/x/y", "b", "http://b/x/y", 2.5, is_compressed=True),
        FileReceiver("file:/v/l.ndjson", Path("/v/l.ndjson")),
        ConsoleReceiver(),
        KafkaReceiver("kafka://a:1;b:2/t", "t", {"bootstrap.servers": "a:1,b:2"}),
    ]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("marquez:5000", "invalid receiver 'marquez:5000'; write https://<host>"),
        ("ftp://marquez", "invalid receiver"),
        ("http://", "invalid receiver"),
        ("http://h:0", "invalid receiver"),
        ("http://h:99999", "Port out of range"),
        ("http://[::1", "lineage_transports: .*IPv6"),
        ("Console", "invalid receiver"),
        ("file:", "invalid receiver"),
        ("file://host/x", "invalid receiver"),
        ("kafka://b:9092", "invalid receiver"),
        ("kafka://b:9092/two/topics", "invalid receiver"),
        ("http://h?timeot=4", "http://h has options besides timeout=<seconds> and compression=gzip"),
        ("http://h?timeout=soon", "the timeout of http://h must be seconds"),
        ("http://h?timeout=0", "must be seconds"),
        ("http://h?timeout=nan", "must be seconds"),
        ("http://h?compression=zip", "can only be gzip"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_be_right(written: str, said: str) -> None:
    with pytest.raises(InvalidSettingsError, match=said):
        parse_receivers([written])


def test_secret_in_a_url_is_refused_and_not_reported() -> None:
    with pytest.raises(InvalidSettingsError, match="belong into lineage_api_keys") as caught:
        parse_receivers(["https://me:geheim@host"])
    assert "geheim" not in str(caught.value)


def test_receiver_cannot_stand_there_twice() -> None:
    with pytest.raises(InvalidSettingsError, match=r"has https://marquez\.example:5000 twice"):
        parse_receivers([URL, f"{URL}/api/v1/lineage"])


@pytest.mark.parametrize(
    ("written", "keys", "found"),
    [
        ([URL], "k", ["k"]),
        ([URL], "k==", ["k=="]),
        ([URL, "console"], "k", ["k", None]),
        ([URL, "https://b"], "marquez.example:5000=k,b=l=", ["k", "l="]),
        ([URL, "https://b"], "b=l", [None, "l"]),
        ([URL, f"{URL}/other"], "k", ["k", "k"]),
    ],
)
def test_keys_go_to_the_hosts_that_they_are_for(written: list[str], keys: str, found: list[str | None]) -> None:
    receivers = parse_receivers(written, keys)
    assert [getattr(each, "api_key", None) for each in receivers] == found
    assert not any("api_key" in repr(each) for each in receivers)


@pytest.mark.parametrize(
    ("written", "keys", "said"),
    [
        ([URL, "https://b"], "geheim", "with b, marquez.example:5000 as hosts"),
        ([URL, "https://b"], "c=geheim", "with b, marquez.example:5000 as hosts"),
        (["console"], "geheim", "with no as hosts"),
        ([URL], "geheim mit Leerzeichen", "characters that no header can have"),
    ],
)
def test_key_for_no_one_is_refused_and_not_reported(written: list[str], keys: str, said: str) -> None:
    with pytest.raises(InvalidSettingsError, match=said) as caught:
        parse_receivers(written, keys)
    assert "geheim" not in str(caught.value)


def test_settings_of_kafkas_client_need_kafka_and_values() -> None:
    (found,) = parse_receivers(["kafka://b:1/t"], kafka="sasl.username=me, sasl.password=geheim=")
    assert isinstance(found, KafkaReceiver)
    assert found.config == {"bootstrap.servers": "b:1", "sasl.username": "me", "sasl.password": "geheim="}
    assert "geheim" not in repr(found)
    with pytest.raises(InvalidSettingsError, match="names no kafka"):
        parse_receivers([URL], kafka="a=b")
    with pytest.raises(InvalidSettingsError, match="must be <name>=<value>"):
        parse_receivers(["kafka://b:1/t"], kafka="geheim")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE_")]:
        monkeypatch.delenv(name)


def test_openlineages_variables_hold_where_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_receivers(Settings()) == []
    monkeypatch.setenv("OPENLINEAGE_URL", f"{URL}/")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k")
    assert read_receivers(Settings()) == [
        HttpReceiver(URL, "marquez.example:5000", f"{URL}/api/v1/lineage", api_key="k")
    ]
    monkeypatch.setenv("OPENLINEAGE_ENDPOINT", "/take")
    assert [each.name for each in read_receivers(Settings())] == [f"{URL}/take"]
    assert read_receivers(Settings(lineage_transports=("console",))) == [ConsoleReceiver()]
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "True")
    assert read_receivers(Settings()) == []
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "false")
    monkeypatch.setenv("OPENLINEAGE_URL", "marquez")
    with pytest.raises(
        InvalidSettingsError, match=r"OPENLINEAGE_URL is taken for lineage_transports: .*invalid receiver"
    ):
        read_receivers(Settings())


def test_secrets_without_receivers_are_refused() -> None:
    with pytest.raises(InvalidSettingsError, match="are for lineage_transports, which aren't set"):
        read_receivers(Settings(lineage_api_keys="k"))
