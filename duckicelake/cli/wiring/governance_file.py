"""The YAML file of `duckicelake export` and `apply`."""

from typing import Any, Final

import yaml

from duckicelake.errors import InvalidRequestError

_MAX_CHARS: Final = 16 * 1024 * 1024


def parse_file(text: str, name: str) -> Any:
    """Parse the text of a file. name: of it, for errors. Raises InvalidRequestError, which names the place."""
    if len(text) > _MAX_CHARS:
        raise InvalidRequestError(f"{name}: expected at most {_MAX_CHARS} characters")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_nodes(node, name)
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise InvalidRequestError(f"{name} is no YAML: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise InvalidRequestError(f"{name} has a value that can't be read: {error}") from error


def format_file(document: Any) -> str:
    """Format a document as a file."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120))


def _check_nodes(node: Any, name: str) -> None:
    """Raise InvalidRequestError for a key that stands twice, and for references."""
    seen: set[int] = set()
    left = [node]
    while left:
        one = left.pop()
        if id(one) in seen:
            raise InvalidRequestError(f"{name} line {one.start_mark.line + 1}: references (&, *) aren't read")
        seen.add(id(one))
        if isinstance(one, yaml.SequenceNode):
            left += one.value
        elif isinstance(one, yaml.MappingNode):
            keys = [key.value for key, _ in one.value if isinstance(key, yaml.ScalarNode)]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise InvalidRequestError(f"{name} line {one.start_mark.line + 1}: {twice} stands twice")
            left += [value for _, value in one.value]
