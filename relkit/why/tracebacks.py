"""Lines of Python tracebacks -> the exception, and the line of the program that it came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from relkit.hang.infrastructure import is_infrastructure
from relkit.why.model import Clock
from relkit.why.rules.told import Kind

_BEGINS = "(most recent call last)"
_FRAME = re.compile(r'File "([^"]{1,1024})", line (\d{1,9})(?:, in (.{1,256}))?')
# A name, or names with dots, that a message or nothing follows.
_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z_a-z]\w*)(?:: ?(.*))?$")
_CHAINED = ("During handling of the above", "The above exception was the direct cause")
_GROUP = re.compile(r"^\s*[+|](?:[-+ |]*)")
_LEVEL = re.compile(
    r"^.{0,80}?\b(?:ERROR|CRITICAL|FATAL|WARNING|INFO|stderr)\b[^\w(]{0,4}(?:[\w.]+:\d+[^\w]+)?"
)
_MAX_LINES = 400
_MAX_ODD = 6
_MAX_MESSAGE = 600
_NO_EXCEPTION = frozenset(("File", "Process", "Thread", "Exception", "Error", "step", "epoch"))


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a traceback.

    Args:
        name: of its class, with its modules; message: its first line.
        code: the innermost line of somebody's own code, as `train.py:84 in step`.
        line: number of the line that names it; offset: of that, bytes.
        chained: "" for the first; "handling" or "cause": how it follows from the one before it.
    """

    name: str
    message: str
    code: str
    line: int
    offset: int
    chained: str = ""

    @property
    def text(self) -> str:
        """As Python prints it."""
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(slots=True)
class Traceback:
    """A traceback that is being read.

    Args:
        indent: of its first line; the exception stands there as well.
        clock: when it began, None where nothing says it.
        most: what it says at most, by the line above it.
    """

    indent: int
    clock: Clock | None = None
    frames: list[tuple[str, str, str]] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    lines: int = 0
    odd: int = 0
    chained: str = ""
    is_chain: bool = False
    in_frames: bool = True
    is_done: bool = False
    most: Kind = Kind.ROOT

    def add(self, text: str, line: int, offset: int) -> bool:
        """Take the next line; False where it is none of the traceback's."""
        self.lines += 1
        if self.lines > _MAX_LINES:
            self.is_done = True
            return False
        if _BEGINS in text:
            # Without a word between them, the next one is another one.
            self.is_done = bool(self.raised) and not self.is_chain and "Original" not in text
            self.frames, self.in_frames, self.odd, self.is_chain = [], True, 0, False
            return not self.is_done
        frame = _FRAME.search(text)
        if frame is not None:
            self.frames.append((frame[1], frame[2], frame[3] or ""))
            self.in_frames, self.odd = True, 0
            return True
        return self._in_frames(text, line, offset) if self.in_frames else self._behind(text)

    def _in_frames(self, text: str, line: int, offset: int) -> bool:
        bare = text.strip()
        if not bare or bare.startswith(("^", "~", "[Previous line repeated", "...")):
            return True
        inner = _LEVEL.sub("", text) if not self._is_outer(text) else text
        body = _GROUP.sub("", inner) if inner.lstrip()[:1] in "|+" else inner[self.indent :]
        if body[:1] in (" ", "\t"):
            return True
        match = _EXCEPTION.match(body.strip())
        if match is None or match[1] in _NO_EXCEPTION:
            self.odd += 1
            self.is_done = self.odd > _MAX_ODD
            return False
        self.raised.append(
            Raised(
                match[1], (match[2] or "")[:_MAX_MESSAGE], _place(self.frames), line, offset,
                self.chained,
            )
        )  # fmt: skip
        self.in_frames = False
        return True

    def _is_outer(self, text: str) -> bool:
        return _EXCEPTION.match(text[self.indent :].strip()) is not None

    def _behind(self, text: str) -> bool:
        """Behind an exception: its message goes on, another one follows, or it is over."""
        bare = text.strip()
        if not bare:
            return True
        if bare.startswith(_CHAINED):
            self.chained = "cause" if bare.startswith(_CHAINED[1]) else "handling"
            self.is_chain = True
            return True
        last = self.raised[-1]
        if not last.message.strip() or last.message.rstrip().endswith(":"):
            more = f"{last.message} {bare}".strip()[:_MAX_MESSAGE]
            self.raised[-1] = Raised(
                last.name, more, last.code, last.line, last.offset, last.chained
            )
            return True
        self.odd += 1
        self.is_done = self.odd > 2
        return False


def begins_traceback(text: str) -> bool:
    """Whether this line is the first of a traceback."""
    return _BEGINS in text


def new_traceback(text: str, clock: Clock | None, most: Kind = Kind.ROOT) -> Traceback:
    """A traceback that begins with this line.

    Args:
        text: of it, without prefixes; clock: when it was written.
        most: what it says at most.
    """
    before = text[: max(text.find("Traceback"), 0)]
    return Traceback(len(before) if not before.strip() else 0, clock, lines=1, most=most)


def _place(frames: list[tuple[str, str, str]]) -> str:
    """The innermost line of somebody's own code; else the innermost at all."""
    if not frames:
        return ""
    own = [frame for frame in frames if not is_infrastructure(frame[0])]
    path, line, function = (own or frames)[-1]
    name = "/".join(path.replace("\\", "/").split("/")[-2:])
    return f"{name}:{line}" + (f" in {function.strip()}" if function else "")
