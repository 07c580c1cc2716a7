"""Start and stop Spark's JVM: settings, log file, interruption, and why it failed."""

from __future__ import annotations

import _thread
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import STDOUT, Popen, TimeoutExpired
from tempfile import mkstemp
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from duckicelake.errors import (
    MissingJavaError,
    MissingPackagesError,
    MissingRequirementError,
    OutOfMemoryError,
    PipelineError,
)
from duckicelake.pipeline.failures import OUT_OF_MEMORY, explain_failure, is_jvm_death

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

REDACTION_KEY: Final = "spark.redaction.regex"
SECRETS_PATTERN: Final = "(?i)secret|password|token|a(ccess|pi)[.-]?key|credential|authorization"
"""Spark's own pattern, and what Iceberg's catalogs are given."""
_RETRY_SECONDS: Final = 0.2
_PY4J_PREFIX: Final = "py4j."
ICEBERG_PACKAGE: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ICEBERG_AWS_PACKAGE: Final = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
"""For lakes on S3."""
_STOP_SECONDS: Final = 60
_DEATH_SECONDS: Final = 5
_OUT_OF_MEMORY_EXIT: Final = 52
"""What Spark's processes exit with that ran out of it."""
_START_FAILURES: Final[Sequence[tuple[str, type[MissingRequirementError], str]]] = (
    (
        "JAVA_HOME is not set",
        MissingJavaError,
        "there is no Java: install a JDK 17 or newer, and set JAVA_HOME if it isn't found",
    ),
    ("/bin/java: No such file", MissingJavaError, "JAVA_HOME names no JDK: set it to one of version 17 or newer"),
    ("/bin/java: Permission denied", MissingJavaError, "JAVA_HOME names no JDK: set it to one of version 17 or newer"),
    ("UnsupportedClassVersionError", MissingJavaError, "this Java is too old: Spark needs 17 or newer"),
    (
        "unresolved dependency",
        MissingPackagesError,
        "Spark's packages can't be had from Maven: is there a network, or a mirror?",
    ),
    (
        "Unable to locate package",
        MissingPackagesError,
        "Spark's packages can't be had from Maven: is there a network, or a mirror?",
    ),
)


def hide_secrets(spark: SparkSession) -> None:
    """Keep secrets of later sessions out of Spark's pages, unless the user has set what to hide."""
    _get_live_conf(spark).setIfMissing(REDACTION_KEY, SECRETS_PATTERN)


def configure(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set them in the session alone, and keep secrets among them out of Spark's event log.

    A session's settings are written there with each job; hidden are those that the SparkConf, too, has a value for.
    """
    for name, value in settings.items():
        if re.search(SECRETS_PATTERN, name):
            _get_live_conf(spark).setIfMissing(name, "")
        spark.conf.set(name, value)


def _get_live_conf(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc().conf()  # noqa: SLF001


class Interruption:
    """Whether Ctrl-C was pressed. The second time ends the process at once."""

    def __init__(self) -> None:
        self.has_come = False
        self._spark: SparkContext | None = None
        self._is_echo = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._press_on, name="interruption", daemon=True)

    def cancels_jobs_of(self, spark: SparkContext) -> None:
        """Cancel jobs from now on; pyspark's own handler runs just before."""
        self._spark = spark
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._come)

    def end(self) -> None:
        """Forget about it."""
        self._over.set()
        if self.has_come:
            self._thread.join()

    def _come(self, _: int, frame: FrameType | None) -> None:
        is_echo, self._is_echo = self._is_echo, False
        is_second = self.has_come and not is_echo
        if not self.has_come:
            self.has_come = True
            self._thread.start()
        if is_second or not _waits_for_java(frame):
            self._over.set()
            raise KeyboardInterrupt

    def _press_on(self) -> None:
        """Cancel what Spark does, and press again until no call to Java is in the way: its jobs may only come yet."""
        self._cancel_jobs()
        while not self._over.wait(_RETRY_SECONDS):
            self._cancel_jobs()
            self._is_echo = True
            _thread.interrupt_main()

    def _cancel_jobs(self) -> None:
        with suppress(Exception):  # it may be stopping already
            if self._spark is not None:
                self._spark.cancelAllJobs()


@contextmanager
def catch_interruption() -> Iterator[Interruption]:
    """Yield what happens to Ctrl-C within the block."""
    interruption, before = Interruption(), signal.getsignal(signal.SIGINT)
    try:
        yield interruption
    finally:
        interruption.end()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _waits_for_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_PY4J_PREFIX):
            return True
        frame = frame.f_back
    return False


def is_submitted() -> bool:
    """Return whether spark-submit has started this process, and its JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def build_launch_conf(master: str | None, packages: Sequence[str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return what must be said when Spark starts.

    `conf` wins. Under spark-submit it has been said where, and with what.
    """
    base_conf = {
        "spark.app.name": "duckicelake",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        REDACTION_KEY: SECRETS_PATTERN,
    }
    if not is_submitted():
        base_conf |= _build_local_conf(master or "local[*]")
        more = filter(None, conf.get("spark.jars.packages", "").split(","))
        return {
            **base_conf,
            **conf,
            "spark.jars.packages": ",".join(dict.fromkeys((ICEBERG_PACKAGE, *packages, *more))),
        }
    return {**base_conf, **conf}


def _build_local_conf(master: str) -> dict[str, str]:
    base_conf = {"spark.master": master, "spark.ui.enabled": "false"}
    if master.startswith("local"):
        base_conf |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{_compute_megabytes()}m",
            "spark.pyspark.python": sys.executable,
        }
    return base_conf


def _compute_megabytes() -> int:
    """Return a quarter of the machine's memory, as the one JVM does all the work."""
    return max(1024, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 // 1024**2)


@contextmanager
def launch_spark(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark of its own while the block runs.

    Its log is kept, and named, where the reason of a failure is unknown.

    Raises MissingJavaError, MissingPackagesError where Spark doesn't start, OutOfMemoryError where its JVM dies of
    that, what `explained` says of other errors of Spark's, and KeyboardInterrupt after Ctrl-C, whatever that made fail.
    """
    with catch_interruption() as interruption, _launch_spark(conf, interruption) as session:
        yield session


@contextmanager
def _launch_spark(conf: Mapping[str, str], interruption: Interruption) -> Iterator[SparkSession]:
    descriptor, name = mkstemp(prefix="duckicelake-spark-", suffix=".log")
    log = Path(name)
    with os.fdopen(descriptor, "wb") as output:
        try:
            session = _start_session(conf, output, log, interruption)
        except BaseException as error:
            if not (interruption.has_come or _is_interruption(error)):
                raise
            log.unlink()
            raise KeyboardInterrupt from error
    process: Popen[bytes] | None = session.sparkContext._gateway.proc  # type: ignore[union-attr] # noqa: SLF001
    is_clear = True
    try:
        yield session
    except Exception as error:
        if interruption.has_come:
            raise KeyboardInterrupt from error
        failure = _explain_death(process, error) or explain_failure(error)
        is_clear = process is None or type(failure) not in {PipelineError, type(None)}
        if not is_clear:
            (failure or error).add_note(f"Spark's log is {log}")
        if failure is None or failure is error:
            raise
        raise failure from error
    finally:
        _stop_spark(session, process)
        if is_clear:
            log.unlink()


def _start_session(conf: Mapping[str, str], output: Any, log: Path, interruption: Interruption) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    try:
        with end_orphaned_jvm():
            gateway = launch_gateway(settings, {"stdout": output, "stderr": STDOUT})  # type: ignore[no-untyped-call]
    except (PySparkRuntimeError, OSError) as error:
        raise _explain_start_failure(log.read_text(errors="replace"), log) from error
    interruption.cancels_jobs_of(SparkContext(conf=settings, gateway=gateway))
    return SparkSession.builder.getOrCreate()


@contextmanager
def end_orphaned_jvm() -> Iterator[None]:
    """End Spark's JVM where Ctrl-C comes during its start, before pyspark knows it.

    Pyspark would forget the process, which would stay.
    """
    from pyspark import java_gateway

    started = []

    class Noted(Popen[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    before, java_gateway.Popen = java_gateway.Popen, Noted  # type: ignore[attr-defined]
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        java_gateway.Popen = before  # type: ignore[attr-defined]


def _is_interruption(error: BaseException | None) -> bool:
    """Return whether it is Ctrl-C, or what became of that.

    Pyspark stops a context that isn't whole, and fails at it.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _explain_start_failure(text: str, log: Path) -> PipelineError:
    for mark, kind, message in _START_FAILURES:
        if mark in text:
            log.unlink()
            return kind(message)
    return PipelineError(f"Spark doesn't start; its log is {log}")


def _explain_death(process: Popen[bytes] | None, error: Exception) -> PipelineError | None:
    """Return what the JVM died of, if that is what the error means."""
    if process is None or not is_jvm_death(error):
        return None
    try:
        code = process.wait(_DEATH_SECONDS)
    except TimeoutExpired:
        return None
    return (
        OutOfMemoryError(OUT_OF_MEMORY)
        if code == _OUT_OF_MEMORY_EXIT
        else PipelineError(f"Spark's JVM ended with code {code}")
    )


def _stop_spark(session: SparkSession, process: Popen[bytes] | None) -> None:
    """Stop Spark and, if its JVM is this process's, wait for it: what is interrupted may write until then."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway  # noqa: SLF001
    has_process = process is not None and process.stdin is not None

    def stop() -> None:
        with suppress(Exception):  # a JVM that has died can't be asked
            session.stop()
            if has_process and gateway is not None:
                gateway.shutdown()

    stopping = Thread(target=stop, name="stopping", daemon=True)  # the line of this one may be broken
    stopping.start()
    stopping.join(_STOP_SECONDS)
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(_STOP_SECONDS)
        # What is left of it in this process would keep the next one from starting.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
        SparkSession._instantiatedSession = None  # noqa: SLF001
