"""Breaks of the warm standbys: what they import early, when one may be used, how it takes over."""

from __future__ import annotations

from tools.mutants.model import Break

_ROOM = "relkit/launch/warm_standby"
_AGENT = ("tests/unit/launch/test_standby_agent.py",)
_FIRST = ("tests/unit/launch/test_first_workers.py",)
_HANDOVER = ("tests/unit/launch/warm_standby/test_handover.py",)
_IMPORTS = ("tests/unit/launch/warm_standby/test_script_imports.py",)
_MEMORY = ("tests/unit/launch/warm_standby/test_memory.py",)
_PLAIN = ("tests/unit/launch/test_plain_command.py",)
_STANDBY = (
    "tests/unit/launch/warm_standby/test_standby.py",
    "tests/unit/launch/warm_standby/test_first_standby.py",
)
_STANDBYS = ("tests/unit/launch/warm_standby/test_standbys.py",)
_VARIABLES = ("tests/unit/launch/warm_standby/test_read_variables.py",)

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
    Break(f"{_ROOM}/standby_process.py", "        self._modest.end()\n", "", _STANDBY),
    Break(f"{_ROOM}/standby_process.py", "        self._output.show()\n", "", _STANDBY),
    # A Ctrl-C is lost; or its guard, or another error, stays behind or is lost.
    Break(
        f"{_ROOM}/interrupts.py",
        "if issubclass(dropped.exc_type, KeyboardInterrupt):",
        "if False:",
        _STANDBY,
    ),
    Break(f"{_ROOM}/interrupts.py", "        self._before(dropped)\n", "", _STANDBY),
    Break(f"{_ROOM}/interrupts.py", "sys.unraisablehook = self._before", "pass", _STANDBY),
    # What imports have started goes on in a process that only waits.
    Break(f"{_ROOM}/standby_process.py", "    if threads:\n", "    if False:\n", _STANDBY),
    Break(
        f"{_ROOM}/early_imports.py",
        'raise Refused(f"an installed',
        'Refused(f"an installed',
        _STANDBY,
    ),
    # The script runs in a process that has no rank.
    Break(
        f"{_ROOM}/worker/sitecustomize.py",
        "        finally:\n            # Whatever another",
        "        if True:\n            # Whatever another",
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
    # A package keeps the rank that it has read too early.
    Break(
        f"{_ROOM}/standby_process.py",
        "not refused and self._variables.names.isdisjoint(changed_names(given))",
        "not refused",
        _STANDBY,
    ),
    Break(f"{_ROOM}/read_variables.py", "        self.names.add(name)\n", "", _VARIABLES),
    Break(f"{_ROOM}/read_variables.py", "        self.when_used(name)\n", "", _VARIABLES),
    # Each use of tqdm has a worker import twice.
    Break(f"{_ROOM}/read_variables.py", "in _NEED_NONE_OF_A_START", "in ()", _VARIABLES),
    # A start waits for all imports before it finds that they have to be made again.
    Break(
        f"{_ROOM}/standby_process.py",
        "            self._variables.when_used = refuse_unknown\n",
        "",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/standby_process.py",
        "            for name in self._variables.names:\n                refuse_unknown(name)\n",
        "",
        _STANDBY,
    ),
    # Ctrl-C does not end a worker that imports.
    Break(
        f"{_ROOM}/standby_process.py",
        "        except KeyboardInterrupt:\n            raise\n",
        "",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/standby_process.py",
        "        if working_folder() != folder:\n",
        "        if False:\n",
        _STANDBY,
    ),
    Break(f"{_ROOM}/fresh_start.py", "        _end_children()\n", "", _STANDBY),
    # It runs the script twice: once as it has begun by itself.
    Break(
        f"{_ROOM}/standby.py",
        "(self._first is None or not self._is_here)",
        "self._first is None",
        _STANDBY,
    ),
    Break(f"{_ROOM}/standby.py", "if len(data) > _MAX_GIVEN_BYTES:", "if False:", _STANDBY),
    # A first worker ends without having run the script.
    Break(
        f"{_ROOM}/standby_process.py",
        "if refused and not self._is_first:",
        "if refused:",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/standby_process.py",
        "            if not self._is_first:\n                raise\n            return",
        "            raise\n            return",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/standby_process.py",
        "        except ConnectionResetError:",
        "        except ConnectionAbortedError:",
        _STANDBY,
    ),
    # It is at the end of every queue while the whole job waits for it.
    Break(
        f"{_ROOM}/standby_process.py",
        "        if not self._is_first:\n            self._modest",
        "        if True:\n            self._modest",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/standby_process.py",
        "        if not self._was_given_something():\n",
        "        if False:\n",
        _STANDBY,
    ),
    Break(f"{_ROOM}/fresh_start.py", "environment.pop(name, None)", "pass", _STANDBY),
    Break(f"{_ROOM}/fresh_start.py", "os.set_inheritable(int(name), False)", "pass", _STANDBY),
    Break(
        f"{_ROOM}/standby.py",
        "(self._first is None or not self._is_here):",
        "True:",
        _STANDBY,
    ),
    Break(
        f"{_ROOM}/standbys.py",
        "self.used += standby.ready is not None",
        "self.used += 1",
        _STANDBYS,
    ),
    Break(
        f"{_ROOM}/standbys.py",
        "return self.is_wanted or bool(self._standbys)",
        "return self.is_wanted",
        _STANDBYS,
    ),
    # What torch alone knows is guessed, and a wrong start takes the place of the right one.
    Break(
        "relkit/launch/plain_command.py",
        "whole_number(asked, _MAX_PROCESSES)",
        "whole_number(asked)",
        _PLAIN,
    ),
    Break(
        "relkit/launch/plain_command.py",
        "if flag not in takes_value or (equals and not takes_value[flag]):",
        "if flag not in takes_value:",
        _PLAIN,
    ),
    Break(
        "relkit/launch/plain_command.py",
        "not _NOT_PLAIN.isdisjoint(given)",
        "not _NOT_PLAIN.isdisjoint(values)",
        _PLAIN,
    ),
    Break("relkit/launch/plain_command.py", '"$" in argument or ', "", _PLAIN),
    Break(
        "relkit/launch/plain_command.py",
        "if processes is None or ",
        "if ",
        _PLAIN,
    ),
    # The secret is there to be read in /proc for as long as the job runs.
    Break("relkit/launch/first_workers.py", "    common.pop(SECRET, None)\n", "", _FIRST),
    # A rank that nobody knows is given out as one.
    Break(
        "relkit/launch/first_workers.py",
        'str(local_rank) if command.is_one_node else ""',
        "str(local_rank)",
        _FIRST,
    ),
    Break(
        "relkit/launch/first_workers.py",
        '{_THREADS: "1"} if command.processes > 1 else {}',
        "{}",
        _FIRST,
    ),
    Break(
        "relkit/launch/first_workers.py",
        "        if not is_python(program):\n",
        "        if False:\n",
        _FIRST,
    ),
    Break(
        "commands/launch.py",
        "        ctx.call_on_close(first.end)\n",
        "",
        ("tests/cluster/test_first_start.py",),
    ),
    Break(
        "commands/launch.py",
        "            first.end()\n            raise\n",
        "            raise\n",
        ("tests/cluster/test_first_start.py",),
    ),
)
