"""Breaks of the warm standbys: what they import early, when one may be used, how it takes over."""

from __future__ import annotations

from tools.mutants.model import Break

_ROOM = "relkit/launch/warm_standby"
_AGENT = ("tests/unit/launch/test_standby_agent.py",)
_HANDOVER = ("tests/unit/launch/warm_standby/test_handover.py",)
_IMPORTS = ("tests/unit/launch/warm_standby/test_script_imports.py",)
_MEMORY = ("tests/unit/launch/warm_standby/test_memory.py",)
_STANDBY = ("tests/unit/launch/warm_standby/test_standby.py",)
_STANDBYS = ("tests/unit/launch/warm_standby/test_standbys.py",)

BREAKS = (
    # What the user's own code does is not noticed.
    Break(
        f"{_ROOM}/script_imports.py",
        "return _dotted(part.func) not in _HARMLESS",
        "return False",
        _IMPORTS,
    ),
    Break(f"{_ROOM}/script_imports.py", "if _is_environment(part):", "if False:", _IMPORTS),
    Break(
        f"{_ROOM}/script_imports.py",
        "if self._functions_write and isinstance(part, ast.Call):",
        "if False:",
        _IMPORTS,
    ),
    Break(
        f"{_ROOM}/script_imports.py",
        "return self._functions_write or self._level is _Level.NOTHING",
        "return False",
        _IMPORTS,
    ),
    # A variable that an import has read is another one now.
    Break(f"{_ROOM}/handover.py", "and name not in _OF_ATTEMPT", "and False", _HANDOVER),
    Break(f"{_ROOM}/handover.py", "if standby.argv != worker.argv:", "if False:", _HANDOVER),
    # A script that starts Python would run twice.
    Break(f"{_ROOM}/handover.py", r'stream.read(4) == b"\x7fELF"', "True", _HANDOVER),
    Break(f"{_ROOM}/memory.py", "limit - used + freed", "limit", _MEMORY),
    # The limit of a container of version 1 is not seen.
    Break(f"{_ROOM}/memory.py", '"memory.limit_in_bytes"', '"memory.max"', _MEMORY),
    # A standby that the OOM killer has ended makes the next SIGKILL of a rank one of its own.
    Break("relkit/launch/standby_agent.py", "if killed and", "if not killed and", _AGENT),
    Break(
        "relkit/post_mortem/memory_cgroup.py",
        "min(now, before + count)",
        "before",
        ("tests/unit/post_mortem/test_memory_cgroup.py",),
    ),
    Break(
        "relkit/stacks/dump/targets.py",
        "pid for pid in unique if not procfs.is_standby(pid)",
        "pid for pid in unique",
        ("tests/unit/stacks/test_targets.py",),
    ),
    # What it says ends the launcher.
    Break(
        f"{_ROOM}/standby.py",
        'whole_number(str(message.get("pss_bytes"))) or 0',
        'int(message["pss_bytes"])',
        _STANDBY,
    ),
    Break(f"{_ROOM}/standbys.py", "room.free_share < MIN_FREE_SHARE", "False", _STANDBYS),
    Break(
        f"{_ROOM}/standbys.py",
        "importing >= max(1, self._cores // _CORES_EACH)",
        "False",
        _STANDBYS,
    ),
    Break(
        f"{_ROOM}/standbys.py",
        "self._failures.get(local_rank, 0) >= _MAX_FAILURES",
        "False",
        _STANDBYS,
    ),
    # What the launcher gives does not arrive, or what the standby had stays.
    Break(
        f"{_ROOM}/standby_process.py",
        "os.environ.pop(name, None)\n    os",
        "pass\n    os",
        _STANDBY,
    ),
    Break(f"{_ROOM}/standby_process.py", "        modest.end()\n", "", _STANDBY),
    Break(f"{_ROOM}/standby_process.py", "        output.show()\n", "", _STANDBY),
    # What imports have started goes on in a process that only waits.
    Break(f"{_ROOM}/standby_process.py", "    if threads:\n", "    if False:\n", _STANDBY),
    Break(
        f"{_ROOM}/standby_process.py",
        'raise Refused(f"an installed',
        'Refused(f"an installed',
        _STANDBY,
    ),
    # The script runs in a process that has no rank.
    Break(
        f"{_ROOM}/worker/sitecustomize.py",
        "    try:\n        _give_way()\n    finally:\n",
        "    if True:\n        _give_way()\n    if True:\n",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/worker/sitecustomize.py",
        "    except BaseException:  # noqa: BLE001",
        "    except ZeroDivisionError:  # noqa: BLE001",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/worker/sitecustomize.py",
        "        # Its launcher has ended, and nobody would end it.\n        os._exit(1)\n",
        "        _give_way()\n        return\n",
        _STANDBY,
    ),
)
