"""All objects of a job file, in the order in which they are to be made."""

from __future__ import annotations

from typing import Any

import yaml

from relkit.kubernetes.engines import engine_objects
from relkit.kubernetes.node_objects import node_objects
from relkit.kubernetes.pod import metadata, selector
from relkit.kubernetes.store_objects import store_objects
from relkit.kubernetes.values import Values


def objects(values: Values) -> list[dict[str, Any]]:
    """The objects.

    Args:
        values: of settle().

    Raises:
        UsageProblem: the command calls no `relkit launch`.
    """
    made: list[dict[str, Any]] = []
    if values["command"]:
        if values["topoMapper"]["enabled"] and values["topoMapper"]["create"]:
            made.append(_topology(values))
        if values["engine"] == "job":
            made.append(_headless_service(values))
        if values["store"]["enabled"]:
            made += store_objects(values)
        made += engine_objects(values)
    return [*made, *node_objects(values)]


def without_counterpart(values: Values) -> list[str]:
    """What a job file asks for and its engine cannot do, one line each."""
    lines, gang = [], values["gang"]
    if values["engine"] == "pytorchjob":
        lines.append(
            "a PyTorchJob knows no rules by exit code: restartCounts counts the starts of all its "
            "pods together, and exit codes 2, 76 and 77 do not end the job"
        )
    if not gang["scheduler"] and (gang["queue"] or gang["topology"]):
        lines.append("gang.queue and gang.topology do nothing without gang.scheduler")
    if values["engine"] == "pytorchjob" and gang["scheduler"] == "volcano" and gang["topology"]:
        lines.append("gang.topology: a PyTorchJob's own PodGroup has no network topology")
    return lines


def as_yaml(documents: list[dict[str, Any]]) -> str:
    """The documents as kubectl reads them; the same for the same objects."""
    return "".join(
        "---\n" + yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
        for each in documents
    )


class _Dumper(yaml.SafeDumper):
    """Writes a list that is there twice as two lists: kubectl's users read no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401
        """Name nothing."""
        return True


def _topology(values: Values) -> dict[str, Any]:
    mapper = values["topoMapper"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(values, mapper["configMap"], "topology"),
        "data": {"topology_config": mapper["topology_config"]},
    }


def _headless_service(values: Values) -> dict[str, Any]:
    # Launchers look each other up before any of them is ready.
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": selector(values, "trainer"),
    }
    made = metadata(values, values["name"], "trainer")
    return {"apiVersion": "v1", "kind": "Service", "metadata": made, "spec": spec}
