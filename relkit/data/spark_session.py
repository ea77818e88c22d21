"""A Spark context that is gone, with its JVM, when it has done its work."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import TimeoutExpired
from typing import Any

from relkit.errors import MissingExtra, RelkitError, ToolMissing

JVM_STOP_TIMEOUT_S = 30.0
LOOPBACK = "127.0.0.1"
# Set by spark-submit for the program that it starts.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
ADVICE = "Is relkit installed on the executors, and do they see the same files as the driver?"


@contextmanager
def spark_context(master: str, cores: int = 1) -> Iterator[Any]:
    """The active Spark context, left as it is, or a new one, ended with all it started.

    Args:
        master: URL of the master of a new one; "": what spark-submit was told, where it has started
            us, and else a local one. That listens on the loopback only.
        cores: of a local one.

    Raises:
        MissingExtra: pyspark is not installed.
        ToolMissing: Java is not.
        RelkitError: Spark failed; its own words.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise MissingExtra(
            "--engine spark needs the pyspark package", next_step="pip install pyspark"
        ) from error
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise ToolMissing("Spark needs Java, and there is none: no java on PATH, no JAVA_HOME")
    active = SparkContext._active_spark_context
    if active is not None:
        yield active
        return
    conf = SparkConf()
    is_submitted = SUBMITTED in os.environ
    if not master and not is_submitted:
        master = f"local[{cores}]"
    if master:
        conf.setMaster(master)
    is_local = master.startswith("local") and not is_submitted
    if not is_submitted:
        # What spark-submit was told, its --name and --conf, holds as it is.
        conf.setAppName("relkit data preprocess").set("spark.ui.enabled", "false")
        conf.set("spark.ui.showConsoleProgress", "false")
        conf.set("spark.log.level", "OFF" if is_local else "ERROR")
    if is_local:
        conf.set("spark.driver.bindAddress", LOOPBACK).set("spark.driver.host", LOOPBACK)
    try:
        with _environment(is_local):
            context = SparkContext(conf=conf)
        try:
            yield context
        except (Py4JError, PySparkException) as error:
            # Asked for here: a Java error's words are still in the JVM.
            raise RelkitError(f"Spark failed: {_cause(str(error))}", next_step=ADVICE) from error
        finally:
            context.stop()
    except (Py4JError, PySparkException) as error:
        raise RelkitError(f"Spark does not start: {_cause(str(error))}", next_step="") from error
    finally:
        _end_jvm(SparkContext)


@contextmanager
def _environment(is_local: bool) -> Iterator[None]:
    """What Spark takes from the environment alone, for as long as it starts."""
    # A local Spark has this Python, and its executors no other address than its driver.
    wanted = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK} if is_local else {}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _cause(words: str) -> str:
    """The line that says most: of a Python worker's traceback the last, else the first."""
    lines = [line.strip() for line in words.strip().split("\n") if line.strip()]
    errors = [line for line in lines if "Error: " in line and not line.startswith("at ")]
    return (errors or lines or ["no reason given"])[-1 if errors else 0][:300]


def _end_jvm(spark: Any) -> None:  # noqa: ANN401
    """End the JVM that a stopped context leaves running until Python itself ends."""
    gateway, spark._gateway, spark._jvm = spark._gateway, None, None
    if gateway is None:
        return
    gateway.shutdown()
    jvm = gateway.proc
    # None where spark-submit has started us: then the JVM is not ours.
    if jvm is None:
        return
    jvm.stdin.close()
    try:
        jvm.wait(JVM_STOP_TIMEOUT_S)
    except TimeoutExpired:
        jvm.kill()
        jvm.wait()
