"""The kernel log: read as it is, and which of its lines concern a process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

from relkit.post_mortem import kernel_lines as lines
from relkit.post_mortem import kernel_log
from relkit.post_mortem.kernel_log import KernelLog, parse_record, parse_syslog, read_kernel_log
from tests.patience import PATIENCE

# As kernel 6.18 wrote them when a process of a cgroup of 64 MiB went on allocating.
OOM = (
    "Memory cgroup out of memory: Killed process 26875 (python3) total-vm:82168kB, "
    "anon-rss:72184kB, file-rss:3668kB, shmem-rss:0kB, UID:0 pgtables:200kB oom_score_adj:0"
)
SUMMARY = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/job,task_memcg=/job/rank2,task=python3,pid=26875,uid=0"
)
SEGFAULT = (
    "python3[18912]: segfault at 0 ip 00007f0e50385ad8 sp 00007ffcb3767888 error 4 in "
    "libc.so.6[167ad8,7f0e50244000+156000] likely on CPU 1 (core 1, socket 0)"
)
PROTECTION = "traps: python[711] general protection fault ip:55d5 sp:7ffc error:0 in x.so[55d5]"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
MACHINE_CHECK = "mce: [Hardware Error]: Machine check events logged"


def test_a_record_of_the_device() -> None:
    record = f"3,1394,509446568,-;{OOM}\n SUBSYSTEM=x\n".encode()
    assert parse_record(record) == (509446568, OOM)
    assert parse_record(b"6,1,5,-;a\x1b[31m\xff\n") == (5, "a\u241b[31m\ufffd")


@pytest.mark.parametrize("record", [b"", b"text", b"1,2;x", b"1,2,three,-;x", b"\xff,\xff,\xff;"])
def test_what_is_no_record(record: bytes) -> None:
    assert parse_record(record) is None


def test_what_the_system_call_gives() -> None:
    text = f"<6>[    0.000000] Linux\nno time\n<3>[  509.446568] {OOM}\n[1234567.000001] x\n"
    assert parse_syslog(text) == ((0, "Linux"), (509446568, OOM), (1234567000001, "x"))


def test_only_lines_after_a_moment_count() -> None:
    log = KernelLog(((1, "a"), (5, "b"), (5, "c"), (7, "d")))
    assert log.newest_us == 7
    assert log.after(5) == ("d",)
    assert KernelLog().newest_us == 0


def test_the_log_of_this_machine_is_read_or_the_reason_is_given() -> None:
    log = read_kernel_log()
    assert bool(log.lines) is not bool(log.problem)


@pytest.mark.root
@pytest.mark.root
@pytest.mark.parametrize("device", ["/dev/kmsg", "/dev/none-such"])
def test_root_can_read_the_log_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(kernel_log, "_DEVICE", device)
    monkeypatch.setattr(kernel_log, "_DEADLINE_S", 0.5 * PATIENCE)
    assert read_kernel_log().lines


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Gives one record a read, as /dev/kmsg does, and then has no more for now."""
    reader, writer = os.pipe2(os.O_DIRECT)
    for record in (b"6,1,5,-;one\n", b"no record", b"6,2,7,-;two\n SUBSYSTEM=x\n"):
        os.write(writer, record)
    path = f"/proc/self/fd/{reader}"
    monkeypatch.setattr(kernel_log, "_DEVICE", path)
    yield path
    os.close(reader)
    os.close(writer)


def test_every_record_of_the_device_is_read(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_DEADLINE_S", 3600.0)
    assert read_kernel_log() == KernelLog(((5, "one"), (7, "two")))


def test_a_log_without_an_end_is_no_log(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_DEADLINE_S", 0.0)
    expected = KernelLog(problem=f"{device} was not at its end after 0 s")
    assert read_kernel_log() == expected


@pytest.mark.parametrize(
    ("is_allowed", "expected"),
    [
        (True, KernelLog(((604112935, "text"),))),
        (False, KernelLog(problem="/dev/none-such: No such file or directory")),
    ],
)
def test_without_the_device_the_system_call_is_asked(
    monkeypatch: pytest.MonkeyPatch, is_allowed: bool, expected: KernelLog
) -> None:
    class Library:
        @staticmethod
        def klogctl(action: int, buffer: ctypes.Array[ctypes.c_char], _size: int) -> int:
            assert action == 3  # SYSLOG_ACTION_READ_ALL
            buffer.value = b"<6>[  604.112935] text\n"
            return len(buffer.value) if is_allowed else -1

    monkeypatch.setattr(kernel_log, "_DEVICE", "/dev/none-such")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library)
    assert read_kernel_log() == expected


def test_lines_about_a_process() -> None:
    assert lines.is_oom_kill(OOM, 26875)
    assert lines.is_oom_kill("Out of memory: Killed process 7 (x) total-vm:1kB", 7)
    assert not lines.is_oom_kill(OOM, 2687)
    assert lines.cgroup_of_oom_kill(SUMMARY, 26875) == "/job/rank2"
    assert lines.cgroup_of_oom_kill(SUMMARY, 1) == ""
    assert lines.is_fault_of(SEGFAULT, 18912)
    assert lines.is_fault_of(PROTECTION, 711)
    assert not lines.is_fault_of(SEGFAULT, 711)
    assert not lines.is_fault_of("eth0: link up", 0)


def test_lines_about_hardware() -> None:
    assert lines.xid_of(XID) == ("0000:3b:00", 79)
    assert lines.xid_of("NVRM: loading") is None
    assert "bus" in lines.xid_meaning(79)
    assert lines.xid_meaning(9999) == ""
    for line in (XID, MACHINE_CHECK, "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!"):
        assert lines.is_hardware(line)
    assert not lines.is_hardware("usb 1-1: new device")


def test_what_concerns_a_process_is_kept_in_order_and_the_rest_is_not() -> None:
    log = ["usb 1-1: new device", SUMMARY, OOM, SEGFAULT, XID]
    assert lines.relevant(log, 26875) == (SUMMARY, OOM, XID)
    assert lines.relevant(log, 18912) == (SEGFAULT, XID)
    assert lines.relevant(log, 1) == (XID,)
