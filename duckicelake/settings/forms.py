"""Forms of the values of settings: patterns, lists, networks."""

import ipaddress
import re
from typing import Annotated

from pydantic import BeforeValidator, SecretStr
from pydantic_settings import NoDecode

from duckicelake.properties import POLICY_NAMES, is_like_policy, suggest_policy

PREFIX = "DUCKICELAKE_"
"""Begins the environment variables."""
ENDPOINT_PATTERN = re.compile(r"https?://[^/@?#\s]+/?")
ORIGIN_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://[^/@?#\s]+/?", re.IGNORECASE)
URI_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
WEB_URL_PATTERN = re.compile(r"https?://\S+", re.IGNORECASE)
HOST_PATTERN = re.compile(r"\*|(\*\.)?[\w-]+(\.[\w-]+)*\.?", re.ASCII)
POSTGRES_SCHEMES = ("postgres", "postgresql")


def split_at_commas(value: object) -> object:
    """Split a text at commas; other values stay."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def is_network(text: str) -> bool:
    """Return whether a text is an address or a network."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def check_network(text: str) -> None:
    """Raise ValueError unless a text is an address or a network."""
    try:
        ipaddress.ip_network(text)
    except ValueError as error:
        message = f"trusted_proxies: {error}; expected an address, or a network such as 10.0.0.0/8"
        raise ValueError(message) from error


def check_host(text: str) -> None:
    """Raise ValueError unless a text is a host, all hosts below one, an address or a network."""
    if not HOST_PATTERN.fullmatch(text) and not is_network(text.strip("[]")):
        message = f"Invalid host {text!r}: expected lake.example, *.example, an address or a network, without a port"
        raise ValueError(message)


def check_origin(text: str) -> None:
    """Raise ValueError unless a text is an origin of web pages, or * for all."""
    if text != "*" and not ORIGIN_PATTERN.fullmatch(text):
        message = f"Invalid origin {text!r}: expected https://<host> or http://<host>:<port>, or * for all pages"
        raise ValueError(message)


def check_address(text: str) -> None:
    """Raise ValueError unless a text is an address, a network or a host."""
    if not is_network(text.strip("[]")) and (text == "*" or not HOST_PATTERN.fullmatch(text)):
        message = f"Invalid address {text!r}: expected a network such as 10.0.0.0/8, an address, or a host"
        raise ValueError(message)


def check_policy(text: str) -> None:
    """Raise ValueError unless a text is a policy of maintenance and its value."""
    name, _, policy = text.partition("=")
    if is_like_policy(name) and name not in POLICY_NAMES:
        message = f"Invalid policy {text!r}: there is no property {name}; {suggest_policy(name)}"
        raise ValueError(message)
    if not (policy and name in POLICY_NAMES):
        message = f"Invalid policy {text!r}: expected <property>=<value>, such as maintenance.flush.min-rows=100"
        raise ValueError(message)


def reveal(value: object) -> str:
    """Return the text of a value, a secret's too."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


CommaSeparated = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas)]
"""Texts, joined by commas in the environment."""
