"""DLRover's ElasticJob as a job file: every key is used, or named as one without a counterpart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from relkit.errors import BadInputFile, UsageProblem
from relkit.kubernetes.launch_command import calls_launch
from relkit.kubernetes.values import Values
from relkit.launch.dlrover_options import REFUSED, refused_option

GROUP = "elastic.iml.github.io"
_LAUNCHER = (
    r"(?:[^\s;&|(]*/)?(?:dlrover-run|torchrun|python3? -m dlrover\.trainer\.torch\.elastic_run)"
)
# In a shell's text: a word of its own, with something to run.
_CALL = re.compile(rf"(?<![^\s;&|(]){_LAUNCHER}(?=\s+[^\s;&|)>])")
_STRATEGIES = ("AllreduceStrategy", "")
# key -> why relkit has nothing like it; said where it asks for something.
_SPEC_WITHOUT: Mapping[str, str] = {
    "optimizeMode": "nothing tunes the job while it runs",
    "enableDynamicSharding": "relkit hands out no data; a sampler of torch does",
    "enableElasticScheduling": "write --nnodes MIN:MAX in the command",
    "brainService": "nothing tunes the job while it runs",
    "resourceLimits": "a ResourceQuota or a queue limits what jobs take",
    "elasticRunConfigs": "write these options in the command",
    "schedulingPolicy": "use gang in a job file",
}
_REPLICA_WITHOUT: Mapping[str, str] = {
    "autoScale": "write --nnodes MIN:MAX in the command",
    "restartTimeout": "relkit launch --hang-timeout finds ranks that hang",
    "priority": "use priorityClassName in the template",
}
_METADATA_WITHOUT = "the API server writes it, or it is another object's"
_DEFAULT_RESTARTS = 3


@dataclass(slots=True)
class Translation:
    """What becomes of an ElasticJob.

    Args:
        values: the keys of a job file.
        remarks: what could not be translated, one line each.
    """

    values: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def without(self, key: str, why: str) -> None:
        """Say that a key has no counterpart."""
        self.remarks.append(f"{key} has no counterpart: {why}")


def is_elastic_job(document: Mapping[str, Any]) -> bool:
    """Whether a YAML document is one."""
    return str(document.get("apiVersion", "")).startswith(f"{GROUP}/") or (
        document.get("kind") == "ElasticJob"
    )


def translate(document: Mapping[str, Any], where: str) -> Translation:
    """Make a job file of it.

    Args:
        document: the ElasticJob; where: what to call it in errors.

    Raises:
        UsageProblem: it is of another strategy, or its command starts no launcher.
        BadInputFile: its parts are not what an ElasticJob has.
    """
    made = Translation()
    walk = _Walk(where)
    _rest(
        made,
        document,
        "",
        {"apiVersion", "kind", "metadata", "spec"},
        {"status": "it is read by nobody"},
    )
    _metadata(made, walk.table(document, "metadata"))
    spec = walk.table(document, "spec")
    strategy = spec.get("distributionStrategy") or ""
    if strategy not in _STRATEGIES:
        raise UsageProblem(
            f"{where}: spec.distributionStrategy is {strategy!r:.60}; relkit runs "
            "AllreduceStrategy only",
            next_step="Jobs with parameter servers stay with DLRover.",
        )
    known = {"distributionStrategy", "suspend", "envs", "replicaSpecs"}
    _rest(made, spec, "spec.", known, _SPEC_WITHOUT)
    if spec.get("suspend"):
        made.values["suspend"] = True
    env = [{"name": name, **each} for name, each in walk.table(spec, "envs").items()]
    replicas = walk.table(spec, "replicaSpecs")
    for kind in replicas:
        if kind != "worker":
            why = (
                "relkit has no master: launchers find each other"
                if "master" in kind
                else "every pod is a worker"
            )
            made.without(f"spec.replicaSpecs.{kind}", why)
    _worker(made, walk.table(replicas, "worker", needed=True), env, walk)
    return made


@dataclass(frozen=True, slots=True)
class _Walk:
    """Takes tables and lists out of others, and names the file where they are none.

    Args:
        where: what to call the file.
    """

    where: str

    def table(self, of: Mapping[str, Any], key: str, *, needed: bool = False) -> dict[str, Any]:
        return self._taken(of, key, dict, needed) or {}

    def list(self, of: Mapping[str, Any], key: str, *, needed: bool = False) -> list[Any]:
        return self._taken(of, key, list, needed) or []

    def _taken(self, of: Mapping[str, Any], key: str, kind: type, needed: bool) -> Any:  # noqa: ANN401
        value = of.get(key)
        if (value is None or not value) and not needed:
            return None
        if not isinstance(value, kind) or not value:
            raise BadInputFile(
                f"{self.where}: {key} is {'missing' if value is None else 'not what it should be'}",
                next_step="Compare it with the ElasticJob of DLRover's guide.",
            )
        return value


def _rest(
    made: Translation,
    table: Mapping[str, Any],
    at: str,
    known: set[str],
    without: Mapping[str, str],
) -> None:
    for key, value in table.items():
        if key in known or (value in (None, False, "") and key in without):
            continue
        made.without(f"{at}{key}", without.get(key, "relkit does not know it"))


def _metadata(made: Translation, metadata: Mapping[str, Any]) -> None:
    own = {"name", "namespace", "labels", "annotations"}
    made.values |= {key: value for key, value in metadata.items() if key in own and value}
    for key in metadata:
        if key not in own:
            made.without(f"metadata.{key}", _METADATA_WITHOUT)


def _worker(
    made: Translation, worker: Mapping[str, Any], env: list[dict[str, Any]], walk: _Walk
) -> None:
    at = "spec.replicaSpecs.worker."
    known = {"replicas", "restartCounts", "restartCount", "restartPolicy", "template"}
    _rest(made, worker, at, known, _REPLICA_WITHOUT)
    made.values["replicas"] = worker.get("replicas", 1)
    restarts = worker.get("restartCounts", worker.get("restartCount", _DEFAULT_RESTARTS))
    made.values["restartCounts"] = restarts
    _restart_policy(made, f"{at}restartPolicy", worker)
    template = walk.table(worker, "template", needed=True)
    _rest(made, template, f"{at}template.", {"metadata", "spec"}, {})
    pod = walk.table(template, "metadata")
    for key in ("labels", "annotations"):
        if pod.get(key):
            made.values[key] = {**made.values.get(key, {}), **pod[key]}
    _rest(made, pod, f"{at}template.metadata.", {"labels", "annotations"}, {})
    spec = dict(walk.table(template, "spec", needed=True))
    _restart_policy(made, f"{at}template.spec.restartPolicy", spec)
    spec.pop("restartPolicy", None)
    main, *others = walk.list(spec, "containers", needed=True)
    del spec["containers"]
    for other in others:
        made.without(f"container {other.get('name')}", "a pod has one launcher; use initContainers")
    if "volumes" in spec:
        made.values["volumes"] = spec.pop("volumes")
    made.values["podSpec"] = spec
    _container(made, dict(main), env, walk)


def _restart_policy(made: Translation, key: str, table: Mapping[str, Any]) -> None:
    if table.get("restartPolicy") not in (None, "Never"):
        made.without(key, "a pod that ends is replaced by another one")


def _container(
    made: Translation, container: dict[str, Any], env: list[dict[str, Any]], walk: _Walk
) -> None:
    container.pop("name", None)
    command = [*walk.list(container, "command"), *walk.list(container, "args")]
    for key in ("command", "args"):
        container.pop(key, None)
    for key in ("image", "imagePullPolicy", "resources", "volumeMounts"):
        if container.get(key):
            made.values[key] = container.pop(key)
    made.values["env"] = [*env, *(container.pop("env", None) or [])]
    made.values["container"] = container
    made.values["command"] = _command(made, [str(word) for word in command], walk.where)


def _command(made: Translation, command: list[str], where: str) -> list[str]:
    for count in (1, 3):
        if re.fullmatch(_LAUNCHER, " ".join(command[:count])):
            words = ["relkit", "launch", *command[count:]]
            break
    else:
        words = [_CALL.sub("relkit launch", word) for word in command]
        if not calls_launch(words):
            raise UsageProblem(
                f"{where}: the command starts neither dlrover-run nor torchrun",
                next_step="Write relkit launch where the command starts the training.",
            )
    return _without_refused(made, words)


def _without_refused(made: Translation, words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        option = refused_option(word.partition("=")[0])
        if option is None:
            kept.append(_shell_text(made, word))
            continue
        made.without(word.partition("=")[0], option.instead)
        skip = option.takes_value and "=" not in word
    return kept


def _shell_text(made: Translation, word: str) -> str:
    """Take the options out of a text that a shell will read."""
    for name, option in REFUSED.items():
        flag = r"--" + name.replace("_", "[-_]")
        value = r"(?:=|\s+)\S+" if option.takes_value else r""
        word, count = re.subn(rf"(?<!\S){flag}{value}(?=\s|$)\s*", "", word)
        if count:
            made.without(f"--{name}", option.instead)
    return word


def values_of(document: Mapping[str, Any], where: str, say: Callable[[str], None]) -> Values:
    """The job file in a document, which may be an ElasticJob.

    Args:
        document: of read_document(); where: what to call it in errors.
        say: gets a line for each key without a counterpart.

    Raises:
        UsageProblem: see translate().
    """
    if not is_elastic_job(document):
        if "apiVersion" in document or "kind" in document:
            raise UsageProblem(
                f"{where} is a {document.get('kind')!r:.60}: neither an ElasticJob nor a job file",
                next_step="docs/kubernetes.md shows a job file.",
            )
        return document
    translation = translate(document, where)
    for remark in translation.remarks:
        say(remark)
    return translation.values
