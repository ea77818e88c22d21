"""Lines of Python tracebacks -> the exception, and the line of the program that it came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from relkit.hang.frames import is_user_code, place
from relkit.stacks.model import Frame

# Not `Stack (most recent call last)`, which logging writes of healthy programs.
SIGN = "Traceback (most recent call last)"
_FRAME = re.compile(r'File "([^"]{1,1024})", line (\d{1,9})(?:, in (.{1,256}))?')
# A name, or names with dots, that a message or nothing follows; <locals> of a class in a function.
_EXCEPTION = re.compile(r"((?:(?:[A-Za-z_]\w*|<locals>)\.)*[A-Z_a-z]\w*)(?:: ?(.*))?$")
_CHAINED = ("During handling of the above", "The above exception was the direct cause")
_GROUP = re.compile(r"^\s*[+|](?:[-+ |]*)")
_LEVEL = re.compile(
    r"^.{0,80}?\b(?:ERROR|CRITICAL|FATAL|WARNING|INFO|stderr)\b[^\w(]{0,4}(?:[\w.]+:\d+[^\w]+)?"
)
# Python prints a thousand frames at most, of three lines each.
_MAX_LINES = 4000
_MAX_ODD = 6
_MAX_MESSAGE = 600
_NO_EXCEPTION = frozenset(("File", "Process", "Thread", "step", "epoch"))


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a traceback.

    Args:
        name: of its class, with its modules; message: its first line.
        where: the innermost line of somebody's own code, as `w/train.py:84 step`.
        line: number of the line that names it; offset: of that, bytes.
        chained: "" for the first; "handling" or "cause": how it follows from the one before it.
    """

    name: str
    message: str
    where: str
    line: int
    offset: int
    chained: str

    @property
    def text(self) -> str:
        """As Python prints it."""
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(slots=True)
class Traceback:
    """A traceback that is being read.

    Args:
        indent: of its first line; the exception stands there as well.
        raised: its exceptions so far, in its order.
        is_done: it takes no more lines.
    """

    indent: int
    raised: list[Raised] = field(default_factory=list)
    is_done: bool = False
    # The last frame, and the last of somebody's own code: thousands may be open at once.
    _innermost: Frame | None = None
    _own: Frame | None = None
    _lines: int = 0
    _odd: int = 0
    _chained: str = ""
    _is_chain: bool = False
    _in_frames: bool = True
    _has_more: bool = False

    def add(self, text: str, line: int, offset: int) -> bool:
        """Take the next line; False where it is none of the traceback's."""
        self._lines += 1
        if self._lines > _MAX_LINES:
            self.is_done = True
            return False
        if SIGN in text:
            # Without a word between them, the next one is another one.
            self.is_done = bool(self.raised) and not self._is_chain and "Original" not in text
            self._innermost = self._own = None
            self._in_frames, self._odd, self._is_chain = True, 0, False
            return not self.is_done
        frame = _FRAME.search(text)
        if frame is not None:
            self._innermost = Frame((frame[3] or "").strip(), f"{frame[1]}:{frame[2]}")
            self._own = self._innermost if is_user_code(self._innermost) else self._own
            self._in_frames, self._odd = True, 0
            return True
        return self._among_frames(text, line, offset) if self._in_frames else self._behind(text)

    def _among_frames(self, text: str, line: int, offset: int) -> bool:
        bare = text.strip()
        if not bare or bare.startswith(("^", "~", "[Previous line repeated", "...")):
            return True
        inner = _LEVEL.sub("", text) if not self._is_outer(text) else text
        body = _GROUP.sub("", inner) if inner.lstrip()[:1] in "|+" else inner[self.indent :]
        if body[:1] in (" ", "\t"):
            return True
        match = _EXCEPTION.match(body.strip())
        if match is None or match[1] in _NO_EXCEPTION:
            self._odd += 1
            self.is_done = self._odd > _MAX_ODD
            return False
        shown = self._own or self._innermost
        where = place(shown) if shown is not None else ""
        message = (match[2] or "")[:_MAX_MESSAGE]
        self.raised.append(Raised(match[1], message, where, line, offset, self._chained))
        # Behind a bare name comes what somebody else writes.
        self._has_more = match[2] is not None and _goes_on(message)
        self._in_frames = False
        return True

    def _is_outer(self, text: str) -> bool:
        return _EXCEPTION.match(text[self.indent :].strip()) is not None

    def _behind(self, text: str) -> bool:
        """Behind an exception: its message goes on, another one follows, or it is over."""
        bare = text.strip()
        if not bare:
            return True
        if bare.startswith(_CHAINED):
            self._chained = "cause" if bare.startswith(_CHAINED[1]) else "handling"
            self._is_chain = True
            return True
        if self._has_more:
            last = self.raised[-1]
            message = f"{last.message} {bare}".strip()[:_MAX_MESSAGE]
            self.raised[-1] = replace(last, message=message)
            self._has_more = _goes_on(message)
            return True
        self._odd += 1
        self.is_done = self._odd > 2
        return False


def _goes_on(message: str) -> bool:
    """Whether the first line of a message says nothing without the next one."""
    return not message.strip() or message.rstrip().endswith(":")


def begins_traceback(text: str) -> bool:
    """Whether this line is the first of a traceback."""
    return SIGN in text


def new_traceback(text: str) -> Traceback:
    """A traceback that begins with this line.

    Args:
        text: of it, without prefixes.
    """
    before = text[: max(text.find("Traceback"), 0)]
    return Traceback(len(before) if not before.strip() else 0)
