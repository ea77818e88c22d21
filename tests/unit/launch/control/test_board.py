"""Notes that any launcher leaves for any other: who gets them, and what stays within bounds."""

from __future__ import annotations

from relkit.launch.control import board as board_module
from relkit.launch.control.board import ASK_AGAIN_S, Board
from relkit.launch.control.frame import Post, Wanted, decode, encode

NODES = 3


class Tree:
    """Node 0 leads, node 1 reports to it, node 2 to node 1."""

    def __init__(self) -> None:
        self.boards = [Board(node, NODES) for node in range(NODES)]
        for board in self.boards:
            board.move(leads=False)
        self.boards[0].move(leads=True)
        self.now_s = 100.0
        self.went: list[Post | Wanted] = []

    def get(self, node: int, name: str) -> bytes | None:
        """What a node finds once its question has gone round."""
        self.boards[node].get(name, self.now_s)
        self.carry()
        return self.boards[node].get(name, self.now_s)

    def carry(self) -> None:
        for _ in range(2 * NODES):
            for node in (2, 1):
                for frame in self.boards[node].take_up():
                    self._up(node - 1, frame)
            for node in (0, 1):
                for post in self.boards[node].take_down():
                    self._down(node + 1, post)

    def _up(self, node: int, frame: Post | Wanted) -> None:
        self.went.append(frame)
        came = decode(encode(frame), NODES)
        if isinstance(came, Wanted):
            if answer := self.boards[node].ask(came, self.now_s):
                self._down(node + 1, answer)
        elif isinstance(came, Post):
            self.boards[node].take(came)

    def _down(self, node: int, post: Post) -> None:
        self.went.append(post)
        came = decode(encode(post), NODES)
        assert isinstance(came, Post)
        self.boards[node].take(came)


def test_every_node_reads_what_any_other_has_left_and_what_replaces_it() -> None:
    for writer in range(NODES):
        tree = Tree()
        for word in (b"first", b"", b"third"):
            tree.boards[writer].put("end/note", word)
            assert [tree.get(node, "end/note") for node in range(NODES)] == [word] * NODES


def test_what_was_looked_for_before_it_was_left_comes_by_itself() -> None:
    tree = Tree()
    for node in range(NODES):
        assert tree.get(node, "end/note") is None
    tree.boards[2].put("end/note", b"there")
    tree.carry()
    assert [board.get("end/note", tree.now_s) for board in tree.boards] == [b"there"] * NODES


def test_nothing_goes_down_that_nobody_there_has_looked_for() -> None:
    tree = Tree()
    tree.boards[2].put("steps/2", b"for node 0")
    tree.boards[0].put("control", b"for nobody yet")
    tree.carry()
    assert tree.get(0, "steps/2") == b"for node 0"
    assert [post for post in tree.went if isinstance(post, Post) and not post.is_up] == []
    assert tree.get(1, "control") == b"for nobody yet"
    assert tree.boards[2].get("control", tree.now_s) is None


def test_a_note_that_was_removed_comes_back_only_where_it_is_written_anew() -> None:
    tree = Tree()
    tree.boards[2].put("steps/0", b"old")
    assert tree.get(0, "steps/0") == b"old"
    tree.boards[0].remove("steps/0")
    # The way was broken: all is sent again.
    for board in tree.boards:
        board.send_again()
    assert tree.get(0, "steps/0") is None
    tree.boards[2].put("steps/0", b"new")
    assert tree.get(0, "steps/0") == b"new"
    tree.boards[1].remove("steps/none")


def test_an_older_note_never_replaces_a_newer_one() -> None:
    board = Board(0, NODES)
    for number in (2, 1):
        board.take(Post(1, 2, number, is_up=True, name="a/b", data=b"%d" % number))
    assert board.get("a/b", 0.0) == b"2"


def test_who_leads_next_is_told_all_that_the_others_have_written() -> None:
    tree = Tree()
    tree.boards[2].put("end/2", b"2")
    assert tree.get(1, "end/2") == b"2"
    first, second, third = tree.boards
    second.move(leads=True)
    third.move(leads=False)
    third.put("end/later", b"3")
    for frame in third.take_up():
        assert not isinstance(frame, Wanted)
        second.take(frame)
    assert [second.get(name, 0.0) for name in ("end/2", "end/later")] == [b"2", b"3"]
    assert second.take_up() == []
    assert first.get("end/later", 0.0) is None


def test_a_question_or_an_answer_that_was_lost_is_made_up_for() -> None:
    tree = Tree()
    tree.boards[2].get("end/note", tree.now_s)
    tree.boards[2].take_up()
    tree.boards[0].put("end/note", b"here")
    tree.carry()
    assert tree.get(2, "end/note") is None
    tree.now_s += ASK_AGAIN_S
    assert tree.get(2, "end/note") == b"here"
    # What is known is not sent again for that.
    tree.went.clear()
    tree.now_s += ASK_AGAIN_S
    assert tree.get(2, "end/note") == b"here"
    assert [frame for frame in tree.went if isinstance(frame, Post)] == []


def test_what_could_not_be_sent_goes_later() -> None:
    board = Board(1, NODES)
    board.move(leads=False)
    board.put("end/1", b"1")
    board.get("end/0", 0.0)
    frames = board.take_up()
    assert [type(frame) for frame in frames] == [Wanted, Post]
    assert board.take_up() == []
    for frame in frames:
        board.put_back(frame)
    assert board.take_up() == frames


def test_a_member_that_floods_the_others_costs_them_its_own_purpose_at_most() -> None:
    board = Board(0, 1)
    board.put("end/0", b"kept")
    for number in range(2000):
        board.take(Post(0, 0, 10 + number, is_up=True, name=f"flood/{number}", data=b"x"))
        board.ask(Wanted(0, 0, f"flood/{number}"), 0.0)
    assert board.get("end/0", 0.0) == b"kept"
    assert board.get("flood/1999", 0.0) == b"x"
    assert board.get("flood/0", 0.0) is None
    assert len(board._shelves["flood"]._kept) == board_module._MAX_NAMES_A_NODE
    assert len(board._wanted) == board_module._MAX_WANTED_A_NODE
    for number in range(1000):
        board.take(Post(0, 0, number, is_up=True, name=f"{number}/x", data=b"x"))
    assert len(board._shelves) == board_module._MAX_PURPOSES


def test_large_notes_make_room_for_each_other() -> None:
    board = Board(0, 2)
    large = bytes(board_module._MAX_PURPOSE_BYTES // 4)
    for number in range(6):
        board.put(f"a/{number}", large)
    assert [board.get(f"a/{number}", 0.0) is not None for number in range(6)] == [False] * 2 + [
        True
    ] * 4
    board.remove("a/5")
    board.put("a/6", large)
    assert board.get("a/2", 0.0) is not None
