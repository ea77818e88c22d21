"""C++ names for people: demangled, without version suffix and argument list."""

from __future__ import annotations

import ctypes
import functools

# Longer names exist only in hostile files; the demangler's time and output grow faster than them.
_LIMIT_BYTES = 8192
_QUALIFIERS = (" const", " volatile", " noexcept", " &&", " &")


class _Demangler:
    """`__cxa_demangle` of libstdc++; leaves names as they are where the library is missing."""

    def __init__(self) -> None:
        self._function = None
        try:
            runtime = ctypes.CDLL("libstdc++.so.6")
            libc = ctypes.CDLL(None)
            # By item: as an attribute, Python would mangle the name inside a class.
            function = runtime["__cxa_demangle"]
            self._free = libc.free
        except (OSError, AttributeError):
            return
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self._free.argtypes = [ctypes.c_void_p]
        self._free.restype = None
        self._function = function

    def __call__(self, name: bytes) -> bytes:
        if self._function is None or len(name) > _LIMIT_BYTES:
            return name
        status = ctypes.c_int(0)
        text = self._function(name, None, None, ctypes.byref(status))
        if not text:
            return name
        try:
            return ctypes.string_at(text)
        finally:
            self._free(text)


@functools.cache
def _demangler() -> _Demangler:
    return _Demangler()


def _without_qualifiers(name: str) -> str:
    while True:
        clone = name.rfind(" [clone ")
        if clone > 0 and name.endswith("]"):
            name = name[:clone]
            continue
        ending = next((q for q in _QUALIFIERS if name.endswith(q)), None)
        if ending is None:
            return name
        name = name[: -len(ending)]


def strip_arguments(name: str) -> str:
    """A demangled name without its last parameter list; template arguments stay whole.

    `c10d::Work::wait(long) const` -> `c10d::Work::wait`; lambdas keep the list that names them.
    """
    bare = _without_qualifiers(name)
    if not bare.endswith(")"):
        return name
    depth = 0
    for i in range(len(bare) - 1, -1, -1):
        if bare[i] == ")":
            depth += 1
        elif bare[i] == "(":
            depth -= 1
            if depth == 0:
                cut = bare[:i].rstrip()
                # "(anonymous namespace)" is a name, and so is the () of operator().
                if not cut or bare[i:] == "(anonymous namespace)":
                    return name
                return f"{cut}()" if cut.endswith("operator") else cut
    return name


@functools.lru_cache(maxsize=1 << 16)
def function_name(symbol: bytes) -> str:
    """The name to show for a symbol of an ELF table."""
    bare = symbol.partition(b"@")[0] or symbol
    mangled = bare.startswith((b"_Z", b"___Z"))
    text = (_demangler()(bare) if mangled else bare).decode("utf-8", "replace")
    return strip_arguments(text) if mangled else text
