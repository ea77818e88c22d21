"""A node's conditions and taint follow from checks, with the rights that the chart asks for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from relkit.cli import run
from relkit.errors import UsageProblem
from relkit.kubernetes import node_check
from relkit.kubernetes.api_server import ApiServer
from relkit.kubernetes.node_check import NodeCheck, Watch
from relkit.kubernetes.node_conditions import as_status, condition, parse_taint, with_taint
from relkit.kubernetes.objects import objects
from relkit.kubernetes.values import settle
from relkit.live_job.gpus import Gpu
from tests.unit.kubernetes.api_standin import ApiStandIn, serving
from tests.unit.kubernetes.matrix import BARE

TAINT = parse_taint("relkit.io/bad-node=true:NoSchedule")
THEIRS = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def report(status: str, finding: str = "RK-LNK-004") -> dict[str, Any]:
    return {"status": status, "findings": [{"id": finding, "status": status, "title": "so"}]}


class Checks:
    """What the checks say at this look."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, Any] | None] = {
            "doctor": report("warn"),
            "linkcheck": report("ok"),
        }
        self.ran: list[str] = []
        # What is in use at each further question; nothing at the end.
        self.used: list[str] = []

    def __call__(self, words: Sequence[str]) -> dict[str, Any] | None:
        self.ran.append(words[0])
        return self.of[words[0]]

    def in_use(self) -> str:
        return self.used.pop(0) if self.used else ""


@pytest.fixture
def standin() -> Iterator[tuple[ApiStandIn, str]]:
    made = ApiStandIn()
    with serving(made) as address:
        yield made, address


def watch_of(
    address: str, checks: Checks, folder: Path, lines: list[str], *, with_taint: bool
) -> Watch:
    (folder / "token").write_text("of-the-pod\n", encoding="ascii")
    check = NodeCheck("node/1", True, TAINT if with_taint else None, None)
    return Watch(check, ApiServer(address, folder), lines.append, checks, checks.in_use)


def used_rights(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(verb, kind) for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}


@pytest.mark.parametrize("taint", ["", "relkit.io/bad-node=true:NoSchedule"])
def test_the_role_has_the_rights_that_are_used_and_no_other(
    taint: str, standin: tuple[ApiStandIn, str], tmp_path: Path
) -> None:
    server, address = standin
    checks = Checks()
    lines: list[str] = []
    watch = watch_of(address, checks, tmp_path, lines, with_taint=bool(taint))
    for status in ("ok", "fail", "ok"):
        checks.of["linkcheck"] = report(status)
        watch.look("2026-11-29T08:00:00Z")
    values = settle({**BARE, "command": [], "nodeCheck": {"enabled": True, "taint": taint}}, "f")
    (role,) = (each for each in objects(values) if each["kind"] == "ClusterRole")
    assert used_rights(role["rules"]) == server.rights
    assert all(rule["apiGroups"] == [""] for rule in role["rules"])
    assert server.tokens == {"Bearer of-the-pod"}


def test_conditions_come_beside_those_of_others(
    standin: tuple[ApiStandIn, str], tmp_path: Path
) -> None:
    server, address = standin
    checks = Checks()
    lines: list[str] = []
    watch = watch_of(address, checks, tmp_path, lines, with_taint=False)
    assert watch.look("2026-11-29T08:00:00Z") == 0
    checks.of["linkcheck"] = report("fail")
    assert watch.look("2026-11-29T08:10:00Z") == 1
    assert watch.look("2026-11-29T08:20:00Z") == 1
    assert set(server.conditions) == {"Ready", "RelkitHostReady", "RelkitLinksReady"}
    assert server.conditions["RelkitLinksReady"] == {
        "type": "RelkitLinksReady",
        "status": "False",
        "reason": "RK_LNK_004",
        "message": "so",
        "lastHeartbeatTime": "2026-11-29T08:20:00Z",
        "lastTransitionTime": "2026-11-29T08:10:00Z",
    }
    host = server.conditions["RelkitHostReady"]
    assert (host["status"], host["reason"]) == ("True", "Passed")
    assert host["lastTransitionTime"] == "2026-11-29T08:00:00Z"
    # What has not changed is not said again.
    assert sum(line.startswith("RelkitLinksReady") for line in lines) == 2


def test_a_taint_goes_only_when_the_same_check_passes(
    standin: tuple[ApiStandIn, str], tmp_path: Path
) -> None:
    server, address = standin
    server.node["spec"]["taints"] = [THEIRS]
    checks = Checks()
    lines: list[str] = []
    watch = watch_of(address, checks, tmp_path, lines, with_taint=True)
    seen = []
    for status in ("ok", "fail", "fail", "unknown", "ok", "ok"):
        checks.of["linkcheck"] = report(status)
        watch.look("2026-11-29T08:00:00Z")
        assert THEIRS in server.node["spec"]["taints"]
        seen.append(TAINT in server.node["spec"]["taints"])
    assert seen == [False, True, True, True, False, False]


def test_a_new_pod_does_not_take_off_what_it_has_not_checked(
    standin: tuple[ApiStandIn, str], tmp_path: Path
) -> None:
    server, address = standin
    server.node["spec"]["taints"] = [TAINT]
    checks = Checks()
    lines: list[str] = []
    checks.of["linkcheck"] = None
    watch = watch_of(address, checks, tmp_path, lines, with_taint=True)
    watch.look("2026-11-29T08:00:00Z")
    assert server.node["spec"]["taints"] == [TAINT]
    assert server.conditions["RelkitLinksReady"]["status"] == "Unknown"
    checks.of["linkcheck"] = report("ok")
    watch.look("2026-11-29T08:00:00Z")
    assert server.node["spec"]["taints"] == []


def test_what_the_doctor_sees_taints_no_node(
    standin: tuple[ApiStandIn, str], tmp_path: Path
) -> None:
    server, address = standin
    checks = Checks()
    lines: list[str] = []
    checks.of["doctor"] = report("fail", "RK-DOC-002")
    watch = watch_of(address, checks, tmp_path, lines, with_taint=True)
    assert watch.look("2026-11-29T08:00:00Z") == 1
    assert server.conditions["RelkitHostReady"]["status"] == "False"
    assert "taints" not in server.node["spec"]


@pytest.mark.parametrize("code", [403, 409, 500])
def test_a_server_that_says_no_is_said_and_asked_again(
    code: int, standin: tuple[ApiStandIn, str], tmp_path: Path
) -> None:
    server, address = standin
    server.refuse = code
    lines: list[str] = []
    watch = watch_of(address, Checks(), tmp_path, lines, with_taint=True)
    assert watch.look("2026-11-29T08:00:00Z") == 3
    assert str(code) in lines[-1]
    server.refuse = 0
    assert watch.look("2026-11-29T08:00:00Z") == 0


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    lines: list[str] = []
    watch = watch_of("http://127.0.0.1:9", Checks(), tmp_path, lines, with_taint=False)
    assert watch.look("2026-11-29T08:00:00Z") == 3
    assert "not published" in lines[-1]


@pytest.mark.parametrize(("used", "runs"), [(["gpu 0: 97 %"], False), (["", "gpu 3: -"], True)])
def test_links_are_not_measured_beside_a_job(
    standin: tuple[ApiStandIn, str], tmp_path: Path, used: list[str], runs: bool
) -> None:
    server, address = standin
    checks = Checks()
    checks.of["linkcheck"], checks.used = report("fail"), list(used)
    watch = watch_of(address, checks, tmp_path, [], with_taint=True)
    assert watch.look("2026-11-29T08:00:00Z") == 3
    assert ("linkcheck" in checks.ran) is runs
    told = server.conditions["RelkitLinksReady"]
    assert (told["status"], told["reason"]) == ("Unknown", "GpusInUse")
    assert used[-1] in told["message"]
    assert not server.node["spec"].get("taints")
    # Once it is idle, the check says what it finds.
    watch.look("2026-11-29T08:10:00Z")
    assert server.conditions["RelkitLinksReady"]["status"] == "False"


def test_a_gpu_is_in_use_by_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(0, 0.0, 4.0, 81920.0), Gpu(1, None, None, None)]
    monkeypatch.setattr(node_check, "gpus_here", lambda: gpus)
    assert node_check.gpu_in_use() == ""
    gpus.append(Gpu(2, 0.0, 61440.0, 81920.0))
    assert node_check.gpu_in_use() == "gpu 2: 0 %, 60 of 80 GiB"


def test_an_answer_that_is_no_http_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = b"of another protocol\r\n\r\n"
        thread = threading.Thread(target=_answer, args=(listener, answer), daemon=True)
        thread.start()
        lines: list[str] = []
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert watch_of(address, Checks(), tmp_path, lines, with_taint=False).look("now") == 3
        assert "not published" in lines[-1]
        thread.join(20)


def _answer(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(answer)


@pytest.mark.parametrize("found_text", [{}, {"status": "fail"}, {"status": 3, "findings": 4}])
def test_a_report_of_another_kind_proves_nothing_but_what_it_says(
    found_text: dict[str, Any],
) -> None:
    made = condition("X", found_text, is_proof=True)
    assert made.status == ("False" if found_text.get("status") == "fail" else "Unknown")
    assert made.reason == "NoFinding"


def test_a_time_of_transition_is_kept() -> None:
    passed = condition("X", report("ok"), is_proof=True)
    _, since = as_status([passed], {}, "1")
    (written,), _ = as_status([passed], since, "2")
    assert (written["lastHeartbeatTime"], written["lastTransitionTime"]) == ("2", "1")


def test_taints_are_read_as_kubectl_writes_them() -> None:
    assert parse_taint("a/b:NoExecute") == {"key": "a/b", "effect": "NoExecute"}
    for wrong in ("", "a", "a=b", "a=b:Never", "-a:NoSchedule", "a b:NoSchedule"):
        with pytest.raises(UsageProblem):
            parse_taint(wrong)
    assert with_taint([], TAINT, is_bad=False) is None


def test_outside_of_a_pod_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert run(["k8s", "node-check"]) == 2
    assert "--node NAME" in capsys.readouterr().err
    assert run(["k8s", "node-check", "--node", "a"]) == 2
    assert "--dry-run" in capsys.readouterr().err
    assert run(["k8s", "node-check", "--node", "a", "--taint", "x"]) == 2
    # Launchers of other jobs could be here.
    assert run(["k8s", "stop"]) == 2
