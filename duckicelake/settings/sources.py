"""Read settings from their sources; errors name the source of a wrong value."""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource
from pydantic_settings.exceptions import SettingsError

from duckicelake.errors import InvalidSettingsError
from duckicelake.settings.forms import PREFIX
from duckicelake.settings.model import Settings

CLIENT_PREFIXES = ("DUCKICELAKE_CLIENT_", "DUCKICELAKE_PIPELINE_")
"""Prefixes of the variables that clients and the pipeline read, which may share the server's environment."""
FILE_NAME = "duckicelake.toml"
_USER_PATTERN = re.compile(r"//[^/]*@")
_SECRET_PARAMETER_PATTERN = re.compile(
    r"((?:pass|pwd|secret|token|key|credential|sig)[\w.-]*\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&;]+)", re.IGNORECASE
)
"""A password in a URL's query, or in a connection string such as `host=db password=…`."""
_PROTECTIVE_NAMES = frozenset(
    {
        *("require_auth", "database_logins", "bootstrap_admin"),
        *("oidc_issuer", "oidc_audience", "oidc_jwks_url", "oidc_scopes", "oidc_group_claim"),
        *("opa_url", "require_https", "tls_certificate", "tls_key"),
        *("s3_access_key_id", "s3_profile", "s3_vending", "s3_sts_endpoint", "s3_role_arn", "s3_external_id"),
        "s3_static_access_key_id",
        *("gcs_key_file", "gcs_vending", "azure_tenant_id", "azure_client_id", "azure_token_file", "azure_vending"),
    }
)
"""Settings that restrict access, besides secrets. If one is set and empty, the server refuses to start."""


@dataclass(frozen=True, slots=True)
class _SettingsSource:
    """A source of settings. spelling: how a setting is written there."""

    spelling: str
    values: Mapping[str, object]

    def spell(self, name: str) -> str:
        return self.spelling.format(name=name, upper=name.upper(), dashed=name.replace("_", "-"))


def read_settings(flags: Mapping[str, object] | None = None, folder: Path | None = None) -> Settings:
    """Merge the sources of a process started in `folder` with command-line `flags` (None: not given).

    Raises InvalidSettingsError, naming what is wrong, where it was set, and the nearest right name or value.
    """
    return _merge(_read_sources(flags or {}, folder or Path.cwd()))


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting as a process has it.

    Attributes:
        value: Of a secret, `set` or `unset`.
        source: How and where it was set, `default`, or `the server` for what the server filled in itself.
        default: Its value where nothing sets it; of a secret, `unset`.
        meaning: What it does.

    """

    name: str
    value: object
    source: str
    default: object
    meaning: str


def list_effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """List all settings as a process has them, and where each came from."""
    return [_describe(settings, name) for name in Settings.model_fields]


def save_sources(settings: Settings, file: Path) -> None:
    """Write where each setting came from, for worker processes, whose environment has them all."""
    file.write_text(json.dumps(dict(settings.sources)))


def load_sources(settings: Settings, file: Path) -> Settings:
    """Note where each setting came from, as `save_sources` wrote it."""
    return settings.with_sources(json.loads(file.read_text()))


def _describe(settings: Settings, name: str) -> EffectiveSetting:
    field, value = Settings.model_fields[name], getattr(settings, name)
    unset = "default" if value == field.default else "the server"
    source, meaning = settings.sources.get(name, unset), field.description or ""
    return EffectiveSetting(name, _show(name, value), source, _show(name, field.default), meaning)


def _read_sources(flags: Mapping[str, object], folder: Path) -> list[_SettingsSource]:
    """Read the sources, the most important first."""
    given = {name: value for name, value in flags.items() if value is not None}
    environment = [_read_environment(), _read_secret_files()]
    sources = [_SettingsSource("--{dashed}", given), *environment, _read_file(folder / FILE_NAME)]
    lake = _find_first(sources, "lake", Settings().lake)
    return [*sources, _read_lake_file(Path(str(lake)), folder)]


def _merge(sources: list[_SettingsSource]) -> Settings:
    merged = {name: value for source in reversed(sources) for name, value in source.values.items()}
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as invalid:
        raise InvalidSettingsError(_explain(invalid, sources)) from invalid
    spelled = {name: source.spell(name) for source in reversed(sources) for name in source.values}
    return settings.with_sources(spelled)


def _show(name: str, value: object) -> object:
    """Return a value as it may be printed: no secret, and no password of a URL."""
    if _is_secret(name):
        return "unset" if value is None else "set"
    if isinstance(value, tuple):
        return tuple(mask_secrets(str(item)) for item in value)
    return mask_secrets(str(value)) if isinstance(value, str | Path) else value


def mask_secrets(text: str) -> str:
    """Mask the user and password of a URL, and values of parameters whose names are those of secrets."""
    return _SECRET_PARAMETER_PATTERN.sub(r"\1…", _USER_PATTERN.sub("//…@", text))


def _find_first(sources: list[_SettingsSource], name: str, default: object) -> object:
    return next((source.values[name] for source in sources if name in source.values), default)


def _read_environment() -> _SettingsSource:
    source = _SettingsSource(PREFIX + "{upper}", {})
    known = {source.spell(name) for name in Settings.model_fields} | _list_secret_files().keys()
    for variable in sorted(os.environ):
        name = variable.upper()
        if name.startswith(PREFIX) and not name.startswith(CLIENT_PREFIXES) and name not in known:
            message = f"{variable} is not a setting{_suggest_nearest(name, known)}"
            raise InvalidSettingsError(message)
        _check_filled(variable, name.removeprefix(PREFIX).lower(), os.environ[variable])
    try:
        return _SettingsSource(source.spelling, EnvSettingsSource(Settings)())
    except SettingsError as broken:
        raise InvalidSettingsError(str(broken)) from broken


def _list_secret_files() -> dict[str, str]:
    """Return the variables that name files with secrets, and the setting of each."""
    names = (name for name in Settings.model_fields if _is_secret(name) or name == "database_url")
    return {f"{PREFIX}{name.upper()}_FILE": name for name in names}


def forget_secret_files() -> None:
    """Remove the variables that name files with secrets from the environment, once it has the secrets themselves."""
    for variable in _list_secret_files():
        os.environ.pop(variable, None)


def _read_secret_files() -> _SettingsSource:
    values: dict[str, object] = {}
    for variable, name in _list_secret_files().items():
        path = os.environ.get(variable)
        if not path:
            continue
        if os.environ.get(PREFIX + name.upper()):
            raise InvalidSettingsError(f"{variable} and {PREFIX}{name.upper()} are both set: unset one of them")
        try:
            values[name] = Path(path).read_text().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as broken:
            raise InvalidSettingsError(f"{variable} names {path}, which can't be read: {broken}") from broken
        _check_filled(f"{path}, which {variable} names,", name, values[name])
    return _SettingsSource(PREFIX + "{upper}_FILE", values)


def _read_file(path: Path) -> _SettingsSource:
    try:
        values = TomlConfigSettingsSource(Settings, path)() if path.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as broken:
        message = f"{path} can't be read: {broken}"
        raise InvalidSettingsError(message) from broken
    known = set(Settings.model_fields)
    for name in values:
        if name not in known:
            message = f"{name} in {path} is not a setting{_suggest_nearest(name, known)}"
            raise InvalidSettingsError(message)
        _check_filled(f"{name} in {path}", name, values[name])
    return _SettingsSource(f"{{name}} in {path}", values)


def _check_filled(spelling: str, name: str, value: object) -> None:
    """Raise InvalidSettingsError for an empty value of a setting that restricts access."""
    if isinstance(value, str) and not value.strip() and (name in _PROTECTIVE_NAMES or _is_secret(name)):
        message = f"{spelling} is set, but empty: give it a value, or unset it to run without it"
        raise InvalidSettingsError(message)


def _is_secret(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and "SecretStr" in str(field.annotation)


def _read_lake_file(lake: Path, folder: Path) -> _SettingsSource:
    path = folder / lake / FILE_NAME
    source = _read_file(path)
    named = source.values.get("lake")
    if named is not None and (folder / str(named)).resolve() != (folder / lake).resolve():
        message = f"lake in {path} names {named}, but the file lies in the lake {lake}: remove that line"
        raise InvalidSettingsError(message)
    return _SettingsSource(source.spelling, {name: value for name, value in source.values.items() if name != "lake"})


def _suggest_nearest(name: str, known: set[str]) -> str:
    matches = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]}?" if matches else f"; the settings are {', '.join(sorted(known))}"


def _explain(invalid: ValidationError, sources: list[_SettingsSource]) -> str:
    return "; ".join(_explain_one(error["loc"], error["msg"], sources) for error in invalid.errors())


def _explain_one(location: tuple[int | str, ...], message: str, sources: list[_SettingsSource]) -> str:
    text = message.removeprefix("Value error, ")
    if not location:
        return text
    name = str(location[0])
    for source in sources:
        if name in source.values:
            return f"{source.spell(name)} is {_mask(name, source.values[name])}: {text}"
    return f"{name}: {text}"


def _mask(name: str, value: object) -> str:
    """Format a value for a message, with secrets masked."""
    return "wrong" if _is_secret(name) else mask_secrets(repr(value))
