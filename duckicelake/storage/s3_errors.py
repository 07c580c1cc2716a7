"""Translate what boto3 raises into the error tree; messages never contain keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    SSLError,
    TokenRetrievalError,
)

from duckicelake.errors import (
    CatalogError,
    FileMissingError,
    InvalidRequestError,
    InvalidSettingsError,
    StoreDeniedError,
    UnavailableError,
)

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
_NO_CREDENTIALS_ERRORS: Final = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
)


@contextmanager
def translate_s3_errors(location: str, endpoint: str | None = None) -> Iterator[None]:
    """Translate what boto3 raises about a location.

    Raises FileMissingError, InvalidRequestError, StoreDeniedError, UnavailableError.
    """
    try:
        yield
    except ClientError as error:
        raise _translate_response(location, error) from error
    except (ParamValidationError, UnicodeEncodeError) as error:
        raise InvalidRequestError(f"{location!r} isn't a usable name of a file in S3") from error
    except _NO_CREDENTIALS_ERRORS as error:
        raise StoreDeniedError(
            f"{location}: the server has no credentials for S3 any more ({type(error).__name__})"
        ) from error
    except SSLError as error:
        raise UnavailableError(
            f"{location}: {_describe_store(endpoint)} has no TLS certificate that is trusted here"
        ) from error
    except (ConnectionError, HTTPClientError) as error:
        raise UnavailableError(
            f"{location}: {_describe_store(endpoint)} doesn't answer ({type(error).__name__})"
        ) from error
    except RecursionError as error:  # boto3 follows redirections without end so far
        raise UnavailableError(
            f"{location}: {_describe_store(endpoint)} only redirects: "
            "correct DUCKICELAKE_S3_ENDPOINT or DUCKICELAKE_S3_REGION"
        ) from error
    except BotoCoreError as error:
        raise UnavailableError(f"{location}: {type(error).__name__}") from error


@contextmanager
def translate_settings_errors() -> Iterator[None]:
    """Raise InvalidSettingsError if boto3 can't make a session or a client."""
    try:
        yield
    except (BotoCoreError, ValueError) as error:
        raise InvalidSettingsError(f"the settings for S3, DUCKICELAKE_S3_…, can't be used: {error}") from error


def _translate_response(location: str, error: ClientError) -> CatalogError:
    code = error.response["Error"]["Code"]
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    if code == "NoSuchBucket":
        bucket = location.partition("://")[2].partition("/")[0]
        kind = FileMissingError if error.operation_name in {"GetObject", "DeleteObject"} else UnavailableError
        return kind(f"{location}: the bucket {bucket} doesn't exist: make it, or name another")
    if status == 404:
        return FileMissingError(f"{location} doesn't exist")
    if code in _ADVICE or status in {401, 403}:
        return StoreDeniedError(f"{location}: access denied ({code}): {_ADVICE.get(code, _ADVICE['AccessDenied'])}")
    if code in _BAD_NAME_CODES:
        return InvalidRequestError(f"{location} isn't a usable name of a file in S3 ({code})")
    if code in _MISPLACED_CODES or status == 301:
        return UnavailableError(f"{location}: its bucket is in another region ({code}): correct DUCKICELAKE_S3_REGION")
    return UnavailableError(f"{location}: the store answers {status} ({code})")


def _describe_store(endpoint: str | None) -> str:
    return f"the store at {endpoint}" if endpoint else "S3"
