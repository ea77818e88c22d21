"""A newer API server, where $KUBEBUILDER_ASSETS has one: it knows indexed Jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from relkit.kubernetes.objects import objects
from relkit.kubernetes.values import settle
from tests.unit.kubernetes.matrix import job_files
from tools.kube_test.nodes import GATEWAY
from tools.kube_test.programs import environment, say, started, wait

_OLDEST = (1, 29)
_PORT = 16443


def check(folder: Path) -> str:
    """Have it take and keep every object of Kubernetes' own that relkit makes.

    Args:
        folder: of its files; one is made in it.

    Returns:
        passed, failed or skipped; a line says why.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        say("newer server: SKIPPED: $KUBEBUILDER_ASSETS names no etcd and kube-apiserver")
        return "skipped"
    told = subprocess.run(
        [str(Path(assets) / "kube-apiserver"), "--version"],
        capture_output=True, text=True, check=False, timeout=30,
    ).stdout.strip()  # fmt: skip
    number = re.search(r"v(\d+)\.(\d+)", told)
    if number is None or (int(number[1]), int(number[2])) < _OLDEST:
        say(f"newer server: SKIPPED: {told or assets} is older than {_OLDEST[0]}.{_OLDEST[1]}")
        return "skipped"
    try:
        taken = _taken(Path(assets), folder / "newer")
    except AssertionError as error:
        say(f"newer server: FAILED: {told}: {error}")
        return "failed"
    say(f"newer server: ok: {told} takes {taken} objects")
    return "passed"


def _taken(assets: Path, folder: Path) -> int:
    folder.mkdir()
    (folder / "tokens.csv").write_text('admin,admin,1,"system:masters"\n', encoding="ascii")
    subprocess.run(
        ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    with ExitStack() as stack:
        for argv in _programs(assets):
            stack.enter_context(started(folder / f"{Path(argv[0]).name}.log", argv))
        wait("the newer server", lambda: "ok" in _kubectl("get", "--raw", "/readyz"))
        _kubectl("create", "namespace", "training")
        count = 0
        for name, given in job_files():
            for each in objects(settle(given, name)):
                if each["apiVersion"].partition("/")[0] in (
                    "v1",
                    "batch",
                    "apps",
                    "networking.k8s.io",
                ):
                    _keeps(each)
                    count += 1
        return count


def _keeps(document: dict[str, Any]) -> None:
    told = _kubectl(
        "create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-",
        given=json.dumps(document),
    )  # fmt: skip
    what = f"{document['kind']} {document['metadata']['name']}"
    assert told.startswith("{"), f"{what}: {told}"
    kept = json.loads(told).get("spec", {})
    lost = set(document.get("spec", {})) - set(kept)
    assert not lost, f"{what}: {lost} is not kept"


def _programs(assets: Path) -> tuple[list[str], list[str]]:
    client, peer = "http://127.0.0.1:12379", "http://127.0.0.1:12380"
    etcd = [
        str(assets / "etcd"), "--data-dir", "etcd", "--unsafe-no-fsync",
        "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
        "--initial-cluster", f"default={peer}",
    ]  # fmt: skip
    server = [
        str(assets / "kube-apiserver"), "--etcd-servers", client,
        "--service-cluster-ip-range", "10.0.1.0/24", "--bind-address", "127.0.0.1",
        "--advertise-address", GATEWAY,
        "--secure-port", str(_PORT), "--cert-dir", "certs", "--token-auth-file", "tokens.csv",
        "--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc",
        "--service-account-signing-key-file", "sa.key", "--service-account-key-file", "sa.key",
        "--disable-admission-plugins", "ServiceAccount",
    ]  # fmt: skip
    return etcd, server


def _kubectl(*words: str, given: str = "") -> str:
    done = subprocess.run(
        ["kubectl", "--server", f"https://127.0.0.1:{_PORT}", "--token", "admin",
         "--insecure-skip-tls-verify", *words],
        input=given, env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else done.stdout + done.stderr
