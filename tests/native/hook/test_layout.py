"""relkit/hook/layout.py is the C header, field by field."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relkit.hook import layout
from relkit.hook.model import OpKind
from tests.native.recording import compile_c

pytestmark = pytest.mark.native

STRUCTURES: dict[str, np.dtype[Any]] = {
    "rk_header": layout.HEADER,
    "rk_op": layout.OP,
    "rk_hook": layout.HOOK,
    "rk_communicator": layout.COMMUNICATOR,
    "rk_slot": layout.SLOT,
    "rk_capture": layout.CAPTURE,
    "rk_peer": layout.PEER,
}

CONSTANTS = {
    "RK_VERSION": layout.VERSION,
    "RK_ENDIAN": layout.ENDIAN,
    "RK_RING_LENGTH": layout.RING_LENGTH,
    "RK_MAX_HOOKS": layout.MAX_HOOKS,
    "RK_EVENT_COUNT": layout.EVENT_COUNT,
    "RK_CAPTURE_DEPTH": layout.CAPTURE_DEPTH,
    "RK_OP_FAILED": layout.OP_FAILED,
    "RK_OP_DEVICE": layout.OP_DEVICE,
    "RK_OP_QUEUED": layout.OP_QUEUED,
    "RK_OP_RECEIVES": layout.OP_RECEIVES,
    "RK_OP_POST_SHIFT": layout.OP_POST_SHIFT,
    "RK_PEER_SIZES": layout.PEER_SIZES,
    "RK_PEER_TAG_BITS": layout.PEER_TAG_BITS,
    "RK_PEER_RANK_BITS": layout.PEER_RANK_BITS,
    "RK_PEER_COMMUNICATOR_BITS": layout.PEER_COMMUNICATOR_BITS,
    "RK_REQUEST_MAGIC": layout.REQUEST_MAGIC,
    "RK_REQUEST_CAPTURE": layout.REQUEST_CAPTURE,
    "RK_REQUEST_RELEASE": layout.REQUEST_RELEASE,
    **{f"RK_{kind.name}": int(kind) for kind in OpKind},
}


def test_python_and_c_agree(tmp_path: Path) -> None:
    expected = dict(CONSTANTS)
    lines = [f'printf("{name} %lld\\n", (long long){name});' for name in CONSTANTS]
    for structure, kind in STRUCTURES.items():
        expected[structure] = kind.itemsize
        lines.append(f'printf("{structure} %zu\\n", sizeof(struct {structure}));')
        assert kind.names is not None
        for field in kind.names:
            name = f"{structure}.{field}"
            expected[name] = layout.offset_of(kind, field)
            expected[f"{name} size"] = kind[field].itemsize
            place = f"offsetof(struct {structure}, {field})"
            size = f"sizeof(((struct {structure} *)0)->{field})"
            lines.append(f'printf("{name} %zu\\n{name} size %zu\\n", {place}, {size});')
    # The operation inside an event is spread out in numpy.
    expected["rk_event"] = layout.EVENT.itemsize
    lines.append('printf("rk_event %zu\\n", sizeof(struct rk_event));')
    for field, named in (("ticket", "ticket"), ("op", "start_ns"), ("busy_ns", "busy_ns")):
        expected[f"rk_event.{field}"] = layout.offset_of(layout.EVENT, named)
        lines.append(f'printf("rk_event.{field} %zu\\n", offsetof(struct rk_event, {field}));')
    source = tmp_path / "dump.c"
    body = "\n    ".join(lines)
    includes = '#include <stddef.h>\n#include <stdio.h>\n#include "relkit/state_layout.h"\n'
    source.write_text(f"{includes}int main(void) {{\n    {body}\n    return 0;\n}}\n")
    program = compile_c(tmp_path / "dump", [source])
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=10, check=True)
    in_c = {
        line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in done.stdout.splitlines()
    }
    assert in_c == expected
