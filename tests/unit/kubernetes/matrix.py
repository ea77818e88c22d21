"""Job files that the renderer and the chart are held against each other with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from relkit.kubernetes.values import ENGINES

BARE: Mapping[str, Any] = {
    "name": "my-run",
    "namespace": "training",
    "image": "registry.example/train:1",
    "command": ["relkit", "launch", "train.py"],
}
# Each changes what others do not.
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "bare": {},
    "single": {"replicas": 1, "store": {"enabled": False}, "maxRestarts": 0, "restartCounts": 0},
    "spares": {"replicas": 4, "spares": 2, "nprocPerNode": "8", "maxRestarts": 5},
    "shell": {"command": ["/bin/bash", "-c", 'cd /w && relkit launch --x "$A" train.py; echo $?']},
    "kueue": {"gang": {"scheduler": "kueue", "queue": "q", "topology": "rack", "required": False}},
    "kueue queue": {"gang": {"scheduler": "kueue", "queue": "q"}},
    "volcano": {
        "gang": {"scheduler": "volcano", "queue": "q", "topology": "tiers", "highestTier": 2},
        "replicas": 3,
    },
    "volcano bare": {"gang": {"scheduler": "volcano"}},
    "topology": {"topoMapper": {"enabled": True, "topology_config": "asw-0 psw-0 10.0.0.1\n"}},
    "their topology": {"topoMapper": {"enabled": True, "create": False, "configMap": "net"}},
    "users own": {
        "labels": {"team": "a", "app.kubernetes.io/name": "theirs"},
        "annotations": {"sidecar.istio.io/inject": "false"},
        "env": [{"name": "A", "value": "$(B)"}],
        "resources": {"limits": {"cpu": "8", "nvidia.com/gpu": 8}},
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        "volumeMounts": [{"name": "memory", "mountPath": "/dev/shm"}],
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]}},
        "container": {"tty": True, "imagePullPolicy": "Always"},
        "podSpec": {"hostNetwork": True, "terminationGracePeriodSeconds": 5},
        "suspend": True,
        "secretName": "key",
        "flashTimeoutSeconds": 30,
        "jobSetRestarts": 1,
        "shmSize": "8Gi",
        "imagePullPolicy": "Never",
    },
    "store": {
        "store": {
            "port": 29999,
            "networkPolicy": False,
            "resources": {},
            "podSpec": {"priorityClassName": "high"},
        }
    },
    "node check": {"nodeCheck": {"enabled": True}},
}
NODE_CHECKS: Mapping[str, Mapping[str, Any]] = {
    "alone": {"enabled": True},
    "taint": {"enabled": True, "taint": "relkit.io/bad-node=true:NoSchedule", "linkcheck": False},
    "own": {
        "enabled": True,
        "image": "other:2",
        "intervalSeconds": 60,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "securityContext": {"privileged": True, "allowPrivilegeEscalation": None},
        "podSpec": {"nodeSelector": {"gpu": "yes"}, "tolerations": []},
    },
}


def job_files() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with a name for the test."""
    for engine in ENGINES:
        for name, change in CHANGES.items():
            yield f"{engine}: {name}", {**BARE, "engine": engine, **change}
    for name, check in NODE_CHECKS.items():
        alone = {**BARE, "command": [], "nodeCheck": check}
        yield f"node check: {name}", alone
