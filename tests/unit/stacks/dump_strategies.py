"""Random dumps, with names as ugly as a file may hold them."""

from __future__ import annotations

from hypothesis import strategies as st

from relkit.stacks.model import Frame, RankDump, Role, ThreadStack

ugly = st.text(st.characters(codec="utf-8"), max_size=6)
# Few different names, so that random stacks share paths.
plain = st.sampled_from(
    ["", "main", "wait", "at::native::sum<float, 4>", "??", "_PyEval_EvalFrameDefault", "f"]
)
u64 = st.integers(0, 2**64 - 1)


def frames(
    names: st.SearchStrategy[str], rich: bool, python: bool
) -> st.SearchStrategy[tuple[Frame, ...]]:
    """Stacks of up to six frames; `rich` ones have build ids, offsets and modules too."""
    frame = st.builds(
        Frame,
        func=names,
        source=names,
        module=ugly if rich else st.just(""),
        build_id=ugly if rich else st.just(""),
        offset=u64 if rich else st.just(0),
        entry=st.booleans() if python else st.just(True),
    )
    return st.lists(frame, max_size=6).map(tuple)


def threads(
    names: st.SearchStrategy[str], rich: bool, python: bool
) -> st.SearchStrategy[tuple[ThreadStack, ...]]:
    """Up to five threads; thread ids are few, so that native and Python stacks meet."""
    thread = st.builds(
        ThreadStack,
        os_thread_id=st.integers(0, 3) if not rich else st.integers(0, 2**32 - 1),
        name=names,
        frames=frames(names, rich, python),
        role=st.sampled_from(Role),
        state=ugly if rich else st.just("S"),
        thread_id=u64 if python else st.just(0),
        active=st.booleans() if python else st.just(False),
        owns_gil=st.booleans() if python else st.just(False),
        kernel=ugly if rich else st.just(""),
    )
    return st.lists(thread, max_size=5).map(tuple)


def dumps(
    names: st.SearchStrategy[str] = ugly, *, rich: bool = True, world_size: int = 2**31 - 1
) -> st.SearchStrategy[RankDump]:
    """Dumps of one rank of a world."""
    return st.builds(
        RankDump,
        rank=st.integers(0, world_size - 1),
        world_size=st.just(world_size),
        pid=st.integers(-(2**31), 2**31 - 1) if rich else st.integers(0, 3),
        process_state=names,
        native=threads(names, rich, python=False),
        python=threads(names, rich, python=True),
        host=ugly,
        job_id=ugly if rich else st.just("job"),
        captured_unix_ns=st.integers(-(2**63), 2**63 - 1),
        engines=st.lists(ugly, max_size=2).map(tuple),
        notes=st.lists(names, max_size=2).map(tuple),
        hook_json=ugly,
    )


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes with a few of them changed, cut out, doubled, or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del data[at : at + draw(st.integers(1, 20))]
            case 2:
                data[at:at] = data[at : at + draw(st.integers(1, 20))]
            case _:
                del data[at:]
    return bytes(data)
