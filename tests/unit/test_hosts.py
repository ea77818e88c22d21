"""Node sets, host files, exclusions, and input that is none."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import UsageProblem
from relkit.hosts import NodeSpec, default_nodes, fold, numeric_address, read_nodes
from relkit.net.interface import NoRoute, route_to


def names(text: str, exclude: str = "") -> list[str]:
    return [spec.name for spec in read_nodes(text, exclude=exclude).nodes]


def test_a_node_set_expands_with_its_zeros() -> None:
    assert names("node[008-010]") == ["node008", "node009", "node010"]
    assert names("r[1-2]n[1-2],login") == ["r1n1", "r1n2", "r2n1", "r2n2", "login"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n10[9-11]", "n109 n1010 n1011"),
        ("n10[8-12/2]", "n108 n1010 n1012"),
        ("n10[008-011]", "n10008 n10009 n10010 n10011"),
        ("n10[0-10/5]", "n100 n105 n1010"),
        ("n1[7,9-10]x", "n17x n19x n110x"),
        ("10[9-10].0.0.1", "109.0.0.1 1010.0.0.1"),
    ],
)
def test_a_range_after_a_digit_counts_by_itself(text: str, names: str) -> None:
    assert [spec.name for spec in read_nodes(text).nodes] == names.split()


@given(
    st.sampled_from(["n", "n1", "rack0-n", "0", "n00"]),
    st.lists(
        st.tuples(st.integers(0, 120), st.integers(0, 15), st.integers(1, 4), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["", "x", "-ib0", ".a"]),
)
def test_a_range_means_what_it_says(
    before: str, ranges: list[tuple[int, int, int, bool]], after: str
) -> None:
    items, names = [], set()
    for low, more, step, padded in ranges:
        first = f"{low:03d}" if padded else str(low)
        last = f"{low + more:0{len(first)}d}" if padded else str(low + more)
        items.append(f"{first}-{last}/{step}")
        numbers = range(low, low + more + 1, step)
        names |= {f"{before}{number:0{len(first)}d}{after}" for number in numbers}
    text = f"{before}[{','.join(items)}]{after}"
    assert {spec.name for spec in read_nodes(text).nodes} == names


def test_a_file_has_comments_slots_users_and_ports(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text(
        "# our fleet\n\nnode[1-2] slots=8  # two of them\nroot@gw:2222\n"
        "n9 address=10.0.0.9 user=ops port=22 max_slots=4\n[fe80::1]:2200\nme@[::1]\n10.0.0.7\n"
    )
    assert read_nodes(str(path)).nodes == (
        NodeSpec("node1", slots=8),
        NodeSpec("node2", slots=8),
        NodeSpec("gw", user="root", port=2222),
        NodeSpec("n9", address="10.0.0.9", user="ops", port=22),
        NodeSpec("fe80::1", port=2200),
        NodeSpec("::1", user="me"),
        NodeSpec("10.0.0.7"),
    )
    assert read_nodes(str(path)).nodes[3].target == "10.0.0.9"


@pytest.mark.parametrize("text", ["nosuch.txt", "hosts.lst", "HOSTS.TXT", "here/nosuch", "/nosuch"])
def test_a_file_that_is_not_there_is_not_the_name_of_a_node(text: str) -> None:
    with pytest.raises(UsageProblem, match=f"there is no file '{text}' with nodes") as caught:
        read_nodes(text)
    assert "Name a file that is here" in caught.value.next_step
    with pytest.raises(UsageProblem, match="there is no file"):
        read_nodes("a,b", exclude=text)


@pytest.mark.parametrize("text", ["txt", "n1.txt.example.org", "a.txt,b", "node[1-2].txt"])
def test_names_that_only_resemble_a_file_are_nodes(text: str) -> None:
    assert names(text)


def test_stdin_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb # c\n"))
    assert names("-") == ["a", "b"]


def test_duplicates_are_taken_once_and_told() -> None:
    found = read_nodes("a,b,a,n[1-3],n2")
    assert [spec.name for spec in found.nodes] == ["a", "b", "n1", "n2", "n3"]
    assert found.warnings == ("given more than once, used once: a,n2",)


def test_one_host_behind_two_ports_is_two_nodes() -> None:
    found = read_nodes("h:2201,h:2202,other:2201").nodes
    assert [(spec.name, spec.target, spec.port) for spec in found] == [
        ("h:2201", "h", 2201),
        ("h:2202", "h", 2202),
        ("other", "other", 2201),
    ]


def test_excluding_a_node_spares_those_whose_names_begin_like_its_own() -> None:
    assert names("n1,n10,n11,n2", exclude="n1") == ["n10", "n11", "n2"]
    assert names("n1,n10,an1", exclude="n10") == ["n1", "an1"]


def test_a_node_may_be_excluded_by_its_address(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("a address=10.0.0.1\nb address=10.0.0.11\n")
    assert names(str(path), exclude="10.0.0.1") == ["b"]


def test_exclusion_takes_sets_and_files_and_warns_of_strangers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("n2\nn4\n")
    assert names("n[1-4]", exclude="n[1-2]") == ["n3", "n4"]
    assert names("n[1-4]", exclude=str(out)) == ["n1", "n3"]
    assert read_nodes("n1,n2", exclude="n2,x").warnings == ("excluded, but not in the list: x",)
    with pytest.raises(UsageProblem, match="no node is left"):
        read_nodes("n[1-4]", exclude="n[1-9]")


@pytest.mark.parametrize(
    "text",
    [
        "n1;rm",
        "$(reboot)",
        "`id`",
        "a|b",
        "a&b",
        "a!b",
        "a^b",
        "n1>x",
        "n1'",
        'n"1',
        "a\\b",
        "-oProxyCommand=x",
        "-oProxyCommand",
        "root@-oProxyCommand",
        "-l@host",
        "a@b@c",
        "host:99999",
        "host:0",
        "host:ssh",
        "a[1-",
        "a[3-1]",
        "a[]",
        "n[1-100000000]",
        "n[1-1000]x[1-1000]",
        "n[0-1]223372036854775808.0.0.1",
        "@no_such_group",
        "@;id",
        "/no/such/file",
        "",
        ",",
        "a slots=x",
        "a slots=1 b",
        "a colour=red",
        "a,b address=10.0.0.1",
        "a address=10.0.0.[1-2]",
        "a address=10.0.0.1:8",
        "node3 drained",
        "a b",
        "a 8 b",
        "a 8 all.q",
        "8 a",
        "a -8",
        "[fe80::1%]:22",
        "[fe80::1%eth0;id]:22",
        "[node1]:22",
        "a:8:ib0",
        "a address=-oX",
        "a user=$x",
        "é",
        "x" * 300,
        "n1\x1b[31m",
    ],
)
def test_what_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem):
        read_nodes(text)


@given(st.text(max_size=40))
def test_no_text_gives_a_name_that_a_command_could_misread(text: str) -> None:
    if text == "-":
        return
    try:
        found = read_nodes(text).nodes
    except UsageProblem:
        return
    for spec in found:
        assert spec.name[0] not in "-"
        assert all(c.isalnum() or c in "._-:" for c in spec.name)
        assert spec.name.isascii()


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(b"\xff\x00n")
    with pytest.raises(UsageProblem, match="cannot read"):
        read_nodes(str(path))


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("good\n# fine\nba;d\n")
    with pytest.raises(UsageProblem, match="line 3"):
        read_nodes(str(path))


@pytest.mark.parametrize("word", ["port=0", "port=65536", "port=²", "slots=²", "slots=-1"])
def test_a_number_that_is_none_is_named(tmp_path: Path, word: str) -> None:
    (tmp_path / "hosts").write_text(f"n1 {word}\n")
    with pytest.raises(UsageProblem, match=re.escape(word.partition("=")[2])):
        read_nodes(str(tmp_path / "hosts"))


@pytest.mark.parametrize("key", ["port", "slots", "max_slots"])
def test_a_number_of_many_digits_is_refused_in_a_few_words(tmp_path: Path, key: str) -> None:
    (tmp_path / "hosts").write_text(f"n1 {key}={'7' * 9000}\n")
    with pytest.raises(UsageProblem) as told:
        read_nodes(str(tmp_path / "hosts"))
    assert len(str(told.value)) < 300


def test_slurm_gives_the_default() -> None:
    assert [s.name for s in default_nodes({"SLURM_JOB_NODELIST": "c[1-2],g7"}).nodes] == [
        "c1",
        "c2",
        "g7",
    ]
    with pytest.raises(UsageProblem, match="not a Slurm job"):
        default_nodes({})


def test_names_are_folded_for_people() -> None:
    assert fold(["node2", "node1", "node3", "x"]) == "node[1-3],x"
    assert fold(["::1", "n1", "h:22"]) == "n1,::1,h:22"
    assert fold([]) == ""


@pytest.mark.parametrize(
    "scope", ["eth0;reboot", "$(reboot)", "`id`", "x" * 16, "-oProxy", "\x1b[2J"]
)
def test_the_scope_of_an_address_must_name_an_interface(scope: str) -> None:
    assert numeric_address("fe80::1%eth0.100") == "fe80::1%eth0.100"
    assert numeric_address(f"fe80::1%{scope}") == ""
    with pytest.raises(UsageProblem):
        read_nodes(f"fe80::1%{scope}")
    with pytest.raises(UsageProblem):
        read_nodes(f"n1 address=fe80::1%{scope}")
    with pytest.raises(NoRoute):
        route_to(f"fe80::1%{scope}")


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("host1 8 host2 4", [NodeSpec("host1", slots=8), NodeSpec("host2", slots=4)]),
        ("host1 8", [NodeSpec("host1", slots=8)]),
        ("n[1-2] 8", [NodeSpec("n1", slots=8), NodeSpec("n2", slots=8)]),
        ("n1 8 all.q@n1 UNDEFINED\nn2 4 all.q@n2 <NULL>",
         [NodeSpec("n1", slots=8), NodeSpec("n2", slots=4)]),
        ("n1 slots = 8 max_slots=9\nn2 slots= 2",
         [NodeSpec("n1", slots=8), NodeSpec("n2", slots=2)]),
        ("n9 address=ops@10.0.0.9:2222",
         [NodeSpec("n9", address="10.0.0.9", user="ops", port=2222)]),
        ("n9 address=[fe80::1%eth0]:2222", [NodeSpec("n9", address="fe80::1%eth0", port=2222)]),
        ("n9 address=fe80::1 port=2222", [NodeSpec("n9", address="fe80::1", port=2222)]),
        ("n[1-2] address=10.0.0.[1-2]",
         [NodeSpec("n1", address="10.0.0.1"), NodeSpec("n2", address="10.0.0.2")]),
        ("a,b address=10.0.0.9,gw:22",
         [NodeSpec("a", address="10.0.0.9"), NodeSpec("b", address="gw", port=22)]),
        ("[fe80::1%eth0]:22", [NodeSpec("fe80::1%eth0", port=22)]),
        ("me@[fe80::1%2]", [NodeSpec("fe80::1%2", user="me")]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_schedulers_libraries_and_editors_write(
    tmp_path: Path, text: str, nodes: list[NodeSpec], encoding: str, end: str
) -> None:
    (tmp_path / "hosts").write_bytes(text.replace("\n", end).encode(encoding))
    found = read_nodes(str(tmp_path / "hosts"))
    assert (list(found.nodes), found.warnings) == (nodes, ())


def test_a_number_behind_a_name_is_processes_unless_it_can_be_sshs_port(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("n1:8\nn2:8\nn3:22\nn4:2222\n")
    found = read_nodes(str(tmp_path / "hosts"))
    assert found.nodes == (
        NodeSpec("n1", slots=8),
        NodeSpec("n2", slots=8),
        NodeSpec("n3", port=22),
        NodeSpec("n4", port=2222),
    )
    (warning,) = found.warnings
    assert warning.startswith("n1:8 is taken for a number of processes")
    assert read_nodes("a:2,b:2").nodes == (NodeSpec("a", slots=2), NodeSpec("b", slots=2))
    assert read_nodes("n1 port=8").nodes == (NodeSpec("n1", port=8),)


def test_a_line_with_a_word_too_many_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node1\nnode3 drained\n")
    with pytest.raises(UsageProblem, match="line 2: 'drained' stands behind a node") as refused:
        read_nodes(str(tmp_path / "hosts"))
    assert "a remark begins with #" in refused.value.next_step
