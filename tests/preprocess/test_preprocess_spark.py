"""Spark: its pair is the single machine's, byte for byte, and its JVM is gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relkit.data import spark
from relkit.data.preprocess import Job, preprocess
from relkit.data.spark_session import spark_context
from relkit.errors import BadInputFile
from tests.preprocess.text_inputs import gpt2_files, stanzas, write_jsonl

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def listening_beyond_loopback() -> set[str]:
    """Addresses that any process of ours listens at, and others can reach."""
    loopback = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    return {
        f"{process.name()} {one.laddr}"
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]
        for one in process.net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN and one.laddr.ip not in loopback
    }


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.long
def test_spark_submit_runs_the_job_on_the_master_that_it_names(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", stanzas())
    spec = gpt2_files(tmp_path)
    single = tmp_path / "single"
    preprocess(Job(inputs=(str(tmp_path / "in.jsonl"),), output_prefix=str(single), tokenizer=spec))
    logs = tmp_path / "logs"
    logs.mkdir()
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", "local[1]", "--name", "as-told", "--executor-cores=2"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.eventLog.compress=false"),
            *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={logs}"),
            str(Path(__file__).parents[2] / "examples" / "pyspark_preprocess.py"),
            *(
                "--input",
                str(tmp_path / "in.jsonl"),
                "--output-prefix",
                str(tmp_path / "submitted"),
            ),
            *("--tokenizer-type", "GPT2BPETokenizer", "--vocab", spec.vocab_file),
            *("--merge-file", spec.merge_file, "--jsonl-keys", "text", "--workers", "64"),
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Each application has a folder of its own.
    events = "".join(path.read_text() for path in logs.rglob("events*"))
    assert '"spark.master":"local[1]"' in events
    assert '"spark.app.name":"as-told"' in events
    for ending in ("bin", "idx"):
        written = (tmp_path / f"submitted_text_document.{ending}").read_bytes()
        assert written == (tmp_path / f"single_text_document.{ending}").read_bytes()


@pytest.mark.long
def test_shards_become_the_single_machines_pair(tmp_path: Path) -> None:
    texts = stanzas()
    write_jsonl(tmp_path / "1.jsonl", texts)
    (tmp_path / "2.jsonl").touch()
    pq.write_table(pa.table({"text": texts}), tmp_path / "3.parquet", row_group_size=40)
    spec = gpt2_files(tmp_path)

    def job(name: str) -> Job:
        files = tuple(str(tmp_path / file) for file in ("1.jsonl", "2.jsonl", "3.parquet"))
        return Job(
            inputs=files,
            output_prefix=str(tmp_path / "out" / name),
            tokenizer=spec,
            is_eod_appended=True,
            workers=2,
        )

    single = preprocess(job("single"))
    bad = write_jsonl(tmp_path / "bad.jsonl", ["a"] * 9)
    bad.write_text(bad.read_text() + '{"no": 1}\n')
    # What earlier tests of this run still hold (a store that waits to be collected) is theirs.
    listening, running = listening_beyond_loopback(), children()
    with spark_context("local[2]"):
        assert listening_beyond_loopback() <= listening
        # An active context is used, and left: one start of a JVM does for both.
        spread = spark.preprocess(job("spread"), partitions=6)
        with pytest.raises(BadInputFile, match="has no key 'text'; it has no"):
            spark.preprocess(
                Job(inputs=(str(bad),), output_prefix=str(tmp_path / "out" / "x"), tokenizer=spec),
                partitions=1,
            )
    # Orphans of the JVM's starting script may be ours, where this process adopts them.
    _, alive = psutil.wait_procs([one for one in children() if one not in running], timeout=20)
    assert [one.name() for one in alive] == []
    assert spread.made[0].documents == single.made[0].documents == 2 * len(texts)
    for ending in ("bin", "idx"):
        written = (tmp_path / "out" / f"spread_text_document.{ending}").read_bytes()
        assert written == (tmp_path / "out" / f"single_text_document.{ending}").read_bytes()
    left = sorted(one.name for one in (tmp_path / "out").iterdir())
    assert left == [
        f"{name}_text_document.{ending}"
        for name in ("single", "spread")
        for ending in ("bin", "idx")
    ]
