"""Results and errors as agents get them: structured, with the catalog's own words as data."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from mcp import types
from pydantic import ValidationError

from duckicelake.errors import (
    BadCredentialsError,
    BadInputError,
    CatalogError,
    CatalogUnreachableError,
    JobConflictError,
    MissingTableError,
    NotAllowedError,
    PipelineError,
)
from duckicelake.mcp.tools.tool import NEXT_STEPS, Code, Tool, ToolContext, ToolError

Json: TypeAlias = dict[str, Any]
MAX_RESULT_BYTES: Final = 2 << 20
_MAX_RECORDED_BYTES: Final = 3000
_MAX_WORDS_CHARS: Final = 2000
_log = logging.getLogger("duckicelake.mcp")
_ERRORS: Final[Sequence[tuple[type[Exception], Code, str]]] = (
    (MissingTableError, "not_found", "There is no such table, view, namespace, snapshot or route"),
    (NotAllowedError, "not_allowed", "The catalog refuses this to the caller"),
    (BadCredentialsError, "not_logged_in", "The catalog doesn't accept the token or credential"),
    (JobConflictError, "conflict", "The catalog refuses this because of what is there now"),
    (CatalogUnreachableError, "unavailable", "The catalog doesn't answer, or can't serve this now"),
    (BadInputError, "refused", "The catalog refuses the request"),
    (PipelineError, "refused", "The catalog refuses the request"),
    (CatalogError, "refused", "A value can't be read"),
    (TimeoutError, "timeout", "The call took too long, and was ended"),
)


def run_tool(tool: Tool, context: ToolContext, arguments: Any) -> types.CallToolResult:
    """Run a call; every failure is a result."""
    try:
        structured = tool.run(context, arguments).model_dump(mode="json")
        text = encode_json(structured)
    except Exception as error:  # noqa: BLE001 - agents get every failure as a result
        return build_error(explain_failure(error))
    if len(text) > MAX_RESULT_BYTES:
        return build_error(ToolError("too_large", "The result is too large", bytes=len(text), most=MAX_RESULT_BYTES))
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structuredContent=structured)


def explain_invalid(error: ValidationError) -> ToolError:
    """Explain which arguments are wrong."""
    problems = [
        {"argument": ".".join(map(str, one["loc"])), "problem": one["msg"]}
        for one in error.errors(include_url=False, include_input=False)[:10]
    ]
    return ToolError("invalid_arguments", "The arguments aren't as the tool's input schema says", problems=problems)


def explain_failure(error: Exception) -> ToolError:
    """Return the error of a call, with the catalog's own words as data."""
    if isinstance(error, ToolError):
        return error
    for kind, code, message in _ERRORS:
        if isinstance(error, kind):
            return ToolError(code, message, catalog_says=str(error)[:_MAX_WORDS_CHARS])
    _log.error("a call failed", exc_info=error)
    return ToolError("internal", "The MCP server failed at this call")


def build_error(error: ToolError) -> types.CallToolResult:
    """Build the result of a call that failed."""
    structured = {
        "error": {
            "code": error.code,
            "message": str(error),
            "next_step": NEXT_STEPS[error.code],
            "details": error.details,
        }
    }
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=encode_json(structured))]
    return types.CallToolResult(content=content, structuredContent=structured, isError=True)


def encode_json(value: Any) -> str:
    """Encode as JSON in ASCII: control characters and letters that look like others are escapes."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def shorten_arguments(arguments: Mapping[str, Any]) -> Json:
    """Return the arguments as the audit trail keeps them: without NUL, and cut where they are long."""
    text = encode_json(arguments).replace("\\u0000", "\\ufffd")
    if len(text) <= _MAX_RECORDED_BYTES:
        found: Json = json.loads(text)
        return found
    return {"cut": text[:_MAX_RECORDED_BYTES]}
