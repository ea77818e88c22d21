"""Whatever kind of file is named: it is used for what it is, or it is said why not."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import UsageProblem
from relkit.flight_recorder.file_names import earlier_attempts
from relkit.why.explain import explain
from relkit.why.file_names import numbered, speaker_of_name
from relkit.why.kinds import FileKind, sort_file
from relkit.why.model import Speaker
from tests.unit.flight_recorder.flight_builders import document
from tests.unit.flight_recorder.flight_builders import steps as calls
from tests.unit.why.job_logs import KILL, OOM, RESET, raised, steps

LOG = f"{steps(20)}\n{raised(3, KEY := 'KeyError: 1')}\n"

ENCODED = {
    "UTF-8": LOG.encode(),
    "with a mark": b"\xef\xbb\xbf" + LOG.encode(),
    "CRLF": LOG.replace("\n", "\r\n").encode(),
    "UTF-16": LOG.encode("utf-16"),
    "UTF-16 without a mark": LOG.encode("utf-16-le"),
    "UTF-16, the other way round": LOG.encode("utf-16-be"),
    "gzip": gzip.compress(LOG.encode()),
    "gzip of UTF-16": gzip.compress(LOG.encode("utf-16")),
    "gzip, cut behind the error": gzip.compress(LOG.encode() + bytes(range(256)) * 9)[:-40],
    "bars": (steps(20).replace("\n", "\r") + raised(3, KEY)).encode(),
}


@pytest.mark.parametrize("name", ENCODED)
def test_every_encoding_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(ENCODED[name])
    facts = explain([tmp_path / "a.log"]).facts
    assert (facts["cause"], facts["culprits"]) == ("exception", [3])


@pytest.mark.parametrize("name", ENCODED)
def test_standard_input_is_read(name: str) -> None:
    facts = explain([Path("-")], stdin=io.BytesIO(ENCODED[name])).facts
    assert (facts["cause"], facts["culprits"]) == ("exception", [3])


BAD = {
    "empty": b"",
    "blanks": b" \n\n",
    "core": b"\x7fELF" + bytes(200),
    "zip": b"PK\x03\x04" + bytes(200),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(200),
    "zeros": bytes(4096),
    "json": b'{"vocab": {"a": 1}}',
    "cut json": b'{"a": [1, 2,\n "KeyError',
    "source": b"import os\nfrom a import b\n\ndef f():\n    raise MemoryError\n",
    "script": b"#!/bin/bash\nset -e\nexport A=1\n",
    "page": b"<!doctype html>\n<html>\n<li>no OOM kill is counted in its memory cgroup</li>\n",
    "picture": b"<svg xmlns='a'>\n<title>MemoryError</title>\nMemoryError: x\n</svg>\n",
    "graph": b"digraph stacks {\nMemoryError: x\n}\n",
    "document": b"# Title\n\n## CUDA out of memory\n\n```\nMemoryError\n```\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_and_accuses_nobody(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad_rank_1").write_bytes(BAD[name])
    (tmp_path / "a.log").write_text(LOG)
    facts = explain([tmp_path]).facts
    assert facts["culprits"] == [3]
    bad = next(file for file in facts["files"] if file["path"].endswith("bad_rank_1"))
    assert bad["used_for"] == "", bad
    assert bad["note"]
    assert explain([tmp_path / "bad_rank_1"]).facts["cause"] == ""


@given(st.binary(max_size=400))
def test_any_content_is_sorted(data: bytes) -> None:
    made = sort_file(data, data)
    assert made.kind is not FileKind.NONE or made.why


def test_a_fifo_is_said_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    facts = explain([tmp_path]).facts
    assert "named pipe" in facts["files"][0]["note"]


def test_nothing_there_is_a_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="there is no"):
        explain([tmp_path / "none"])


def test_torchelastics_error_file(tmp_path: Path) -> None:
    stack = raised(None, "ValueError: bad batch")
    plain = {
        "message": {
            "message": "ValueError: bad batch",
            "extraInfo": {"py_callstack": stack, "timestamp": "1764367200"},
        }
    }
    folder = tmp_path / "run" / "attempt_0" / "3"
    folder.mkdir(parents=True)
    (folder / "error.json").write_text(json.dumps(plain))
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("exception", [3])
    assert facts["place"] == "w/train.py:84 step"


def test_an_error_file_s_time_can_be_compared_with_a_log_s(tmp_path: Path) -> None:
    """A day was missing behind the 28th of February: the formats of logs name no year."""
    at_s = datetime(2026, 3, 1, 10, 0, 5, tzinfo=timezone.utc).timestamp()
    plain = {"message": {"message": "KeyError: 1", "extraInfo": {"timestamp": str(at_s)}}}
    (tmp_path / "rank1.json").write_text(json.dumps(plain))
    (tmp_path / "rank2.log").write_text("2026-03-01T10:00:01.0Z stderr F MemoryError\n")
    assert explain([tmp_path]).facts["cause"] == "host-oom"


@pytest.mark.parametrize(("code", "cause"), [(132, "segfault"), (134, "abort"), (137, "killed")])
def test_a_signal_in_the_exit_code_of_a_pod(code: int, cause: str, tmp_path: Path) -> None:
    (tmp_path / "pod.txt").write_text(
        "Name:         train-1\nNamespace:    x\nNode:  n1\nStatus:  Failed\nContainers:\n"
        f"    Last State:     Terminated\n      Reason:       Error\n      Exit Code:    {code}\n"
    )
    assert explain([tmp_path]).facts["cause"] == cause


def test_sacct_and_the_pod_of_kubectl(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(
        "JobID|State|ExitCode\n1|OUT_OF_MEMORY|0:125\n1.0|OUT_OF_MEMORY|0:125\n"
    )
    assert explain([tmp_path]).facts["cause"] == "oom-killer"
    (tmp_path / "sacct.txt").write_text(
        "Name:         train-1\nNamespace:    x\nNode:  n1\nStatus:  Failed\nContainers:\n"
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
    )
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["who"]) == ("oom-killer", "train-1")


def test_a_process_that_the_kernel_killed_is_the_rank_that_the_launcher_lost(
    tmp_path: Path,
) -> None:
    (tmp_path / "dmesg.txt").write_text(KILL + "\n")
    (tmp_path / "job.log").write_text(
        "E1128 22:00:02.3 100 api.py:882] failed (exitcode: -9) local_rank: 2 (pid: 103) of binary"
        f"\n[rank0]: {RESET}\n"
    )
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("oom-killer", [2])


def test_dumps_are_judged_and_a_bad_one_does_not_stop_that(tmp_path: Path) -> None:
    for rank in range(4):
        plain = document(calls(7, "completed") if rank == 2 else calls(8))
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(plain))
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("hang", [2])
    (tmp_path / "nccl_trace_rank_9").write_bytes(b"\x80\x04rubbish")
    (tmp_path / "a.log").write_text(f"{raised(1, OOM)}\n")
    assert explain([tmp_path]).facts["culprits"] == [1]


def test_names_are_hints(tmp_path: Path) -> None:
    assert speaker_of_name(Path("a/rank_12.log")) == Speaker(rank=12)
    assert speaker_of_name(Path("a/rank3/stderr.log")) == Speaker(rank=3)
    assert speaker_of_name(Path("r_x/attempt_0/3/stderr.log")) == Speaker(local_rank=3)
    assert speaker_of_name(Path("node_rank0/slurm-1234.out")) == Speaker()
    row = [Path(f"logs/{n}.log") for n in range(3)]
    assert numbered(row) == {path: n for n, path in enumerate(row)}
    assert numbered([Path("logs/7.log"), Path("logs/9.log")]) == {}
    old, new = Path("r/attempt_0/0/stderr.log"), Path("r/attempt_1/0/stderr.log")
    assert earlier_attempts([old, new]) == {old: Path("r/attempt_0")}


def test_an_earlier_attempt_is_no_answer(tmp_path: Path) -> None:
    for attempt, text in ((0, raised(None, OOM)), (1, raised(None, "KeyError: 1"))):
        folder = tmp_path / f"attempt_{attempt}" / "0"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(text + "\n")
    assert explain([tmp_path]).facts["cause"] == "exception"
