"""JobSet's and Kubeflow's own models know every field of what relkit makes for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from relkit.kubernetes.objects import objects
from relkit.kubernetes.values import settle
from tests.unit.kubernetes.matrix import BARE, job_files

KINDS = ("JobSet", "TrainingRuntime", "TrainJob", "PyTorchJob")


def kept(document: dict[str, Any]) -> Any:  # noqa: ANN401
    """The document through the models of its project: what these do not know is gone.

    Raises:
        ValueError: a field is of another kind.
    """
    if document["kind"] == "PyTorchJob":
        from kubeflow.training import ApiClient, KubeflowOrgV1PyTorchJob
        from kubeflow.training.utils.utils import FakeResponse

        client = ApiClient()
        read = client.deserialize(FakeResponse(document), KubeflowOrgV1PyTorchJob)
        return client.sanitize_for_serialization(read)
    from kubeflow_trainer_api import models

    model = {
        "JobSet": models.JobsetV1alpha2JobSet,
        "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
        "TrainJob": models.TrainerV1alpha1TrainJob,
    }[document["kind"]]
    return json.loads(model.from_dict(document).to_json())


def lost(given: object, told: object, path: str = "") -> Iterator[str]:
    """What of it is not there, or is something else."""
    if isinstance(given, dict) and isinstance(told, dict):
        for key, value in given.items():
            if key in told:
                yield from lost(value, told[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(told, list) and len(given) == len(told):
        for number, pair in enumerate(zip(given, told, strict=True)):
            yield from lost(*pair, f"{path}[{number}]")
    elif told not in (given, str(given)):
        # A quantity, such as a number of GPUs, is read as text.
        yield f"{path}: {given!r} is {told!r}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_project_knows_every_field(kind: str) -> None:
    seen = 0
    for name, given in job_files():
        for each in objects(settle(given, name)):
            if each["kind"] == kind:
                assert not list(lost(each, kept(each))), name
                seen += 1
    assert seen > 10


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_is_not_there_is_seen(kind: str) -> None:
    engine = "trainjob" if kind == "TrainingRuntime" else kind.lower()
    values = settle({**BARE, "engine": engine}, "job.yaml")
    (document,) = (each for each in objects(values) if each["kind"] == kind)
    document["spec"]["replicatedJob"] = 1
    assert list(lost(document, kept(document))) == [".spec.replicatedJob"]
