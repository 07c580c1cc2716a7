"""Translate what obstore and boto3 raise into the error tree; messages never contain keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from duckicelake.errors import (
    CatalogError,
    FileMissingError,
    InvalidRequestError,
    InvalidSettingsError,
    StoreDeniedError,
    UnavailableError,
)
from duckicelake.extras import DeferredModule
from duckicelake.storage.failed_requests import (
    CERTIFICATE_REASON,
    MISPLACED_CODES,
    REDIRECT_STATUSES,
    RequestFailedError,
)

if TYPE_CHECKING:
    from botocore import exceptions as boto_errors
else:
    boto_errors = DeferredModule("botocore.exceptions")

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
_KEY_CODES: Final = ("KMS.", "kms:")
"""Of Amazon's and of MinIO's key management."""
_KEY_ADVICE: Final = "correct DUCKICELAKE_S3_KMS_KEY, enable that key, and let the server's key of the store use it"
_ADVICE: Final = {
    "AccessDenied": "let the server's key get, put, delete and list objects there",
    "ExpiredToken": "its session token has expired: set a new one",
    "ExpiredTokenException": "its session token has expired: set a new one",
    "InvalidAccessKeyId": "the store doesn't know the server's access key: correct DUCKICELAKE_S3_ACCESS_KEY_ID",
    "InvalidToken": "its session token isn't valid: correct DUCKICELAKE_S3_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "SignatureDoesNotMatch": "the secret isn't the access key's: correct DUCKICELAKE_S3_SECRET_ACCESS_KEY",
}


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
    if failure.reason == CERTIFICATE_REASON:
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
    if code.startswith(_KEY_CODES):
        return StoreDeniedError(f"{location}: the store can't encrypt or decrypt it ({code}): {_KEY_ADVICE}")
    if status == 404:
        return FileMissingError(f"{location} doesn't exist")
    if code in _ADVICE or status in {401, 403}:
        return StoreDeniedError(f"{location}: access denied ({shown}): {_ADVICE.get(code, _ADVICE['AccessDenied'])}")
    if code in _BAD_NAME_CODES:
        return InvalidRequestError(f"{location} isn't a usable name of a file in S3 ({code})")
    if code in MISPLACED_CODES or status == 301:
        return UnavailableError(f"{location}: its bucket is in another region ({shown}): correct DUCKICELAKE_S3_REGION")
    if status in REDIRECT_STATUSES:
        return _build_redirected(location, endpoint)
    return UnavailableError(f"{location}: the store answers {status} ({shown})")


def _build_redirected(location: str, endpoint: str | None) -> UnavailableError:
    return UnavailableError(
        f"{location}: {_describe_store(endpoint)} only redirects: "
        "correct DUCKICELAKE_S3_ENDPOINT or DUCKICELAKE_S3_REGION"
    )


def _describe_store(endpoint: str | None) -> str:
    return f"the store at {endpoint}" if endpoint else "S3"
