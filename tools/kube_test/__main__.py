"""`make kube-test`: what relkit makes for Kubernetes, in a real API server and kubelets."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.kube_test import check_jobs, check_nodes, newer_server
from tools.kube_test.cluster import Cluster
from tools.kube_test.programs import environment, say
from tools.kube_test.runs import NAMESPACE, SCRIPT

# In this order: the last job is there until its node is cut, and no later check needs the node.
CHECKS: tuple[Callable[[Cluster], None], ...] = (
    check_nodes.check_manifests,
    check_nodes.check_chart,
    check_nodes.check_node_pods,
    check_nodes.check_taint,
    check_nodes.check_recipe,
    check_jobs.check_order,
    check_jobs.check_done,
    check_jobs.check_pre_stop,
    check_jobs.check_replaced,
    check_jobs.check_lost_pod,
    check_jobs.check_cut_node,
    check_nodes.check_conditions_stay,
)


def main() -> int:
    """Run all checks, or those that are named, and say what came of each."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--only",
        nargs="*",
        metavar="WORD",
        default=[],
        help="checks with such a word in their names; some need what an earlier one has made",
    )
    words = parser.parse_args().only
    checks = [each for each in CHECKS if not words or any(word in each.__name__ for word in words)]
    folder = Path(tempfile.mkdtemp(prefix="relkit-kube-"))
    os.environ.update(
        environment(), KUBE_JOB=str(folder / "job"), KUBECONFIG=str(folder / "kubeconfig")
    )
    (folder / "job").mkdir()
    (folder / "job" / "train.py").write_text(SCRIPT, encoding="ascii")
    # As process 1 of a namespace it would ignore what it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started_s = time.monotonic()
    say(f"starting; logs are in {folder}")
    cluster = Cluster(folder)
    with cluster.running():
        newer = newer_server.check(folder)
        failed = int(newer == "failed")
        say(f"{len(cluster.nodes)} nodes are ready")
        for check in checks:
            failed += not _passes(check, cluster)
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    total = len(checks) + (newer != "skipped")
    say(f"{time.monotonic() - started_s:.0f} s")
    print(
        f"{total - failed} passed, {failed} failed, {int(newer == 'skipped')} skipped", flush=True
    )
    return 1 if failed else 0


def _passes(check: Callable[[Cluster], None], cluster: Cluster) -> bool:
    say(f"{check.__name__}: {check.__doc__}")
    started_s = time.monotonic()
    try:
        check(cluster)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        say(f"{check.__name__}: FAILED: {error}")
        # What it has left running would slow the next.
        cluster.kubectl("delete", "jobs", "--all", "-n", NAMESPACE, "--wait=false", check=False)
        return False
    say(f"{check.__name__}: ok, {time.monotonic() - started_s:.0f} s")
    return True


if __name__ == "__main__":
    sys.exit(main())
