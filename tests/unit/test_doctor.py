"""The judgement of doctor, on made-up hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relkit.doctor.collect import _writable
from relkit.doctor.diagnose import diagnose
from relkit.doctor.facts import HostFacts, PlatformFacts, TorchFacts, TrialFacts
from relkit.files import usual_timeline
from relkit.findings import Status
from relkit.launch.hang import timeline

HEALTHY = HostFacts(
    libc="glibc 2.36",
    hook=TrialFacts(True, "librelkit_hook.so"),
    yama_scope=None,
    can_ptrace=True,
    effective_uid=0,
    pyspy=TrialFacts(True, "read"),
    shm_free_bytes=1 << 30,
    shm_total_bytes=1 << 30,
    recorder_bytes=2 << 20,
    core_limit_bytes=-1,
    core_pattern="core",
    timeline_path="/root/timeline",
    timeline_writable=True,
    dot=True,
    torch=TorchFacts("2.13.0", ("gloo",), 0),
    own_name="host0",
    own_name_problem="",
)


CUDA = PlatformFacts("cuda", ("libcudart.so",), ("libnccl.so",), 30, ("ncclAllReduce",) * 20, "")


def test_a_runtime_without_a_driver_is_a_warning_that_says_what_is_not_seen() -> None:
    findings = diagnose(replace(HEALTHY, platforms=(CUDA, replace(CUDA, driver="580.1"))))
    without, with_driver = [finding for finding in findings if finding.id == "RK-DOC-010"]
    assert (without.status, with_driver.status) == (Status.WARN, Status.OK)
    assert without.title == "cuda: 30 of 50 symbols can be hooked"
    assert "and 12 more" in " ".join(without.reasons)
    assert any("580.1" in reason for reason in with_driver.reasons)


def test_a_child_that_died_over_a_driver_is_not_taken_for_no_driver() -> None:
    findings = diagnose(replace(HEALTHY, platforms_error="exit code -11"))
    assert [f.status for f in findings if f.id == "RK-DOC-010"] == [Status.UNKNOWN]


def test_a_healthy_host_has_only_ok() -> None:
    assert {finding.status for finding in diagnose(HEALTHY)} == {Status.OK}


@pytest.mark.parametrize(
    ("change", "finding_id", "status", "words"),
    [
        ({"libc": "not glibc (musl or static)"}, "RK-DOC-001", Status.FAIL, "musl"),
        ({"hook": TrialFacts(False, "no such file")}, "RK-DOC-002", Status.FAIL, "no such file"),
        ({"can_ptrace": False, "yama_scope": 1}, "RK-DOC-003", Status.WARN, "launched"),
        ({"can_ptrace": False, "yama_scope": 2}, "RK-DOC-003", Status.FAIL, "forbids"),
        ({"can_ptrace": False, "yama_scope": 0}, "RK-DOC-003", Status.OK, "may read"),
        (
            {"pyspy": TrialFacts(False, "Permission denied")},
            "RK-DOC-004",
            Status.FAIL,
            "Permission",
        ),
        ({"shm_free_bytes": 1 << 20}, "RK-DOC-005", Status.WARN, "too full"),
        ({"shm_total_bytes": 32 << 20}, "RK-DOC-005", Status.WARN, "too full"),
        ({"shm_free_bytes": -1, "shm_total_bytes": -1}, "RK-DOC-005", Status.WARN, "no /dev/shm"),
        ({"torch": TorchFacts("2.13.0")}, "RK-DOC-006", Status.WARN, "has no backend"),
        ({"torch": TorchFacts()}, "RK-DOC-006", Status.WARN, "not installed"),
        ({"torch": TorchFacts(error="boom")}, "RK-DOC-006", Status.UNKNOWN, "boom"),
        ({"core_limit_bytes": 0}, "RK-DOC-007", Status.WARN, "core files are off"),
        (
            {"core_limit_bytes": 0, "core_pattern": "|/usr/lib/systemd/systemd-coredump"},
            "RK-DOC-007",
            Status.OK,
            "core files: 0 bytes",
        ),
        ({"timeline_writable": False}, "RK-DOC-008", Status.WARN, "cannot be written"),
    ],
)
def test_each_fault_is_found_alone_and_says_what_to_do(
    change: dict[str, object], finding_id: str, status: Status, words: str
) -> None:
    findings = diagnose(replace(HEALTHY, **change))  # type: ignore[arg-type]
    finding = next(f for f in findings if f.id == finding_id)
    assert finding.status is status
    assert words in " ".join((finding.title, *finding.reasons))
    if status is not Status.OK:
        assert finding.advice
    others = {f.status for f in findings if f.id != finding_id}
    assert others == {Status.OK}


def test_a_timeline_folder_can_be_made_below_a_folder_and_not_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o700)
    assert _writable(tmp_path / "new" / "timeline")
    assert not _writable(tmp_path / "file" / "timeline")


def test_a_name_that_leads_nowhere_is_a_warning() -> None:
    nowhere = replace(HEALTHY, own_name="nosuch", own_name_problem="Name or service not known")
    (finding,) = [f for f in diagnose(nowhere) if f.id == "RK-DOC-011"]
    assert finding.status is Status.WARN
    assert "'nosuch', does not resolve" in finding.title
    assert "/etc/hosts" in finding.advice
    assert "--local-addr" in finding.advice


def test_a_folder_that_this_user_may_not_look_into_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def denied(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", denied)
    assert not _writable(Path("/root/timeline"))


@pytest.mark.parametrize("is_usual_writable", [True, False])
def test_doctor_and_launch_choose_the_same_folder(
    is_usual_writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "usual" / "timeline"
    if is_usual_writable:
        usual.parent.mkdir()
    else:
        usual.parent.write_text("")
    monkeypatch.setattr(usual_timeline, "_USUAL", usual)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    chosen = usual_timeline.default_folder(_writable)
    assert chosen == (usual if is_usual_writable else tmp_path / "home" / "timeline")
    assert not chosen.exists()
    assert timeline.default_folder() == chosen
