"""Which files of a folder are merged: stale ones, damaged ones, copies and large worlds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relkit.errors import BadDump
from relkit.ranks import RankSet
from relkit.stacks.dumpfile import write_dump
from relkit.stacks.folder import node_folder, python_scanner
from relkit.stacks.merge import merge_folder
from relkit.stacks.model import Frame, RankDump, ThreadStack
from tests.unit.stacks.xpu_messages import Stacktrace


def dump(rank: int, world_size: int = 4, job_id: str = "new", when: int = 200) -> RankDump:
    threads = (ThreadStack(1, "t", (Frame("f", "s"),)),)
    return RankDump(rank, world_size, 1, "S", threads, job_id=job_id, captured_unix_ns=when)


def foreign(folder: Path, name: str, rank: int) -> None:
    (folder / name).write_bytes(Stacktrace(rank=rank, process_state="S").SerializeToString())


def test_the_job_captured_last_wins_and_the_others_are_named(tmp_path: Path) -> None:
    for rank in range(2):
        write_dump(tmp_path, dump(rank))
    for rank in (2, 3, 4, 5):
        write_dump(tmp_path, dump(rank, 8, "old", 100))
    merged = merge_folder(tmp_path)
    assert (merged.job_id, merged.world_size) == ("new", 4)
    assert merged.present == RankSet.of([0, 1])
    assert [name for name, _ in merged.refused] == [
        f"{rank:05d}-00008.stacktrace" for rank in (2, 3, 4, 5)
    ]
    assert {reason for _, reason in merged.refused} == {"of job old, not of job new"}
    (node,) = (root for root in merged.native.roots if root.func == "f")
    assert node.ranks == RankSet.of([0, 1])


def test_a_job_can_be_asked_for(tmp_path: Path) -> None:
    write_dump(tmp_path, dump(0))
    write_dump(tmp_path, dump(3, 8, "old", 100))
    assert merge_folder(tmp_path, job_id="old").present == RankSet.of([3])
    with pytest.raises(BadDump, match="of job other") as refusal:
        merge_folder(tmp_path, job_id="other")
    assert refusal.value.next_step == "The files there are of: job new, job old."


def test_the_world_size_of_most_files_wins_without_a_job_id(tmp_path: Path) -> None:
    foreign(tmp_path, "00000-00002.stacktrace", 0)
    for rank in range(3):
        foreign(tmp_path, f"{rank:05d}-00004.stacktrace", rank)
    merged = merge_folder(tmp_path)
    assert (merged.world_size, merged.present) == (4, RankSet.of([0, 1, 2]))
    assert merged.refused == (("00000-00002.stacktrace", "of a world of 2 ranks, not of 4"),)


def test_files_of_the_original_tool_are_not_mixed_with_a_named_job(tmp_path: Path) -> None:
    write_dump(tmp_path, dump(0))
    foreign(tmp_path, "00001-00004.stacktrace", 1)
    assert merge_folder(tmp_path).refused == (
        ("00001-00004.stacktrace", "of no named job, not of job new"),
    )


def test_a_copy_does_not_count_twice(tmp_path: Path) -> None:
    path = write_dump(tmp_path, dump(0))
    (tmp_path / "copy.stacktrace").write_bytes(path.read_bytes())
    merged = merge_folder(tmp_path)
    assert len(merged.refused) == 1
    assert "rank 0 has the file" in merged.refused[0][1]
    assert [root.threads for root in merged.native.roots if root.func == "f"] == [1]


def test_a_damaged_file_is_refused_and_its_rank_absent(tmp_path: Path) -> None:
    write_dump(tmp_path, dump(0))
    path = write_dump(tmp_path, dump(1))
    path.write_bytes(path.read_bytes()[:-3])
    merged = merge_folder(tmp_path)
    ((name, reason),) = merged.refused
    assert name == path.name
    assert "bytes are there" in reason or "only" in reason
    assert [root.ranks for root in merged.native.roots if root.source == "absent"] == [
        RankSet.of([1, 2, 3])
    ]


def test_ranks_beyond_ninety_nine_thousand(tmp_path: Path) -> None:
    for rank in (0, 9_999, 99_999, 100_000, 131_071):
        write_dump(tmp_path, dump(rank, 131_072))
    merged = merge_folder(tmp_path)
    assert merged.world_size == 131_072
    assert merged.present == RankSet.of([0, 9_999, 99_999, 100_000, 131_071])


def test_names_that_say_nothing_will_do_where_the_header_speaks(tmp_path: Path) -> None:
    path = write_dump(tmp_path, dump(2))
    path.rename(tmp_path / "from node7.stacktrace")
    assert merge_folder(tmp_path).present == RankSet.of([2])


def test_other_files_do_not_matter(tmp_path: Path) -> None:
    write_dump(tmp_path, dump(0))
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / ".00001-00004.stacktrace").write_text("half")
    assert merge_folder(tmp_path).refused == ()


@pytest.mark.parametrize("what", ["missing", "empty", "file", "damaged"])
def test_nothing_to_merge_says_what_to_do(tmp_path: Path, what: str) -> None:
    folder = tmp_path / what
    if what == "file":
        folder.write_text("")
    elif what != "missing":
        folder.mkdir()
    if what == "damaged":
        (folder / "00000-00001.stacktrace").write_bytes(b"\x0a\xff")
    with pytest.raises(BadDump) as refusal:
        merge_folder(folder)
    assert str(folder) in str(refusal.value)
    assert refusal.value.next_step


def test_progress_ends_at_all_files(tmp_path: Path) -> None:
    for rank in range(4):
        write_dump(tmp_path, replace(dump(rank)))
    seen: list[tuple[int, int]] = []
    merge_folder(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)


def test_the_folders_of_nodes_belong_to_it(tmp_path: Path) -> None:
    for rank in range(4):
        node = node_folder(tmp_path, str(rank // 2))
        node.mkdir(exist_ok=True)
        write_dump(node, dump(rank))
    elsewhere = tmp_path / "previous-job"
    elsewhere.mkdir()
    write_dump(elsewhere, dump(3, when=900))
    (tmp_path / "node-link").symlink_to(elsewhere)
    for scanner in (None, python_scanner):
        merged = merge_folder(tmp_path, scanner=scanner)
        assert (merged.world_size, merged.present) == (4, RankSet.world(4))
        assert merged.refused == ()


def test_whatever_a_node_is_called_its_folder_is_below() -> None:
    assert node_folder(Path("/t"), "../../etc") == Path("/t/node-.._.._etc")
