"""Translate what obstore and boto3 raise into the error tree; messages never contain keys."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from duckicelake.errors import (
    CatalogError,
    FileMissingError,
    InvalidRequestError,
    InvalidSettingsError,
    StoreDeniedError,
    UnavailableError,
)
from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    from botocore import exceptions as boto_errors
    from obstore import exceptions as obstore_errors
else:
    boto_errors, obstore_errors = DeferredModule("botocore.exceptions"), DeferredModule("obstore.exceptions")

_BAD_NAME_CODES: Final = frozenset(
    {
        "InvalidBucketName",
        "InvalidObjectName",
        "InvalidURI",
        "KeyTooLongError",
        "XMinioInvalidObjectName",
        "XMinioInvalidResourceName",
        "XMinioParentIsObject",
    }
)
_ADVICE: Final = {
    "AccessDenied": "let the server's key get, put, delete and list objects there",
    "ExpiredToken": "its session token has expired: set a new one",
    "ExpiredTokenException": "its session token has expired: set a new one",
    "InvalidAccessKeyId": "the store doesn't know the server's access key: correct DUCKICELAKE_S3_ACCESS_KEY_ID",
    "InvalidToken": "its session token isn't valid: correct DUCKICELAKE_S3_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "SignatureDoesNotMatch": "the secret isn't the access key's: correct DUCKICELAKE_S3_SECRET_ACCESS_KEY",
}
_MISPLACED_CODES: Final = frozenset(
    {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
)
_REDIRECT_STATUSES: Final = frozenset({301, 302, 307, 308})
_BUSY_CODES: Final = frozenset({"RequestTimeout", "RequestTimeoutException", "SlowDown", "Throttling"})
_BUSY_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
_ANSWER_PATTERN: Final = re.compile(
    r"Error performing (?P<method>\S+) \S+ in \S+ +- (?:"
    r"Server returned non-2xx status code: (?P<status>\d{3})[^:\n]*:"
    r"(?: <(?:(?!\nDebug source:).)*?<Code>(?P<code>[A-Za-z0-9.]+)</Code>)?"
    r"(?:(?:(?!\nDebug source:).)*?<Region>(?P<region>[a-z0-9-]+)</Region>)?"
    r"|(?P<redirect>Received redirect without LOCATION))",
    re.DOTALL,
)
"""What obstore writes about an answer. The path before it and the store's XML behind it may contain a client's text."""

_KIND_PATTERN: Final = re.compile(r"HttpError \{\s+kind: (\w+)")
_CERTIFICATE_REASON: Final = "certificate"
_CAUSE_PATTERN: Final = re.compile(r'"([^"\n]+)"')


class RequestFailedError(Exception):
    """obstore's request failed.

    Attributes:
        method: of HTTP.
        status: None without an answer.
        code: the store's word for the reason, empty without one.
        region: the bucket's region, if the store names it.
        reason: why there is no answer.

    """

    def __init__(self, method: str, status: int | None, code: str, region: str | None, reason: str) -> None:
        super().__init__(f"{method} {status} {code}")
        self.method, self.status, self.code, self.region, self.reason = method, status, code, region, reason

    @classmethod
    def from_obstore(cls, error: Exception, key: str) -> Self:
        """Read what an error of obstore says of a request about a key."""
        text = str(error)
        start = (
            0 if isinstance(error, obstore_errors.GenericError) else text.find(key) + len(key)
        )  # others name the key first
        found = _ANSWER_PATTERN.search(text, start)
        if found is None:
            return cls("", None, "", None, _summarize_cause(text))
        status = 301 if found["redirect"] else int(found["status"])
        return cls(found["method"], status, found["code"] or "", found["region"], "")

    @property
    def is_misplaced(self) -> bool:
        """Whether the bucket may be in another region."""
        is_unexplained = (self.method, self.status) == ("HEAD", 400)
        return is_unexplained or self.code in _MISPLACED_CODES or self.status in _REDIRECT_STATUSES

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed soon."""
        return self.status is None or self.status in _BUSY_STATUSES or self.code in _BUSY_CODES


@contextmanager
def translate_s3_errors(location: str, endpoint: str | None = None) -> Iterator[None]:
    """Raise an error of the error tree for one of obstore or boto3 about a location."""
    try:
        yield
    except RequestFailedError as error:
        raise _translate_failure(location, endpoint, error) from error
    except boto_errors.ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        raise _translate_answer(location, endpoint, status, error.response["Error"]["Code"]) from error
    except (boto_errors.ParamValidationError, UnicodeEncodeError) as error:
        raise InvalidRequestError(f"{location!r} isn't a usable name of a file in S3") from error
    except (
        boto_errors.CredentialRetrievalError,
        boto_errors.NoCredentialsError,
        boto_errors.PartialCredentialsError,
        boto_errors.TokenRetrievalError,
    ) as error:
        raise StoreDeniedError(
            f"{location}: the server has no credentials for S3 any more ({type(error).__name__})"
        ) from error
    except boto_errors.SSLError as error:
        raise UnavailableError(
            f"{location}: {_describe_store(endpoint)} has no TLS certificate that is trusted here"
        ) from error
    except (boto_errors.ConnectionError, boto_errors.HTTPClientError) as error:
        raise UnavailableError(
            f"{location}: {_describe_store(endpoint)} doesn't answer ({type(error).__name__})"
        ) from error
    except RecursionError as error:  # boto3 follows redirects without end
        raise _build_redirected(location, endpoint) from error
    except boto_errors.BotoCoreError as error:
        raise UnavailableError(f"{location}: {type(error).__name__}") from error
    except ValueError as error:
        raise UnavailableError(f"{location}: the settings for S3 can't be used: {error}") from error


@contextmanager
def translate_settings_errors() -> Iterator[None]:
    """Raise InvalidSettingsError if boto3 can't make a session or a client."""
    try:
        yield
    except (boto_errors.BotoCoreError, ValueError) as error:
        raise InvalidSettingsError(f"the settings for S3, DUCKICELAKE_S3_…, can't be used: {error}") from error


def _translate_failure(location: str, endpoint: str | None, failure: RequestFailedError) -> CatalogError:
    if failure.status is not None:
        return _translate_answer(location, endpoint, failure.status, failure.code, is_object=failure.method != "PUT")
    if failure.reason == _CERTIFICATE_REASON:
        return UnavailableError(f"{location}: {_describe_store(endpoint)} has no TLS certificate that is trusted here")
    return UnavailableError(f"{location}: {_describe_store(endpoint)} doesn't answer ({failure.reason})")


def _translate_answer(
    location: str, endpoint: str | None, status: int, code: str, *, is_object: bool = False
) -> CatalogError:
    """Build the error for an answer. is_object: a missing bucket is a missing file."""
    shown = code or status
    if code == "NoSuchBucket":
        bucket = location.partition("://")[2].partition("/")[0]
        kind = FileMissingError if is_object else UnavailableError
        return kind(f"{location}: the bucket {bucket} doesn't exist: make it, or name another")
    if status == 404:
        return FileMissingError(f"{location} doesn't exist")
    if code in _ADVICE or status in {401, 403}:
        return StoreDeniedError(f"{location}: access denied ({shown}): {_ADVICE.get(code, _ADVICE['AccessDenied'])}")
    if code in _BAD_NAME_CODES:
        return InvalidRequestError(f"{location} isn't a usable name of a file in S3 ({code})")
    if code in _MISPLACED_CODES or status == 301:
        return UnavailableError(f"{location}: its bucket is in another region ({shown}): correct DUCKICELAKE_S3_REGION")
    if status in _REDIRECT_STATUSES:
        return _build_redirected(location, endpoint)
    return UnavailableError(f"{location}: the store answers {status} ({shown})")


def _build_redirected(location: str, endpoint: str | None) -> UnavailableError:
    return UnavailableError(
        f"{location}: {_describe_store(endpoint)} only redirects: "
        "correct DUCKICELAKE_S3_ENDPOINT or DUCKICELAKE_S3_REGION"
    )


def _describe_store(endpoint: str | None) -> str:
    return f"the store at {endpoint}" if endpoint else "S3"


def _summarize_cause(text: str) -> str:
    """Return what a message of obstore's says about a missing answer: `timeout`, `connect: tcp connect error: …`."""
    kind = _KIND_PATTERN.search(text)
    if kind is not None and "InvalidCertificate" in text[kind.end() :]:
        return _CERTIFICATE_REASON
    if kind is None:
        return text.partition("\n")[0].rpartition(" - ")[2]
    causes = _CAUSE_PATTERN.findall(text, kind.end())
    return ": ".join((kind[1].lower(), *causes))
