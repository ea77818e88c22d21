"""A topology file may be what kubectl prints of the ConfigMap, or of the nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadInputFile
from relkit.topology import parse, read
from relkit.topology_text import KEY, LABEL_PAIRS, lines_of
from tests.unit.test_topology import GUIDE

# The guide's section 3.2.6.
DESCRIBED = f"""\
Name: node-topology-config
Namespace: dlrover
Labels: app.kubernetes.io/managed-by=Helm
Annotations:
Data
====
topology_config:
----{GUIDE}
BinaryData
====
"""
# What kubectl 1.37 prints: wider, with events.
WIDE = f"""\
Name:         node-topology-config
Namespace:    dlrover
Labels:       <none>
Annotations:  <none>

Data
====
other:
----
a b c

topology_config:
----{GUIDE}

BinaryData
====

Events:  <none>
"""


def config_map(**data: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": data}


@pytest.mark.parametrize(
    "text",
    [
        GUIDE,
        DESCRIBED,
        WIDE,
        WIDE.replace("\n", "\r\n"),
        yaml.safe_dump(config_map(topology_config=GUIDE, other="a b c")),
        json.dumps(config_map(topology_config=GUIDE)),
        "---\n" + yaml.safe_dump({"kind": "Service"}) + "---\n"
        + yaml.safe_dump(config_map(topology_config=GUIDE)),
    ],
)  # fmt: skip
def test_all_that_kubectl_prints_says_the_same(text: str, tmp_path: Path) -> None:
    file = tmp_path / "network.txt"
    file.write_text(text, encoding="utf-8", newline="")
    assert read(file).places == parse(GUIDE).places


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nobody has written here yet\n",
        DESCRIBED.replace(GUIDE, "\n"),
        DESCRIBED.replace(f"topology_config:\n----{GUIDE}", ""),
        yaml.safe_dump(config_map(topology_config="")),
        yaml.safe_dump(config_map()),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n}\n",
    ],
)
def test_an_empty_one_names_no_node(text: str, tmp_path: Path) -> None:
    file = tmp_path / "network.txt"
    file.write_text(text, encoding="utf-8")
    assert read(file, may_be_empty=True).places == {}
    with pytest.raises(BadInputFile, match="names no node"):
        read(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (yaml.safe_dump(config_map(topology="a b c")), f"no key {KEY}"),
        (yaml.safe_dump(config_map(topology_config=["a"])), "no text"),
        (DESCRIBED.replace("topology_config:", "topology:"), f"no key {KEY}"),
        ("kind: Service\n", "neither a ConfigMap"),
        ("kind: [\n", "no YAML"),
        ('{"kind": "ConfigMap", "data": 7}', "no text"),
    ],
)
def test_what_is_missing_is_said(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "network.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInputFile, match=said):
        read(file)


def node(name: str, address: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address},
            ]
        },
    }


@pytest.mark.parametrize(("upper", "lower"), LABEL_PAIRS)
def test_labels_of_nodes_name_their_switches(upper: str, lower: str) -> None:
    nodes = [
        node("n1", "10.0.0.1", **{upper: "p0", lower: "a0"}),
        node("n2", "10.0.0.2", **{upper: "p0", lower: "a1"}),
        node("control", "10.0.0.9"),
    ]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes})
    assert lines_of(text) == "a0 p0 10.0.0.1\na1 p0 10.0.0.2"


def test_nodes_without_labels_are_said() -> None:
    with pytest.raises(ValueError, match="labels of its switches"):
        lines_of(json.dumps({"kind": "NodeList", "items": [node("n1", "10.0.0.1")]}))


@given(st.text(max_size=400))
def test_whatever_a_file_has_it_is_lines_or_an_error(text: str) -> None:
    for framed in (text, f"kind: {text}", DESCRIBED + text, "{" + text):
        try:
            assert isinstance(lines_of(framed), str)
        except ValueError:
            continue
