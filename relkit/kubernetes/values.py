"""The job file of `relkit k8s render`, which is the chart's values file too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from relkit.errors import BadInputFile, UsageProblem
from relkit.files.input_file import read_input_text
from relkit.text.nearest import no_such

Values = Mapping[str, Any]

ENGINES = ("job", "jobset", "trainjob", "pytorchjob")
SCHEDULERS = ("", "kueue", "volcano")
_MAX_BYTES = 4 << 20
# Pods of a Job are called NAME-INDEX, and a label holds 63 characters.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")

# Every key there is, with what counts where it is left out. deploy/helm/relkit/values.yaml says
# what each is for; a test holds the two, and the chart's schema, against each other.
DEFAULTS: Values = {
    "name": "",
    "namespace": "",
    "labels": {},
    "annotations": {},
    "engine": "job",
    "image": "",
    "imagePullPolicy": "IfNotPresent",
    "command": [],
    "env": [],
    "resources": {},
    "replicas": 1,
    "spares": 0,
    "nprocPerNode": "",
    "maxRestarts": 3,
    "restartCounts": 3,
    "jobSetRestarts": 3,
    "suspend": False,
    "flashTimeoutSeconds": 600,
    "shmSize": "1Gi",
    "secretName": "",
    "volumes": [],
    "volumeMounts": [],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    },
    "container": {},
    "podSpec": {},
    "gang": {
        "scheduler": "",
        "queue": "",
        "topology": "",
        "required": True,
        "highestTier": 1,
    },
    "store": {
        "enabled": True,
        "port": 29400,
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}},
        "podSpec": {},
        "networkPolicy": True,
    },
    "topoMapper": {
        "enabled": False,
        "create": True,
        "configMap": "node-topology-config",
        "topology_config": "",
    },
    "nodeCheck": {
        "enabled": False,
        "image": "",
        "intervalSeconds": 600,
        "linkcheck": True,
        "taint": "",
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "podSpec": {},
    },
}
# What is the user's own below these keys is passed on as it is.
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": ENGINES,
    "gang.scheduler": SCHEDULERS,
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
}
_LEAST: Mapping[str, int] = {
    "replicas": 1,
    "spares": 0,
    "maxRestarts": 0,
    "restartCounts": 0,
    "jobSetRestarts": 0,
    "flashTimeoutSeconds": 1,
    "gang.highestTier": 1,
    "store.port": 1,
    "nodeCheck.intervalSeconds": 10,
}
# Tables of relkit's own; what stands in other ones belongs to Kubernetes.
_OWN_TABLES = ("gang", "store", "topoMapper", "nodeCheck")


def read_document(path: Path) -> Mapping[str, Any]:
    """A YAML file with one document, which is a table.

    Args:
        path: of the file.

    Raises:
        BadInputFile: it cannot be read, or is something else.
    """
    try:
        text = read_input_text(path, _MAX_BYTES)
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputFile(f"{path} is not UTF-8 text (byte {error.start})") from error
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputFile(f"{path} is no YAML: {_one_line(error)}") from error
    if len(documents) != 1:
        has = f"has {len(documents)} documents; one job is expected" if documents else "is empty"
        raise BadInputFile(f"{path} {has}", next_step="Write one job a file.")
    if not isinstance(documents[0], dict):
        raise BadInputFile(
            f"{path} holds no keys, as a job file does",
            next_step="docs/kubernetes.md shows a job file.",
        )
    return documents[0]


def settle(document: Mapping[str, Any], where: str) -> Values:
    """The document with every key that it leaves out.

    Args:
        document: of a job file; where: what to call it in errors.

    Raises:
        UsageProblem: a key is unknown, or its value is of another kind.
    """
    values = _settled(document, DEFAULTS, where, "")
    _check_job(values, where)
    return values


def schema(defaults: Values = DEFAULTS, at: str = "") -> dict[str, Any]:
    """What the chart's values.schema.json holds helm's users to.

    Args:
        defaults: of this table; at: the key that it stands under.
    """
    properties = {}
    for key, default in defaults.items():
        place = f"{at}{key}"
        if place in _OWN_TABLES:
            properties[key] = schema(default, f"{place}.")
            continue
        rule: dict[str, Any] = {"type": _KINDS[type(default)]}
        if place == "nprocPerNode":
            rule["type"] = ["string", "integer"]
        if place in _CHOICES:
            rule["enum"] = list(_CHOICES[place])
        if place in _LEAST:
            rule["minimum"] = _LEAST[place]
        properties[key] = rule
    if not at:
        # helm's own, for charts above this one.
        properties["global"] = {"type": "object"}
    return {"type": "object", "additionalProperties": False, "properties": properties}


_KINDS = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}


def _settled(given: Mapping[str, Any], defaults: Values, where: str, at: str) -> dict[str, Any]:
    for key in given:
        if key not in defaults:
            raise UsageProblem(
                f"{where}: {no_such('key', at + str(key), [at + name for name in defaults])}",
                next_step="docs/kubernetes.md has all keys.",
            )
    settled = {}
    for key, default in defaults.items():
        place, value = f"{at}{key}", given.get(key, default)
        if value is None:
            value = default
        if key == "nprocPerNode" and type(value) is int:
            value = str(value)
        if type(value) is not type(default):
            raise UsageProblem(f"{where}: {place} is no {_KINDS[type(default)]}: {value!r:.60}")
        if place in _OWN_TABLES:
            value = _settled(value, default, where, f"{place}.")
        elif isinstance(value, dict):
            value = _merged(default, value)
        elif place in _CHOICES and value not in _CHOICES[place]:
            raise UsageProblem(
                f"{where}: {place} {value!r:.60} is none of {', '.join(_CHOICES[place])}"
            )
        elif place in _LEAST and value < _LEAST[place]:
            raise UsageProblem(f"{where}: {place} is below {_LEAST[place]}")
        settled[key] = value
    return settled


def _merged(default: Values, given: Values) -> dict[str, Any]:
    """Two tables as helm merges them: key by key, and null takes one away."""
    merged = {key: value for key, value in default.items() if key not in given}
    for key, value in given.items():
        if isinstance(value, dict):
            below = default.get(key)
            merged[key] = _merged(below if isinstance(below, dict) else {}, value)
        elif value is not None:
            merged[key] = value
    return merged


def _check_job(values: Values, where: str) -> None:
    node_check = values["nodeCheck"]
    if not values["command"] and not node_check["enabled"]:
        raise UsageProblem(
            f"{where} has neither a command nor nodeCheck.enabled",
            next_step="Write: command: [relkit, launch, train.py]",
        )
    if not _NAME.fullmatch(values["name"]):
        raise UsageProblem(
            f"{where}: name {values['name']!r:.60} cannot name pods",
            next_step="Write 1 to 50 of a-z, 0-9 and -, with a letter first.",
        )
    if values["command"] and not values["image"]:
        raise UsageProblem(f"{where} names no image")
    if node_check["enabled"] and not (node_check["image"] or values["image"]):
        raise UsageProblem(f"{where} names no image for nodeCheck")
    if values["spares"] and not values["maxRestarts"]:
        raise UsageProblem(
            f"{where}: spares need maxRestarts of 1 or more",
            next_step="The workers that lose a peer are started again.",
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
