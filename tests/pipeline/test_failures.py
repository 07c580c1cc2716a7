"""What Spark tells of its failures, made a line that says what to do. `tests/engines/pipeline` has Spark raise them."""

from py4j.protocol import Py4JError

from duckicelake.errors import OutOfMemoryError
from duckicelake.pipeline.failures import explain_failure


def test_executor_that_ends_while_it_is_given_a_task_is_reported_as_memory_that_ran_out() -> None:
    """Of two tasks the second one is refused by an executor that ends by the first one's error, and is heard first."""
    failure = explain_failure(
        Py4JError(
            "An error occurred while calling o73.collectToPython.\n: org.apache.spark.SparkException: Job aborted due "
            "to stage failure: Task 1 in stage 0.0 failed 1 times, most recent failure: Lost task 1.0 in stage 0.0: "
            "java.util.concurrent.RejectedExecutionException: Task org.apache.spark.executor.Executor$TaskRunner@1cef "
            "rejected from java.util.concurrent.ThreadPoolExecutor@1943f3e8[Shutting down, pool size = 1]"
        )
    )
    assert isinstance(failure, OutOfMemoryError)
    assert str(failure).startswith("an executor ended as it was given a task")
    assert "Spark ran out of memory: give it more" in str(failure)
