"""The chart makes the same objects as the renderer, helm takes it, and Kubernetes knows them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from relkit.kubernetes.objects import as_yaml, objects
from relkit.kubernetes.values import DEFAULTS, read_document, schema, settle
from tests.patience import PATIENCE
from tests.unit.kubernetes.matrix import BARE, job_files

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm" / "relkit"
MANIFESTS = ROOT / "deploy" / "manifests"
JOB_FILES = dict(job_files())
# The oldest that knows all fields, and the newest there is.
VERSIONS = ("1.29", "1.37")
_CORE = ("v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")


def helm_program() -> str:
    beside = Path(sys.executable).parent / "helm"
    program = str(beside) if beside.exists() else shutil.which("helm")
    if program is None:
        pytest.skip("no helm: python -m tools.get_helm gets one")
    return program


def helm(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [helm_program(), *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 * PATIENCE,
    )


def helms_objects(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    done = helm("template", "r", str(CHART), "--values", "-", given=json.dumps(values))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def by_name(documents: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


@pytest.mark.parametrize("name", JOB_FILES)
def test_chart_and_renderer_make_the_same_objects(name: str) -> None:
    values = JOB_FILES[name]
    rendered = objects(settle(values, "job.yaml"))
    assert by_name(helms_objects(values)) == by_name(rendered)
    assert len(by_name(rendered)) == len(rendered)


def test_helm_finds_nothing_to_complain_about() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_refuses_what_the_renderer_refuses() -> None:
    for wrong in (
        {"replica": 2},
        {"gang": {"schedular": "kueue"}},
        {"engine": "slurm"},
        {"replicas": 0},
        {"image": ""},
        {"command": ["python", "train.py"]},
        {"spares": 1, "maxRestarts": 0},
    ):
        done = helm(
            "template", "r", str(CHART), "--values", "-", given=json.dumps({**BARE, **wrong})
        )
        assert done.returncode != 0, wrong


def test_the_chart_takes_its_releases_name() -> None:
    done = helm(
        "template", "mine", str(CHART), "--values", "-", given=json.dumps({**BARE, "name": ""})
    )
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(done.stdout) if each]
    assert set(names) == {"mine", "mine-store"}


def test_values_and_schema_of_the_chart_are_the_renderers() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == DEFAULTS
    told = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert told == {"$schema": "http://json-schema.org/draft-07/schema#", **schema()}


@pytest.mark.parametrize("engine", ["job", "jobset", "trainjob", "pytorchjob", "node-check"])
def test_the_plain_manifests_are_what_both_make(engine: str) -> None:
    source = ROOT / "deploy" / ("node-check.yaml" if engine == "node-check" else "job.yaml")
    given = dict(read_document(source))
    if engine != "node-check":
        given["engine"] = engine
    rendered = objects(settle(given, str(source)))
    kept = (MANIFESTS / f"{engine}.yaml").read_text(encoding="utf-8")
    assert kept == as_yaml(rendered), f"relkit k8s render {source} --engine {engine} -o ... -f"
    assert by_name(helms_objects(given)) == by_name(list(yaml.safe_load_all(kept)))


def core_objects(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Objects of Kubernetes' own; of the others, the Jobs and pods that they will make."""
    for each in documents:
        if each["apiVersion"] in _CORE:
            yield each
        elif each["kind"] == "PyTorchJob":
            for replicas in each["spec"]["pytorchReplicaSpecs"].values():
                made = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}}
                yield {**made, "template": replicas["template"]}
        else:
            spec = each["spec"].get("template", {}).get("spec") or each["spec"]
            for job in spec.get("replicatedJobs", ()):
                yield {"apiVersion": "batch/v1", "kind": "Job", **job["template"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    seen = 0
    for name, values in JOB_FILES.items():
        for each in core_objects(objects(settle(values, name))):
            kubernetes_validate.validate(each, version, strict=True)
            seen += 1
    assert seen > 150


def test_the_validator_sees_a_field_that_is_not_there() -> None:
    (job,) = (each for each in objects(settle(BARE, "job.yaml")) if each["kind"] == "Job")
    job["spec"]["completionsMode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, "1.37", strict=True)
