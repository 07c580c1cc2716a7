"""Explain errors of Spark, Java and Iceberg in one line with advice."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from duckicelake.errors import (
    BadColumnError,
    BadCredentialsError,
    BadInputError,
    BadSourceError,
    CatalogUnreachableError,
    JobConflictError,
    MissingPackagesError,
    MissingTableError,
    NotAllowedError,
    OutOfMemoryError,
    PipelineError,
)

OUT_OF_MEMORY: Final = (
    "Spark ran out of memory: give it more, with --conf spark.driver.memory=8g where it is local, else "
    "--conf spark.executor.memory=8g; or let it do less at a time, with --master local[N] of fewer threads"
)
_EXECUTOR_ENDED: Final = f"an executor ended as it was given a task, which is how it looks when {OUT_OF_MEMORY}"
_FAILURE_MARKS: Final[Mapping[str, tuple[type[PipelineError], str]]] = {
    r"OutOfMemoryError|[Cc]ommand exited with code 52|exit(?:ed with)? code:? 137|OOMKilled": (
        OutOfMemoryError,
        OUT_OF_MEMORY,
    ),
    r"rejected from java\.util\.concurrent\.ThreadPoolExecutor@\w+\[Shutting down": (OutOfMemoryError, _EXECUTOR_ENDED),
    r"NotAuthorizedException": (BadCredentialsError, "check --credential, --token and --oauth2-server-uri"),
    r"ForbiddenException": (NotAllowedError, "the client's scopes don't reach so far"),
    r"UNRESOLVED_COLUMN|CANNOT_RESOLVE_COLUMN|Cannot find (?:source )?(?:column|field)|"
    r"Invalid source type|INCOMPATIBLE_DATA_FOR_TABLE|INSERT_COLUMN_ARITY_MISMATCH|NUM_COLUMNS_MISMATCH": (
        BadColumnError,
        "check the columns' names and types",
    ),
    r"COLUMN_ALREADY_EXISTS": (BadSourceError, "two columns have names that differ at most by case"),
    r"(?<=CSV header does not conform to the schema\.\n )Header: ": (
        BadSourceError,
        "a CSV file names a column twice, regardless of case",
    ),
    r"FAILED_READ_FILE|CANNOT_READ_FILE": (BadSourceError, "the file is damaged, or isn't of this format"),
    r"PATH_NOT_FOUND|FileNotFoundException|Path does not exist": (
        BadSourceError,
        "check the path; every executor must see it",
    ),
    r"TABLE_OR_VIEW_NOT_FOUND|NoSuchTableException": (MissingTableError, "check the name, as ns.table"),
    r"SCHEMA_NOT_FOUND|NoSuchNamespaceException": (BadInputError, "create the namespace first"),
    r"Cannot find snapshot": (BadInputError, "check its id"),
    r"BadRequestException": (BadInputError, "the catalog doesn't take that"),
    r"Cannot find catalog plugin class|ClassNotFoundException: org.apache.iceberg": (
        MissingPackagesError,
        "give spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    ),
    r"Unknown catalog type": (BadInputError, "--source type is rest, hive, hadoop, glue or jdbc"),
    r"HttpHostConnectException|UnknownHostException|ConnectTimeoutException": (
        CatalogUnreachableError,
        "is the catalog running?",
    ),
    r"RESTException|RuntimeMetaException: Failed|ServiceUnavailableException|ServiceFailureException": (
        CatalogUnreachableError,
        "is the catalog running?",
    ),
}
"""Each is looked for in the error with all its causes, in this order."""
_ICEBERG_PREFIX: Final = "org.apache.iceberg.exceptions."
_CONFLICT_EXCEPTIONS: Final = frozenset(
    {
        f"{_ICEBERG_PREFIX}AlreadyExistsException",
        f"{_ICEBERG_PREFIX}CommitFailedException",
        f"{_ICEBERG_PREFIX}NotFoundException",
        "java.util.ConcurrentModificationException",
        "org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException",
        "org.apache.spark.SparkConcurrentModificationException",
    }
)
_CONFLICT_MESSAGE: Final = re.compile(
    "Found |Missing required files|Cannot commit|Cannot determine history|Cannot remove dangling deletes: current"
)
"""How Iceberg's ValidationException begins where another writer was faster, and not where a request is impossible."""
_JVM_DEATH_MESSAGES: Final = (
    "Answer from Java side is empty",
    "SparkContext was shut down",
    "Error while sending or receiving",
)
_MAX_LINE_CHARACTERS: Final = 500
_JAVA_PREFIX: Final = re.compile(r"^(?:An error occurred while calling \S+\.?|: |[\w.$]+(?:Exception|Error): )+")


def explain_failure(error: BaseException) -> PipelineError | None:
    """Return the error as one of ours, with what to do about it.

    None for a bug, whose traceback is all there is to say.

    To be asked while Spark still runs: it is asked for the message.
    """
    if isinstance(error, PipelineError):
        return error
    if not _is_spark_error(error):
        return None
    text = _collect_message(error)
    if is_conflict(error):
        explanation = "others wrote to the table at the same time; nothing was committed: run it again"
        return JobConflictError(f"{_find_line(text, 0)}; {explanation}")
    for mark, (kind, advice) in _FAILURE_MARKS.items():
        found = re.search(mark, text)
        if found is not None:
            return kind(advice if kind is OutOfMemoryError else f"{_find_line(text, found.start())}; {advice}")
    return PipelineError(_find_line(text, text.rfind("Caused by: ") + 1))


def is_conflict(error: BaseException) -> bool:
    """Return whether trying again may help, as others changed the table meanwhile, or removed files of it."""
    if isinstance(error, JobConflictError):
        return True
    causes = list(_list_java_causes(error))
    names = {name for name, _ in causes}
    return (
        not names.isdisjoint(_CONFLICT_EXCEPTIONS)
        or any(
            name == f"{_ICEBERG_PREFIX}ValidationException" and _CONFLICT_MESSAGE.match(explanation)
            for name, explanation in causes
        )
        or ("java.io.FileNotFoundException" in names and any(name.startswith(_ICEBERG_PREFIX) for name in names))
    )


def _list_java_causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield class and message of Java's exception and of what caused it. Pyspark keeps it under two names."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(Exception):  # the JVM may have died
        while cause is not None:
            yield str(cause.getClass().getName()), str(cause.getMessage() or "")
            cause = cause.getCause()


def is_jvm_death(error: BaseException) -> bool:
    """Return whether the error is what is heard of a JVM that has died, or is about to."""
    return isinstance(error, ConnectionError) or any(mark in _collect_message(error) for mark in _JVM_DEATH_MESSAGES)


def _is_spark_error(error: BaseException) -> bool:
    return any(kind.__module__.startswith(("pyspark.", "py4j.")) for kind in type(error).__mro__)


def _collect_message(error: BaseException) -> str:
    """Collect the message of an error of Java, with those of its causes, which pyspark leaves out."""
    try:
        text = str(error)
        causes = (
            f"Caused by: {name}: {explanation}"
            for name, explanation in _list_java_causes(error)
            if explanation not in text
        )
        return "\n".join((text, *causes))
    except Exception:  # noqa: BLE001 - any error means that the JVM has died
        return _JVM_DEATH_MESSAGES[0]


def _find_line(text: str, at: int) -> str:
    """Return the line that says it, or the first that says something; without the names of Java's classes before it."""
    start = text.rfind("\n", 0, at) + 1
    for line in (*text[start:].splitlines()[:1], *text.splitlines()):
        said = _JAVA_PREFIX.sub("", line.removeprefix("Caused by: ").strip()).strip()
        if said:
            return said[:_MAX_LINE_CHARACTERS]
    return "Spark failed without a word"
