"""Colours of the stack pictures: hue by code family, strength by rarity, light and dark."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

STATE_FUNC = "State"
ROLE_FUNC = "Role"
"""Pseudo-frames that relkit.stacks puts on top of a tree: `State@S (sleeping)`, `Role@main`."""

END_FUNC = "(ends here)"
"""Drawn below a frame in which some ranks stop while others go on."""


class Family(str, Enum):
    """Whose code a frame is; the hues are those of the xpu_timer guide."""

    PYTHON = "python"
    TORCH = "torch"
    CPP = "cpp"
    STATE = "state"
    SYSTEM = "system"
    ROLE = "role"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Hue:
    """One family's place in OKLCH.

    Args:
        angle: hue, degrees.
        chroma: the strongest chroma that this hue may take (yellow bears more than cyan).
        title: the family's name in the legend.
    """

    angle: float
    chroma: float
    title: str


HUES: dict[Family, Hue] = {
    Family.PYTHON: Hue(212.0, 0.110, "Python, CPython"),
    Family.TORCH: Hue(150.0, 0.135, "torch, NCCL, gloo"),
    Family.CPP: Hue(95.0, 0.135, "C++"),
    Family.SYSTEM: Hue(25.0, 0.135, "C, system"),
    Family.STATE: Hue(310.0, 0.130, "process state"),
    Family.ROLE: Hue(260.0, 0.020, "thread role"),
}

LEVELS = 5
"""Strengths of colour: 0 = every rank is here, 4 = hardly any."""

_LIGHT = ((0.955, 0.24), (0.930, 0.42), (0.895, 0.62), (0.855, 0.85), (0.795, 1.0))
_DARK = ((0.315, 0.30), (0.345, 0.40), (0.385, 0.52), (0.760, 0.85), (0.830, 1.0))
INK_ON_PALE, INK_ON_DIM = "#16181d", "#e8eaf0"

_TORCH_CODE = re.compile(r"/torch/|/torch_|libtorch|libc10|[nmrh]ccl|gloo|\b(?:at|c10d?|torch)::")
_PYTHON_FILE = re.compile(r"\.py[cx]?(:\d+)?$|^<[^>]+>(:\d+)?$")
_CPYTHON_FILE = re.compile(
    r"(^|/)(lib)?python[\d.]*(\.so[\d.]*)?(:\d+)?$"
    r"|(^|/)(Python|Objects|Modules|Parser|Programs|Include)/[\w./]+\.[ch](:\d+)?$"
)
_CPYTHON_FUNC = re.compile(r"^_?Py[A-Z_]\w*$")


def is_cpython(func: str, source: str) -> bool:
    """The interpreter's own C code: what hides the user's Python frames in a native stack."""
    if _PYTHON_FILE.search(source):
        return False
    return bool(_CPYTHON_FILE.search(source) or _CPYTHON_FUNC.match(func))


def family(func: str, source: str) -> Family:
    """Whose code this frame is."""
    if func == STATE_FUNC:
        return Family.STATE
    if func in (ROLE_FUNC, END_FUNC):
        return Family.ROLE
    if _PYTHON_FILE.search(source):
        # A user's own file may well be named after NCCL; only torch's own tree counts here.
        return Family.TORCH if "/torch/" in source else Family.PYTHON
    if is_cpython(func, source):
        return Family.PYTHON
    if _TORCH_CODE.search(f"{source}\n{func}"):
        return Family.TORCH
    return Family.CPP if "::" in func else Family.SYSTEM


def rarity(count: int, present: int) -> int:
    """How rare `count` of `present` ranks is, 0 (all of them) to LEVELS - 1."""
    if count >= present:
        return 0
    if count * 3 > present:
        return 1 if count * 2 > present else 2
    return 4 if count <= max(1, present // 64) else 3


def fill(which: Family, level: int, *, dark: bool) -> str:
    """The box colour as #rrggbb."""
    lightness, share = (_DARK if dark else _LIGHT)[level]
    hue = HUES[which]
    return oklch(lightness, hue.chroma * share, hue.angle)


def ink(level: int, *, dark: bool) -> str:
    """The text colour on that box: at least 4.5:1 (WCAG AA), which a test asserts."""
    return INK_ON_DIM if dark and level < 3 else INK_ON_PALE


def css() -> str:
    """The rules for every family and level, light first, dark and print after."""
    light = _rules(dark=False)
    dark = _rules(dark=True)
    return f"{light}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n"


def _rules(*, dark: bool) -> str:
    lines = [
        f".rk-flame .rk-{which}.rk-r{level} > rect {{ fill: {fill(which, level, dark=dark)}; }}\n"
        for which in Family
        for level in range(LEVELS)
    ]
    lines += [
        f".rk-flame .rk-box.rk-r{level} > text {{ fill: {ink(level, dark=dark)}; }}\n"
        for level in range(LEVELS)
    ]
    return "".join(lines)


def oklch(lightness: float, chroma: float, angle: float) -> str:
    """OKLCH to #rrggbb (https://bottosson.github.io/posts/oklab), clipped to sRGB."""
    a = chroma * math.cos(math.radians(angle))
    b = chroma * math.sin(math.radians(angle))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    channels = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_gamma(channel):02x}" for channel in channels)


def _gamma(linear: float) -> int:
    clipped = min(max(linear, 0.0), 1.0)
    curved = 12.92 * clipped if clipped <= 0.0031308 else 1.055 * clipped ** (1 / 2.4) - 0.055
    return round(255 * curved)


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two #rrggbb colours, 1 to 21."""
    bright, dim = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
