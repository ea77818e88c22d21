"""What torch, Ray, MPI, UCX, the kubelet and the kernel say: cause, ranks, and what is no proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.why.explain import explain

EVENTS = "LAST SEEN   TYPE      REASON      OBJECT          MESSAGE\n"
POD = "Name:             train-1\nNamespace:        ml\nStatus:           Failed\n"
# Text -> cause, culprits, and a word of who or where.
WORDINGS: dict[str, tuple[str, str, list[int], str]] = {
    "Ray's list of what may have been": (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error."
        " There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer "
        "due to high memory usage. (3) The worker is crashed unexpectedly due to SIGSEGV.\n",
        "launcher", [], "nobody",
    ),
    "a guess of somebody's": (
        "[rank1]: subprocess died with <Signals.SIGKILL: 9>.\nThis may be due to the OOM killer.\n",
        "killed", [1], "",
    ),
    "the wrapper's mismatch": (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=7, OpType=BROADCAST), but Rank 0 is "
        "running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE).\n",
        "collective-mismatch", [], "nobody",
    ),
    "DDP's models differ": (
        "[rank3]: RuntimeError: DDP expects same model across all ranks, but Rank 3 has 26 params, "
        "while rank 0 has inconsistent 24 params.\n",
        "collective-mismatch", [], "nobody",
    ),
    "DDP's unused parameters": (
        "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before "
        "starting a new one. This error indicates that your module has parameters that were not "
        "used in producing loss.\n",
        "unused-parameters", [1], "",
    ),
    "a monitored barrier that names a rank": (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/w/t.py", line 9, in <module>\n'
        "[rank0]: RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors "
        "while waiting for send/recv from rank 2. Please check rank 2 logs for faulty rank.\n"
        "[rank0]: [unbound_buffer.cc:81] Timed out waiting 30000ms for recv to complete\n",
        "barrier", [2], "",
    ),
    "a monitored barrier that names several": (
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        "[E ProcessGroupGloo.cpp:137] [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in "
        "30000 ms\n",
        "barrier", [1, 3], "",
    ),
    "one that failed before the barrier": (
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
        "[rank0]: RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors "
        "while waiting for send/recv from rank 1. Please check rank 1 logs for faulty rank.\n",
        "device-oom", [2], "",
    ),
    "UCX's crash, and who that process was": (
        "[n1:2213 :0:2213] Caught signal 11 (Segmentation fault: address not mapped)\n"
        "E1120 10:11:12.100000 1 torch/distributed/elastic/multiprocessing/api.py:874] failed "
        "(exitcode: -11) local_rank: 2 (pid: 2213) of binary: /usr/bin/python3\n",
        "segfault", [2], "",
    ),
    "Open MPI's crash": (
        "[gpu03:41237] *** Process received signal ***\n"
        "[gpu03:41237] Signal: Segmentation fault (11)\n"
        "mpirun noticed that process rank 5 with PID 41237 on node gpu03 exited on signal 11 "
        "(Segmentation fault).\n",
        "segfault", [5], "",
    ),
    "a pod that filled the node's disk": (
        POD + "Reason:           Evicted\nMessage:          The node was low on resource: "
        "ephemeral-storage. Container trainer was using 120Gi, request is 0.\n",
        "evicted", [], "train-1",
    ),
    "a pod that filled its volume": (
        POD + 'Reason:           Evicted\nMessage:          Usage of EmptyDir volume "dshm" '
        'exceeds the limit "8Gi".\n',
        "evicted", [], "train-1",
    ),
    "a pod over its storage": (
        EVENTS + "2m          Warning   Evicted     pod/train-3     Pod ephemeral local storage "
        "usage exceeds the total limit of containers 20Gi.\n",
        "evicted", [], "train-3",
    ),
    "a pod whose node was lost": (
        EVENTS + "2m   Normal   TaintManagerEviction   pod/train-3   Marking for deletion\n"
        "2m   Normal   NodeNotReady   node/n7   Node n7 status is now: NodeNotReady\n",
        "node-lost", [], "n7",
    ),
    "a device that the kernel names": (
        "[123.7] NVRM: Xid (PCI:0000:9c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen "
        "off the bus.\n",
        "hardware", [], "PCI:0000:9c:00",
    ),
    "HCCL's time-out": (
        "EI0002: 2026-11-20-10:11:12.000.000 The wait execution of the Notify register times out. "
        "Reason: The Notify register has not received the Notify record from remote rank [5].\n",
        "collective-timeout", [], "nobody",
    ),
    "a port that the kernel saw go down": (
        "Nov 20 10:00:02 gpu12 kernel: mlx5_core 0000:9c:00.0 ib2: link down\n"
        "[rank9]: RuntimeError: NCCL communicator was aborted on rank 9.\n",
        "network", [], "gpu12",
    ),
    "one failure, told by a rank and by its log": (
        "iteration 1201/5000 | loss nan\n[rank0]: RuntimeError: Rank 0, node n1, device 0, "
        "iteration 1201: Unexpected result nan (message='found NaN in local forward loss')\n",
        "nan", [0], "rank 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WORDINGS)
def test_the_answer_is_right(name: str, tmp_path: Path) -> None:
    text, cause, culprits, word = WORDINGS[name]
    (tmp_path / "job.txt").write_text(text, encoding="utf-8")
    facts = explain([tmp_path]).facts
    assert (facts["cause"], list(facts["culprits"])) == (cause, culprits), facts
    assert word in f"{facts['who']} {facts['place']}", facts
    assert "job.txt" not in facts["who"] or not culprits, facts


def test_a_log_that_times_out_says_nothing_of_lost_operations(tmp_path: Path) -> None:
    text = "".join(
        f"[rank{rank}]:[E1120 10:11:12.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=1043, OpType=ALLREDUCE, NumelIn=4, "
        "NumelOut=4, Timeout(ms)=600000) ran for 600027 milliseconds before timing out.\n"
        for rank in (0, 1, 3)
    )
    text += (
        "[rank2]:[E1120 10:11:13.3 ProcessGroupNCCL.cpp:2271] [PG ID 0 PG GUID 0(default_pg) Rank "
        "2]  failure detected by watchdog at work sequence id: 1042 PG status: last enqueued work: "
        "1042, last completed work: 1042\n"
    )
    (tmp_path / "job.log").write_text(text, encoding="utf-8")
    report = explain([tmp_path])
    assert report.facts["culprits"] == [2]
    assert "had no room for" not in str(report)


def test_who_has_handed_in_each_ranks_log_is_not_told_to_get_it(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.log").write_text("step 1\nstep 2\n", encoding="utf-8")
    missing = [each["what"] for each in explain([tmp_path]).facts["missing"]]
    assert missing
    assert "each rank's own output" not in missing
    (tmp_path / "rank0.log").rename(tmp_path / "job.txt")
    (tmp_path / "rank1.log").unlink()
    missing = [each["what"] for each in explain([tmp_path]).facts["missing"]]
    assert "each rank's own output" in missing


def test_a_log_is_no_second_proof_of_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "n2.log").write_text(
        "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/w/train.py", line 84, in step\n'
        "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n",
        encoding="utf-8",
    )
    facts = explain([tmp_path]).facts
    assert facts["culprits"] == [3]
    assert not any("agree" in reason or "not seen" in reason for reason in facts["reasons"])


def test_an_accounting_that_names_the_user_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(
        "JobID|State|ExitCode|NodeList\n88|CANCELLED by 1001|0:0|n[1-2]\n", encoding="utf-8"
    )
    facts = explain([tmp_path]).facts
    assert facts["cause"] == "cancelled"
    assert "CANCELLED by 1001" in facts["reasons"][0]
    assert not facts["missing"]
