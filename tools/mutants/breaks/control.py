"""Breaks of the links between launchers, and of who leads."""

from __future__ import annotations

from tools.mutants.model import Break

_ATTACHMENT = ("tests/unit/launch/control/test_attachment.py",)
_BOX = ("tests/unit/launch/control/test_note_box.py",)
_FRAME = ("tests/unit/launch/control/test_frame.py",)
_LINKS = ("tests/unit/launch/control/test_links.py",)
_TREE = ("tests/unit/launch/control/test_tree.py",)
_WATCH = ("tests/unit/launch/test_succession.py",)

BREAKS = (
    Break("relkit/launch/control/tree.py", "node = (node - 1) // fan_in", "node = 0", _TREE),
    Break("relkit/launch/control/tree.py", "if c not in silent), None)", "), None)", _TREE),
    # A node that nobody hears leads for ever.
    Break("relkit/launch/control/tree.py", "if h < node and h not in above", "if False", _TREE),
    Break(
        "relkit/launch/control/frame.py",
        "if max(named) >= nodes:",
        "if False:",
        _FRAME,
    ),
    Break(
        "relkit/launch/control/frame.py",
        "if (magic, version) != (_MAGIC, _VERSION):",
        "if magic != _MAGIC:",
        _FRAME,
    ),
    Break(
        "relkit/launch/control/attachment.py",
        "now_s - since_s > SILENT_S",
        "False",
        _ATTACHMENT,
    ),
    Break(
        "relkit/launch/control/attachment.py",
        "now_s - candidate.gone_s > GONE_S",
        "False",
        _ATTACHMENT,
    ),
    Break(
        "relkit/launch/control/attachment.py",
        "self._shift(now_s - self._looked_s)",
        "pass",
        _ATTACHMENT,
    ),
    Break(
        "relkit/launch/control/attachment.py",
        "and self.node not in path",
        "",
        _ATTACHMENT,
    ),
    # A dead leader's successor gets what was meant for the dead one.
    Break(
        "relkit/launch/control/note_box.py",
        "            self._own.clear()\n            self._unsent.clear()\n",
        "            pass\n",
        _BOX,
    ),
    Break(
        "relkit/launch/control/note_box.py", "elif note.leader == self._node and (", "elif (", _BOX
    ),
    # What was on its way through a relay that dies is lost.
    Break("relkit/launch/control/note_box.py", "self._unsent |= self._own", "pass", _LINKS),
    Break("relkit/launch/control/sockets.py", "asked[6] == z85.decode(public)", "True", _LINKS),
    Break("relkit/launch/control/links.py", "if child.attached:", "if False:", _LINKS),
    Break(
        "relkit/launch/control/join.py",
        "route = _own_address(rendezvous, peer)",
        "pass",
        _LINKS,
    ),
    Break(
        "relkit/launch/control/job_links.py",
        "if rendezvous.mailbox.nodes == 1:",
        "if False:",
        _LINKS,
    ),
    # Evidence is on disk only after the leader may have ended the job.
    Break(
        "relkit/launch/hang/follower.py",
        "        self._write_dumps(dumps)\n",
        "        self._state.suspicions.clear()\n",
        _WATCH,
    ),
    # A node that is known to be silent is waited for.
    Break(
        "relkit/launch/hang/incident.py",
        "or waiting <= mailbox.silent",
        "",
        _WATCH,
    ),
    # A node decides that has not said that it leads.
    Break(
        "relkit/launch/hang/watch.py",
        "return self._led_by == self._attempt.mailbox.node",
        "return self._attempt.mailbox.leader == self._attempt.mailbox.node",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/watch.py",
        "            self.state.failure_handled = False\n",
        "            pass\n",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "self._leader, self._failure_sent_s = leader, None",
        "self._leader = leader",
        _WATCH,
    ),
    Break(
        "relkit/launch/hang/follower.py",
        "number = self._incidents.get(leader, 0)",
        "number = max(self._incidents.values(), default=0)",
        _WATCH,
    ),
    # Nodes in between pass on each summary by itself, or let them pile up.
    Break(
        "relkit/launch/control/note_box.py",
        "taken, self._shared = self._shared, {}",
        "taken = self._shared",
        _BOX,
    ),
    Break("relkit/launch/control/note_box.py", "deque(maxlen=_MAX_SHARED)", "deque()", _BOX),
    Break(
        "relkit/launch/control/note_box.py",
        "if shared.leader == self.leader and",
        "if",
        _BOX,
    ),
    Break(
        "relkit/launch/control/note_box.py",
        '[f"{prefix}{min(nodes)}"]',
        '[f"{prefix}{nodes[0]}"]',
        _BOX,
    ),
)
