"""Read profiles: connections by name, in `profiles.toml` of the user's configuration folder.

    default = "work"

    [work]
    uri = "https://lake.example.com"
    warehouse = "sales"
    credential-command = "pass show lake"

`DUCKICELAKE_CLIENT_PROFILES` names another file. A secret is better in a command's output or in a variable of the
environment than in the file.
"""

import os
import shlex
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from duckicelake.errors import BadCredentialsError, BadInputError
from duckicelake.rest.connection import DEFAULT_URI, Connection

CLIENT_PREFIX: Final = "DUCKICELAKE_CLIENT_"
"""Prefix of the variables that clients read; the server ignores them."""
_FILE_VARIABLE: Final = f"{CLIENT_PREFIX}PROFILES"
_COMMAND_SECONDS: Final = 60
_SECRETS: Final = ("credential", "token")
_FIELDS: Final = (
    *("uri", "warehouse", "oauth2-server-uri", "scope"),
    *("oidc-issuer", "oidc-client-id", "oidc-scope"),
)
_SOURCES: Final = ("", "-command", "-env", "-keyring")
_SECRET_KEYS: Final = tuple(f"{secret}{source}" for secret in _SECRETS for source in _SOURCES)
_READ_ONLY: Final = "read-only"
KEYS: Final = (*_FIELDS, *_SECRET_KEYS, _READ_ONLY)
"""What a profile may have."""


def find_profiles_file() -> Path:
    """Return the path of the file of profiles, which may not exist."""
    named = os.environ.get(_FILE_VARIABLE)
    if named:
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder, "duckicelake", "profiles.toml")


def read_connection(profile: str | None = None, **options: str | None) -> Connection:
    """Return the connection of a profile, or of the default one, with these options in place of the profile's.

    A URI among the options stands alone: no default profile adds secrets to it. Without anything, the connection is to
    a server on this machine.

    Raises:
        BadInputError: there is no such profile, or the file isn't one of profiles.
        BadCredentialsError: the command that prints the secret fails.

    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if profile is None and "uri" in given:
        return Connection(**given)
    path = find_profiles_file()
    profiles = _read_profiles(path)
    name = profile if profile is not None else profiles.get("default")
    if name is None:
        return Connection(**given)
    return replace(_build_connection(_find_profile(profiles, name, path), given, f"profile {name} in {path}"), **given)


def list_profiles() -> list[tuple[str, str]]:
    """Return the names of the profiles and their URIs. Raises BadInputError if the file can't be read."""
    profiles = _read_profiles(find_profiles_file())
    return [(name, str(one.get("uri", DEFAULT_URI))) for name, one in profiles.items() if isinstance(one, dict)]


def _read_profiles(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text()) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadInputError(f"{path} can't be read: {error}") from error


def _find_profile(profiles: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    found = profiles.get(name)
    if isinstance(found, dict):
        return found
    names = sorted(other for other, value in profiles.items() if isinstance(value, dict))
    nearest = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(names) or 'none'}"
    form = "; a URI starts with http:// or https://" if ":" in str(name) else ""
    there = hint if path.exists() else "there is no such file"
    raise BadInputError(f"No profile {name!r} in {path}: {there}{form}")


def _build_connection(profile: Mapping[str, Any], given: Mapping[str, str], where: str) -> Connection:
    for key, value in profile.items():
        if key not in KEYS:
            nearest = get_close_matches(key, KEYS, n=1)
            raise BadInputError(
                f"{where}: {key} is unknown; "
                + (f"did you mean {nearest[0]}?" if nearest else f"use {', '.join(KEYS)}")
            )
        if not isinstance(value, bool if key == _READ_ONLY else str):
            wanted = "true or false" if key == _READ_ONLY else "a text"
            raise BadInputError(f"{where}: {key} is {value!r}; expected {wanted}")
    fields: dict[str, Any] = {key.replace("-", "_"): profile[key] for key in _FIELDS if key in profile}
    has_secret = any(secret in given for secret in _SECRETS)  # then no command of the profile needs to run
    credential, token = (None if has_secret else _read_secret(profile, secret, where) for secret in _SECRETS)
    read_only_by = where.partition(" in ")[0] if profile.get(_READ_ONLY) else None
    return Connection(**fields, credential=credential, token=token, read_only_by=read_only_by)


def _read_secret(profile: Mapping[str, str], secret: str, where: str) -> str | None:
    if secret in profile:
        return profile[secret]
    if f"{secret}-env" in profile:
        variable = profile[f"{secret}-env"]
        if not os.environ.get(variable):
            raise BadCredentialsError(f"{where}: {secret}-env names {variable}, which is not set")
        return os.environ[variable]
    if f"{secret}-command" in profile:
        return _run_command(profile[f"{secret}-command"], f"{where}: {secret}-command")
    if f"{secret}-keyring" in profile:
        return _read_keyring(profile[f"{secret}-keyring"], f"{where}: {secret}-keyring")
    return None


def _read_keyring(entry: str, what: str) -> str:
    """Read a secret of the operating system's keyring. entry: `<service>/<user>`."""
    service, slash, user = entry.rpartition("/")
    if not slash or not service or not user:
        raise BadInputError(f"{what} is {entry!r}; expected <service>/<user>")
    try:
        keyring = import_module("keyring")
    except ModuleNotFoundError as error:
        raise BadCredentialsError(f"{what} needs the library keyring: pip install 'duckicelake[shell]'") from error
    try:
        found: str | None = keyring.get_password(service, user)
    except import_module("keyring.errors").KeyringError as error:
        raise BadCredentialsError(f"{what} can't be read: {error}") from error
    if found is None:
        raise BadCredentialsError(f"{what}: the keyring has no secret of {entry}: `keyring set {service} {user}`")
    return found


def _run_command(command: str, what: str) -> str:
    """Run a command without a shell, and return the first line that it prints."""
    try:
        ran = subprocess.run(  # noqa: S603 - the user wrote it into a file of theirs
            shlex.split(command), stdout=subprocess.PIPE, text=True, timeout=_COMMAND_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BadCredentialsError(f"{what} fails: {error}") from error
    first, *_ = ran.stdout.splitlines() or [""]
    if not first:
        raise BadCredentialsError(f"{what} prints nothing; expected the secret in the first line")
    return first
