"""The rank order: switches in one run each, stable, never worse than the order given."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import BadInputFile
from relkit.topology import SwitchPath, Topology, crossings, parse, rank_order, read, switches

# The guide's own example.
GUIDE = """
asw-0 psw-0 192.168.0.0
asw-1 psw-0 192.168.0.1
asw-2 psw-0 192.168.0.2
asw-3 psw-0 192.168.0.3
asw-0 psw-0 192.168.0.4
asw-1 psw-0 192.168.0.5
asw-2 psw-0 192.168.0.6
asw-3 psw-0 192.168.0.7
asw-0 psw-0 192.168.0.8
asw-1 psw-0 192.168.0.9
"""


def test_the_guides_example_is_grouped_by_access_switch() -> None:
    order = rank_order(parse(GUIDE))
    assert [int(node.rpartition(".")[2]) for node in order.nodes] == [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]
    assert (order.before.asw, order.after.asw) == (9, 3)
    assert (order.before.psw, order.after.psw) == (0, 0)
    assert order.unknown == ()


def test_upper_switches_come_before_access_switches() -> None:
    topology = parse("a0 p0 n0\na1 p1 n1\na2 p0 n2\na1 p1 n3\na0 p0 n4\na3 p1 n5")
    assert rank_order(topology).nodes == ("n0", "n4", "n2", "n1", "n3", "n5")


def test_the_order_given_decides_which_switch_is_first() -> None:
    topology = parse("a p n0\nb p n1\na p n2\nb p n3")
    assert rank_order(topology, ["n3", "n0", "n1"]).nodes == ("n3", "n1", "n0")


def test_unknown_nodes_come_last_in_their_own_order() -> None:
    order = rank_order(parse("a p n0\nb p n1"), ["x9", "n1", "x1", "n0"])
    assert order.nodes == ("n1", "n0", "x9", "x1")
    assert order.unknown == ("x9", "x1")
    assert order.after.asw == 2


def test_comments_white_space_and_line_ends_of_all_kinds() -> None:
    topology = parse("# network\r\n\r\n  asw-0\tpsw-0   n0  # rack 4\r\n#\n\tasw-1 psw-0 n1")
    assert topology.places == {
        "n0": SwitchPath("asw-0", "psw-0"),
        "n1": SwitchPath("asw-1", "psw-0"),
    }
    assert topology.warnings == ()


def test_duplicates_with_one_place_are_a_warning() -> None:
    topology = parse("a p n0\nb p n1\na p n0")
    assert list(topology.places) == ["n0", "n1"]
    assert topology.warnings == ("n0 is on line 3 again, as on line 1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a p n0\na p\n", "line 2 is not"),
        ("a p n0 extra\n", "line 1 is not"),
        ("a p n0\n\nb p n0\n", "line 3 gives n0 other switches than line 1"),
        ("a p n\x1b[2J\n", "line 1 is not"),
        ("a p n\x00\n", "line 1 is not"),
        ("bad\n" * 9, "line 5 is not `asw psw node`; and 4 more"),
        ("", "names no node"),
        ("# only a comment\n", "names no node"),
    ],
)
def test_bad_lines_are_named_by_their_numbers(text: str, said: str) -> None:
    with pytest.raises(BadInputFile) as caught:
        parse(text, "net.txt")
    assert str(caught.value).startswith("net.txt")
    assert said in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_files_that_are_no_topology_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net"
    with pytest.raises(BadInputFile, match="No such file"):
        read(path)
    with pytest.raises(BadInputFile, match="a folder"):
        read(tmp_path)
    path.write_bytes(b"a p n0\n\xff\xfe\n")
    with pytest.raises(BadInputFile, match="not UTF-8 text"):
        read(path)
    path.write_bytes(b"\xef\xbb\xbfa p n0\n")
    assert list(read(path).places) == ["n0"]


def test_access_switches_of_one_name_under_two_upper_ones_are_two(tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_text("asw-0 psw-0 n0\nasw-0 psw-1 n1\nasw-1 psw-0 n2\n")
    assert switches(path) == {"n0": "psw-0/asw-0", "n1": "psw-1/asw-0", "n2": "asw-1"}
    assert read(path).warnings == (
        "asw-0 is under several upper switches; each is treated as a switch of its own",
    )
    assert crossings(read(path), ["n0", "n1"]).asw == 1


PLACES = st.builds(SwitchPath, st.sampled_from(["a0", "a1", "a2"]), st.sampled_from(["p0", "p1"]))


@st.composite
def networks(draw: st.DrawFn) -> tuple[Topology, list[str]]:
    """A network, and a job's nodes in any order, some of which it does not know."""
    nodes = [f"n{number}" for number in range(draw(st.integers(0, 12)))]
    topology = Topology({node: draw(PLACES) for node in nodes})
    strangers = [f"x{number}" for number in range(draw(st.integers(0, 3)))]
    wanted = draw(st.permutations(nodes + strangers))
    return topology, list(wanted[: draw(st.integers(1, 15))])


@given(networks())
def test_it_is_a_permutation_and_each_switch_is_one_run(case: tuple[Topology, list[str]]) -> None:
    topology, nodes = case
    order = rank_order(topology, nodes)
    assert sorted(order.nodes) == sorted(nodes or topology.places)
    places = [topology.places.get(node) for node in order.nodes]
    for level in (places, [place and place.psw for place in places]):
        runs = [key for key, _ in itertools.groupby(level)]
        assert len(runs) == len(set(runs))


@given(networks())
def test_it_is_stable_and_sorting_twice_changes_nothing(case: tuple[Topology, list[str]]) -> None:
    topology, nodes = case
    order = rank_order(topology, nodes)
    given_order = nodes or list(topology.places)
    for place in {*topology.places.values(), None}:
        mine = [node for node in order.nodes if topology.places.get(node) == place]
        assert mine == [node for node in given_order if topology.places.get(node) == place]
    if order.nodes:
        assert rank_order(topology, order.nodes).nodes == order.nodes


@given(networks())
def test_no_order_has_fewer_crossings(case: tuple[Topology, list[str]]) -> None:
    topology, nodes = case
    order = rank_order(topology, nodes)
    assert order.after.asw <= order.before.asw
    assert order.after.psw <= order.before.psw
    places = {topology.places.get(node) for node in order.nodes}
    assert order.after.asw == max(0, len(places) - 1)
    assert order.after.psw == max(0, len({place and place.psw for place in places}) - 1)
