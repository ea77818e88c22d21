"""DLRover's ElasticJob becomes a job file, and no key of it is lost without a word."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from relkit.cli import run
from relkit.commands.k8s import k8s
from relkit.errors import BadInputFile, UsageProblem
from relkit.kubernetes.elastic_job import is_elastic_job, translate, values_of
from relkit.kubernetes.objects import objects
from relkit.kubernetes.values import ENGINES, settle
from relkit.launch.dlrover_options import REFUSED

# The guide's own, section 3.2.5.
GUIDE = r"""
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata:
  name: fine-tuning-llama2
  namespace: dlrover
spec:
  distributionStrategy: AllreduceStrategy
  optimizeMode: single-job
  replicaSpecs:
    worker:
      replicas: 4
      restartCounts: 3
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: main
              image: registry.cn-hangzhou.aliyuncs.com/intell-ai/dlrover:llama-finetuning
              imagePullPolicy: Always
              command:
                - /bin/bash
                - -c
                - "dlrover-run --nnodes=$NODE_NUM \
                  --nproc_per_node=1 --max_restarts=1 \
                  ./examples/pytorch/llama2/fine_tuning.py \
                  ./examples/pytorch/llama2/btc_tweets_sentiment.json"
              resources:
                limits:
                  cpu: "8"
                  memory: 16Gi
                  metax-tech.com/gpu: 8
"""


def guide() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(GUIDE)
    return document


def worker_of(document: dict[str, Any]) -> dict[str, Any]:
    worker: dict[str, Any] = document["spec"]["replicaSpecs"]["worker"]
    return worker


def container_of(document: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = worker_of(document)["template"]["spec"]["containers"][0]
    return container


def test_the_guides_own_is_used_key_by_key() -> None:
    made = translate(guide(), "elasticjob.yaml")
    assert made.remarks == [
        "spec.optimizeMode has no counterpart: nothing tunes the job while it runs"
    ]
    values = settle(made.values, "elasticjob.yaml")
    job = next(each for each in objects(values) if each["kind"] == "Job")
    assert job["metadata"]["name"] == "fine-tuning-llama2"
    assert job["metadata"]["namespace"] == "dlrover"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    assert job["spec"]["backoffLimitPerIndex"] == 3
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    assert (
        container["image"] == "registry.cn-hangzhou.aliyuncs.com/intell-ai/dlrover:llama-finetuning"
    )
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"] == {
        "limits": {"cpu": "8", "memory": "16Gi", "metax-tech.com/gpu": 8}
    }
    shell, dash_c, text = container["command"]
    assert (shell, dash_c) == ("/bin/bash", "-c")
    assert text.startswith("relkit launch --nnodes 4 ")
    # The user's own options come later, and win.
    assert text.endswith(
        "--nnodes=$NODE_NUM --nproc_per_node=1 --max_restarts=1 "
        "./examples/pytorch/llama2/fine_tuning.py "
        "./examples/pytorch/llama2/btc_tweets_sentiment.json"
    )
    assert {"name": "NODE_NUM", "value": "4"} in container["env"]


@pytest.mark.parametrize("engine", ENGINES)
def test_it_can_be_had_for_every_engine(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(GUIDE, encoding="utf-8")
    done = CliRunner().invoke(k8s, ["render", str(file), "--engine", engine])
    assert done.exit_code == 0, done.output
    kinds = [each["kind"] for each in yaml.safe_load_all(done.stdout)]
    assert {"job": "Job", "jobset": "JobSet", "trainjob": "TrainJob", "pytorchjob": "PyTorchJob"}[
        engine
    ] in kinds
    assert "spec.optimizeMode has no counterpart" in done.stderr


def marked(table: Any, at: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], dict[str, Any]]]:  # noqa: ANN401
    """Every table in a document, with the way to it."""
    below: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    if isinstance(table, dict):
        below.append((at, table))
        for key, value in table.items():
            below += marked(value, (*at, str(key)))
    elif isinstance(table, list):
        for number, value in enumerate(table):
            below += marked(value, (*at, str(number)))
    return below


def test_no_key_goes_without_a_word() -> None:
    """A key that nobody knows, at every place: it is in the objects, or is said."""
    places = [at for at, _ in marked(guide())]
    assert len(places) > 8
    for place in places:
        document = copy.deepcopy(guide())
        dict(marked(document))[place]["xyzzy"] = "there"
        remarks: list[str] = []
        values = settle(values_of(document, "job.yaml", remarks.append), "job.yaml")
        assert "xyzzy" in f"{objects(values)}{remarks}", place


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enableDynamicSharding", True),
        ("enableElasticScheduling", True),
        ("brainService", "brain:50001"),
        ("resourceLimits", {"cpu": "6"}),
        ("optimizeMode", "cluster"),
    ],
)
def test_what_has_no_counterpart_is_said(key: str, value: object) -> None:
    document = guide()
    document["spec"][key] = value
    assert any(line.startswith(f"spec.{key} ") for line in translate(document, "f").remarks)


def test_what_asks_for_nothing_is_not_said() -> None:
    document = guide()
    document["spec"] |= {"enableDynamicSharding": False, "brainService": ""}
    del document["spec"]["optimizeMode"]
    assert translate(document, "f").remarks == []


def test_other_replicas_and_containers_are_said() -> None:
    document = guide()
    document["spec"]["replicaSpecs"]["dlrover-master"] = {"replicas": 1}
    document["spec"]["replicaSpecs"]["evaluator"] = {"replicas": 1}
    worker = worker_of(document)
    worker |= {"autoScale": True, "restartTimeout": 60, "priority": "high"}
    worker["template"]["spec"]["containers"].append({"name": "logs", "image": "l"})
    said = "\n".join(translate(document, "f").remarks)
    for word in ("dlrover-master", "evaluator", "autoScale", "restartTimeout", "priority", "logs"):
        assert word in said


def test_upstreams_name_for_restarts_means_the_same() -> None:
    document = guide()
    worker = worker_of(document)
    worker["restartCount"] = worker.pop("restartCounts") + 4
    assert translate(document, "f").values["restartCounts"] == 7


def test_variables_of_the_job_come_before_those_of_the_container() -> None:
    document = guide()
    document["spec"]["envs"] = {"A": {"name": "A", "value": "1"}, "B": {"value": "2"}}
    container_of(document)["env"] = [{"name": "C", "value": "3"}]
    env = translate(document, "f").values["env"]
    assert [each["name"] for each in env] == ["A", "B", "C"]


@pytest.mark.parametrize(
    "command",
    [
        ["dlrover-run", "--nnodes=4", "train.py"],
        ["/opt/conda/bin/dlrover-run", "--nnodes=4", "train.py"],
        ["python", "-m", "dlrover.trainer.torch.elastic_run", "--nnodes=4", "train.py"],
        ["/opt/bin/python3", "-m", "dlrover.trainer.torch.elastic_run", "--nnodes=4", "train.py"],
        ["torchrun", "--nnodes=4", "train.py"],
        ["relkit", "launch", "--nnodes=4", "train.py"],
    ],
)
def test_a_command_without_a_shell(command: list[str]) -> None:
    document = guide()
    container_of(document)["command"] = command[:1]
    container_of(document)["args"] = command[1:]
    made = translate(document, "f").values["command"]
    assert made == ["relkit", "launch", "--nnodes=4", "train.py"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cd /w&&torchrun train.py", "cd /w&&relkit launch train.py"),
        ("(/opt/bin/dlrover-run\ttrain.py)", "(relkit launch\ttrain.py)"),
        ("/x/python -m dlrover.trainer.torch.elastic_run t.py", "relkit launch t.py"),
        (". /opt/torchrun.env; torchrun train.py >/logs/torchrun-1.log",
         ". /opt/torchrun.env; relkit launch train.py >/logs/torchrun-1.log"),
        ("cd /opt/torchrun && torchrun t.py", "cd /opt/torchrun && relkit launch t.py"),
    ],
)  # fmt: skip
def test_a_shells_text_changes_where_it_calls_a_launcher(text: str, expected: str) -> None:
    document = guide()
    container_of(document)["command"] = ["sh", "-c", text]
    assert translate(document, "f").values["command"] == ["sh", "-c", expected]


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("is_shell", [True, False])
def test_options_that_are_refused_are_taken_out_and_said(name: str, is_shell: bool) -> None:
    value = " 1" if REFUSED[name].takes_value else ""
    for flag in (f"--{name}{value}", f"--{name.replace('_', '-')}{value.replace(' ', '=')}"):
        document = guide()
        text = f"dlrover-run {flag} --nnodes=4 train.py --{name}-of-mine"
        command = ["sh", "-c", text] if is_shell else text.split()
        container_of(document)["command"] = command
        made = translate(document, "f")
        left = "relkit launch --nnodes=4 train.py " + f"--{name}-of-mine"
        assert made.values["command"] == (["sh", "-c", left] if is_shell else left.split())
        assert REFUSED[name].instead in made.remarks[-1]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_launcher_says_what_to_do_instead(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["launch", f"--{name.replace('_', '-')}", "train.py"]) == 2
    said = capsys.readouterr().err
    assert REFUSED[name].instead in said
    assert "docs/migration/dlrover.md#options-that-are-refused" in said


def test_what_cannot_run_is_refused() -> None:
    document = guide()
    document["spec"]["distributionStrategy"] = "ParameterServerStrategy"
    with pytest.raises(UsageProblem, match="ParameterServerStrategy"):
        translate(document, "f")
    document = guide()
    # Behind another program, without a shell, it would become one word.
    for command in (["python", "train.py"], ["numactl", "-m", "0", "torchrun", "train.py"]):
        container_of(document)["command"] = command
        with pytest.raises(UsageProblem, match="neither dlrover-run nor torchrun"):
            translate(document, "f")
    wrong: Any
    for wrong in ({"worker": None}, {"worker": {"template": []}}, {}, "worker"):
        document = guide()
        document["spec"]["replicaSpecs"] = wrong
        with pytest.raises(BadInputFile):
            translate(document, "f")
    with pytest.raises(UsageProblem, match="'Job'"):
        values_of({"apiVersion": "batch/v1", "kind": "Job"}, "f", print)
    assert not is_elastic_job({"name": "my-run"})


def test_values_and_objects_say_the_same(tmp_path: Path) -> None:
    file, kept = tmp_path / "elasticjob.yaml", tmp_path / "job.yaml"
    file.write_text(GUIDE, encoding="utf-8")
    assert run(["k8s", "render", str(file), "--values", "-o", str(kept)]) == 0
    # One that is there is left.
    assert run(["k8s", "render", str(file), "-o", str(kept)]) == 2
    made = CliRunner().invoke(k8s, ["render", str(kept)]).stdout
    assert made == CliRunner().invoke(k8s, ["render", str(file)]).stdout
