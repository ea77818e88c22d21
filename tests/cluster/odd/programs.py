"""Small programs, each of which does something unusual; what they print is what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# One rank that communicates: only then has it a recorder.
TALKS = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(3)
dist.all_reduce(ones)
"""
TALKED = "dist.all_reduce(ones); print('talked', ones.tolist()); dist.destroy_process_group()\n"


@dataclass(frozen=True, slots=True)
class Odd:
    """One program, and how its launcher is started.

    Args:
        code: Python script; it is run as the job's script unless `program` says otherwise.
        program: a command for --no-python, in which {python} and {script} are named.
        around: a command that starts the launcher, which is appended to it.
        environ: variables that are set; those with "" are taken away.
        stdin: what the launcher gets.
        needs_root: it mounts, or becomes somebody else.
        is_direct: the launcher itself has to start it, and see it end.
    """

    code: str = ""
    program: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    needs_root: bool = False
    is_direct: bool = False

    @property
    def has_own_job(self) -> bool:
        """It needs a launcher for itself; all others run one after the other below one script."""
        return self.is_direct or bool(self.around or self.environ or self.stdin)


def shell(line: str) -> tuple[str, ...]:
    """A shell that prepares something and then becomes the launcher."""
    return ("sh", "-c", f'{line}; exec "$@"', "sh")


def mounted(line: str) -> tuple[str, ...]:
    """The same, with mounts of its own."""
    return ("unshare", "--mount", *shell(line))


SHELL = ("sh", "-c")
_NAMESPACE = "unshare --pid --fork --kill-child"
_HANDLERS = """
import os, signal, sys
caught = []
def note(number, frame):
    caught.append(number)
numbers = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT, signal.SIGALRM,
           signal.SIGHUP, signal.SIGCHLD, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)]
"""

PROGRAMS: dict[str, Odd] = {
    "threads": Odd("""
import threading
lock, total = threading.Lock(), [0]
def add():
    with lock:
        total[0] += 1
threads = [threading.Thread(target=add) for _ in range(300)]
[t.start() for t in threads]; [t.join() for t in threads]
print(total)
"""),
    "fork without exec": Odd("""
import os
for number in range(5):
    pid = os.fork()
    if not pid:
        os.write(1, b"child %d\\n" % number)
        os._exit(number)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""),
    "fork of a rank that communicates": Odd(
        TALKS
        + """
sys.stdout.flush()
pid = os.fork()
if not pid:
    os.write(1, b"child\\n")
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
        + TALKED
    ),
    "multiprocessing by spawn": Odd("""
import multiprocessing as mp
def square(x):
    return x * x
if __name__ == "__main__":
    with mp.get_context("spawn").Pool(2) as pool:
        print(pool.map(square, range(9)))
"""),
    "multiprocessing by fork": Odd("""
import multiprocessing as mp
def square(x):
    return x * x
with mp.get_context("fork").Pool(4) as pool:
    print(pool.map(square, range(9)))
"""),
    "a shell below it": Odd("""
import subprocess
done = subprocess.Popen("echo from a shell; exit 4", shell=True)
print(done.wait())
"""),
    "handlers of its own": Odd(
        _HANDLERS
        + """
for number in numbers:
    signal.signal(number, note)
for number in numbers:
    os.kill(os.getpid(), number)
print(sorted(map(int, caught)) == sorted(map(int, numbers)), len(caught))
""",
        is_direct=True,
    ),
    "all signals ignored": Odd(
        _HANDLERS
        + """
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
for number in numbers:
    os.kill(os.getpid(), number)
import subprocess
print(subprocess.run(["true"]).returncode)
"""
    ),
    "handlers of its own for every real-time signal, and it communicates": Odd(
        _HANDLERS
        + TALKS
        + """
for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
    signal.signal(number, note)
    os.kill(os.getpid(), number)
print(len(caught) == signal.SIGRTMAX - signal.SIGRTMIN + 1)
"""
        + TALKED
    ),
    "a signal that ends it": Odd(
        "import os; print('x', flush=True); os.kill(os.getpid(), 9)", is_direct=True
    ),
    "SIGTERM to itself": Odd(
        "import os; print('x', flush=True); os.kill(os.getpid(), 15)", is_direct=True
    ),
    "an alarm": Odd("""
import signal
signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.05)
signal.pause()
"""),
    "os._exit": Odd("import os; os.write(1, b'unflushed'); os._exit(9)", is_direct=True),
    "exit code 255": Odd("raise SystemExit(255)", is_direct=True),
    "an exception": Odd(
        "print('before', flush=True); raise RuntimeError('as it should')", is_direct=True
    ),
    "descriptors 0 to 2 closed": Odd(
        TALKS
        + """
kept = os.dup(1)
for number in range(3):
    os.close(number)
dist.all_reduce(ones)
os.write(kept, b"still here %d\\n" % os.open("/dev/null", os.O_RDONLY))
os._exit(0)
""",
        is_direct=True,
    ),
    "descriptors 3 to 4095 closed": Odd("""
import os
os.closerange(3, 4096)
print(os.open("/dev/null", os.O_RDONLY))
"""),
    "the descriptors that it finds": Odd(
        """
import os
print(sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) > 2 and
      os.path.exists(f"/proc/self/fd/{n}") and "proc" not in os.readlink(f"/proc/self/fd/{n}")))
""",
        is_direct=True,
    ),
    "exec of itself": Odd("""
import os, sys
count = int(os.environ.get("COUNT", "0"))
print("run", count, flush=True)
if count < 3:
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "COUNT": str(count + 1)})
raise SystemExit(count)
"""),
    "exec of itself after it has communicated": Odd(
        """
import os, sys
if "AGAIN" in os.environ:
    print("again", os.environ["RANK"])
    raise SystemExit(6)
"""
        + TALKS
        + """
print("first", flush=True)
os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "AGAIN": "1"})
""",
        is_direct=True,
    ),
    "a child that has become a daemon": Odd("""
import os, sys
reading, writing = os.pipe()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(writing, b"daemon: own session, parent is gone\\n")
    os._exit(0)
os.close(writing)
sys.stdout.write(os.fdopen(reading).read())
os.wait()
"""),
    "what a script leaves running outlives the job": Odd(
        "print('rank')",
        program=(*SHELL, "{python} {script}; (sleep 2; {python} -c 'print(12)' >$LEFT) & exit 0"),
        environ={"LEFT": "{left}"},
    ),
    "a PID namespace": Odd(
        "import os; print('pid', os.getpid() < 5, os.environ['RANK'])",
        program=(*SHELL, f"{_NAMESPACE} --mount-proc sh -c '{{python}} {{script}}; exit $?'"),
        needs_root=True,
        is_direct=True,
    ),
    "a PID namespace, and it communicates": Odd(
        TALKS + "print(os.getpid() < 5)\n" + TALKED,
        program=(*SHELL, f"{_NAMESPACE} --mount-proc sh -c '{{python}} {{script}}; exit $?'"),
        needs_root=True,
    ),
    "a PID namespace with the host's /proc": Odd(
        TALKS + "print(os.getpid() < 5)\n" + TALKED + "sys.exit(5)",
        program=(*SHELL, f"{_NAMESPACE} {{python}} {{script}}"),
        needs_root=True,
        is_direct=True,
    ),
    "a PID namespace in which nothing is /proc": Odd(
        "import os; print('pid', os.getpid() < 5, os.path.exists('/proc/self'))",
        program=(
            *SHELL,
            f"unshare --mount {_NAMESPACE} sh -c 'umount -l /proc; {{python}} {{script}}; exit $?'",
        ),
        needs_root=True,
    ),
    "the launcher in a PID namespace with the host's /proc": Odd(
        TALKS + TALKED, around=("unshare", "--pid", "--fork", "--kill-child"), needs_root=True
    ),
    "the launcher in a PID namespace": Odd(
        TALKS + TALKED,
        around=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
        needs_root=True,
    ),
    "a read-only home": Odd(
        "import os; print(os.environ['HOME'])",
        around=mounted('mkdir -p home; mount -t tmpfs -o ro home home; export HOME="$PWD/home"'),
        needs_root=True,
    ),
    "no home": Odd("import os; print('HOME' in os.environ)", environ={"HOME": ""}),
    "a home that is not there": Odd(
        "import os; print(os.environ['HOME'])", environ={"HOME": "/nonexistent/home"}
    ),
    "nobody": Odd(
        TALKS + "print(os.getuid())\n" + TALKED,
        # Who may come to the interpreter, wherever that is.
        around=(
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
        ),
        environ={"HOME": "/nonexistent"},
        needs_root=True,
    ),
    "no /dev/shm": Odd(
        TALKS + TALKED, around=mounted("mount -t tmpfs -o ro shm /dev/shm"), needs_root=True
    ),
    "a small /dev/shm": Odd(
        TALKS + TALKED, around=mounted("mount -t tmpfs -o size=1m shm /dev/shm"), needs_root=True
    ),
    "no temporary folder either": Odd(
        "print('ran')",
        around=mounted(
            "mount -t tmpfs -o ro shm /dev/shm; mount -t tmpfs -o ro tmp /var/tmp; export TMPDIR=/x"
        ),
        needs_root=True,
    ),
    "umask 077": Odd(
        TALKS + "os.close(os.open('made', os.O_CREAT, 0o666))\n"
        "print(oct(os.stat('made').st_mode)); os.unlink('made')\n" + TALKED,
        around=shell("umask 077"),
    ),
    "umask 777": Odd("import os; print(os.umask(0))", around=shell("umask 777")),
    "a folder that has been removed": Odd(
        """
import os, tempfile
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
"""
        + TALKS
        + TALKED
    ),
    "a launcher in a folder that has been removed": Odd(
        "print('ran')", around=shell('cd "$(mktemp -d)"; rmdir "$PWD"')
    ),
    "a huge environment": Odd(
        "import os; print(len(os.environ['BIG']), sum(n.startswith('V_') for n in os.environ))",
        environ={"BIG": "x" * 100_000, **{f"V_{number}": "y" * 100 for number in range(2000)}},
    ),
    "a library of the user's own preloaded": Odd(
        "import os; print(os.environ['LD_PRELOAD'].split(':')[0])",
        environ={"LD_PRELOAD": "libm.so.6"},
    ),
    "a sitecustomize of the user's own": Odd(
        "import sys; print('main', sys.modules['sitecustomize'].__file__)",
        environ={"PYTHONPATH": "{site}"},
    ),
    "an isolated interpreter": Odd(
        "import sys; print(sys.flags.isolated)", program=("{python}", "-I", "{script}")
    ),
    "an interpreter without site": Odd(
        "import sys; print(sys.flags.no_site)", program=("{python}", "-S", "{script}")
    ),
    "an interpreter without environment": Odd(
        "import sys; print(sys.flags.ignore_environment)", program=("{python}", "-E", "{script}")
    ),
    "an empty environment": Odd(
        program=(*SHELL, "env -i {python} -c 'import os; print(sorted(os.environ))'"),
        is_direct=True,
    ),
    "its standard input": Odd("print(input()); print(input())", stdin=b"first\nsecond\n"),
    "output that is no text": Odd(
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3 + b'no end')"
    ),
    "a child under ptrace": Odd(
        program=(*SHELL, "strace -f -o /dev/null {python} -c 'import os; print(os.getpid() > 0)'")
    ),
    "64 descriptors": Odd(TALKS + TALKED, around=shell("ulimit -n 64")),
    "64 descriptors of the program's": Odd(
        TALKS + TALKED, program=(*SHELL, "ulimit -n 64; exec {python} {script}")
    ),
    "little memory": Odd(
        "import resource; print(resource.getrlimit(resource.RLIMIT_AS))",
        program=(*SHELL, "ulimit -v 400000; exec {python} {script}"),
    ),
    "no large files": Odd(
        TALKS + TALKED, program=(*SHELL, "ulimit -f 0; exec {python} {script} | cat")
    ),
    "no core time left": Odd(
        "while True: pass", program=(*SHELL, "ulimit -t 1; exec {python} {script}")
    ),
    "musl, static": Odd(program=("{musl_static}",), is_direct=True),
    "musl": Odd(program=("{musl}",)),
    "musl below a script": Odd(program=(*SHELL, "{musl}; echo $?")),
    "a static program below a script": Odd(program=(*SHELL, "{musl_static}; echo $?")),
    "a script without an interpreter": Odd(program=("{plain}",)),
}
