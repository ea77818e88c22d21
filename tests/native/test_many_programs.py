"""Programs of many kinds give the same output and exit code with `relkit run` and without."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.native.recording import compile_c
from tests.native.sums_class import SUMS, SUMS_1

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and what comes of it.

    Args:
        line: argv; code: the exit code that it has; environ: more variables.
    """

    line: tuple[str, ...]
    code: int
    environ: Mapping[str, str] = field(default_factory=dict)


_C = r"""
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int signals;
static void on_signal(int number)
{
    (void)number;
    signals++;
}
static void *fill(void *at)
{
    double **own = at;
    *own = malloc(1000 * sizeof **own);
    for (int i = 0; i < 1000; i++)
        (*own)[i] = 1.0 / (i + 1);
    return NULL;
}
int main(int count, char **words)
{
    double *parts[4], sum = 0;
    pthread_t threads[4];
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, fill, &parts[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        sum += parts[i][500 + i];
        free(parts[i]);
    }
    raise(SIGUSR1);
    printf("%.17g %d %d\n", sum, signals, count);
    fflush(stdout);
    if (count > 1) {
        /* One byte too far. */
        volatile char *room = malloc(10);
        room[10] = words[1][0];
    }
    return 7;
}
"""

_NUMPY = """
import hashlib, numpy
dice = numpy.random.default_rng(5)
left, right = dice.standard_normal((2, 300, 300))
for kind in ("f4", "f8", "c16"):
    product = left.astype(kind) @ right.astype(kind)
    print(kind, hashlib.sha256(product.tobytes()).hexdigest())
print(numpy.linalg.svd(left, compute_uv=False)[:3])
"""
_SCIPY = """
import hashlib, numpy
from scipy import fft, linalg, optimize
from scipy.linalg import blas
dice = numpy.random.default_rng(5)
left, right = dice.standard_normal((2, 200, 200))
for gemm, kind in ((blas.sgemm, "f4"), (blas.dgemm, "f8"), (blas.zgemm, "c16")):
    product = gemm(1.5, left.astype(kind), right.astype(kind))
    print(hashlib.sha256(product.tobytes()).hexdigest())
print(hashlib.sha256(linalg.solve(left, right).tobytes()).hexdigest())
print(optimize.minimize(lambda x: (x - 3) @ (x - 3), numpy.zeros(4)).x, fft.fft(left[0])[:2])
"""
_SKLEARN = """
import numpy
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
dice = numpy.random.default_rng(5)
points = dice.standard_normal((300, 6))
kinds = (points[:, 0] * points[:, 1] > 0).astype(int)
print(KMeans(4, n_init=2, random_state=1).fit(points).cluster_centers_)
forest = RandomForestClassifier(20, random_state=1)
# In processes of their own.
print(cross_val_score(forest, points, kinds, cv=3, n_jobs=2))
"""
_BASH = r"""
trap 'echo "on exit"' EXIT
total=0
for number in {1..50}; do ((total += number * number)); done
echo "$total" | tr 0-9 a-j | rev
diff <(seq 1 5) <(seq 2 6)
{ (kill -USR1 $BASHPID); } 2> /dev/null || echo "killed by $(kill -l $(($? - 128)))"
coproc cat; echo through >&"${COPROC[1]}"; read -r word <&"${COPROC[0]}"; echo "$word" >&2
exit 3
"""
_GIT = r"""
set -e
cd "$1"; rm -rf tree; git init -q tree; cd tree
for number in 1 2 3; do
    seq 1 $((number * 100)) > file
    git add file; git commit -q -m "change $number"
done
git gc -q; git log --format='%H %s' --stat; git fsck --strict
git diff --exit-code HEAD~1 > /dev/null
"""
_NODE = r"""
const { Worker, isMainThread, parentPort } = require('worker_threads');
const zlib = require('zlib');
if (isMainThread) {
    const worker = new Worker(__filename);
    worker.on('message', (sum) => {
        console.log(sum, zlib.gzipSync('x'.repeat(5000)).toString('base64'));
        console.error('to stderr');
        process.exitCode = 4;
    });
} else {
    let sum = 0;
    for (let i = 1; i < 1e6; i++) sum += 1 / i;
    parentPort.postMessage(sum);
}
"""
_PLAIN_GIT = {
    **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER")
       for what in ("NAME", "EMAIL")},
    "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
}  # fmt: skip


def compiled(folder: Path, *flags: str, words: tuple[str, ...] = (), code: int = 7) -> Program:
    """A program in C."""
    source = folder / "program.c"
    source.write_text(_C)
    return Program((str(compile_c(folder / "program", [source], *flags)), *words), code)


def below_a_shell(program: Program) -> Program:
    """The same, where the hook is chosen for another program."""
    return Program(("sh", "-c", '"$@"; exit $?', "sh", *program.line), program.code)


def in_python(text: str) -> Program:
    return Program((sys.executable, "-c", text), 0)


def bash(_folder: Path) -> Program:
    return Program(("bash", "-c", _BASH), 3)


def git(folder: Path) -> Program:
    return Program(("sh", "-c", _GIT, "sh", str(folder)), 1, _PLAIN_GIT)


def gcc(folder: Path) -> Program:
    (folder / "program.c").write_text(_C)
    compiles = "gcc -O2 -c -x c program.c -o - -Wall -Wextra | sha256sum; gcc -c nothing.c"
    return Program(("sh", "-c", f"cd {folder} && {compiles}"), 1)


def java(folder: Path) -> Program:
    (folder / "Sums.class").write_bytes(base64.b64decode(SUMS))
    (folder / "Sums$1.class").write_bytes(base64.b64decode(SUMS_1))
    return Program(("java", "-Xshare:auto", "-cp", str(folder), "Sums"), 5)


def node(folder: Path) -> Program:
    (folder / "program.js").write_text(_NODE)
    return Program(("node", str(folder / "program.js")), 4)


def sound(folder: Path) -> Program:
    makes = f"sox -D -n -b 16 -r 48000 {folder}/a.wav synth 2 sine 300:3000 reverb"
    reads = f"sox {folder}/a.wav -n spectrogram -o {folder}/a.png; sox {folder}/a.wav -n stat"
    return Program(("sh", "-c", f"{makes} && sha256sum < {folder}/a.wav; {reads}"), 0)


_LOOKS_UP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t signals;
static void on_signal(int number)
{
    signals += number == SIGRTMAX;
}
int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    void *program = dlopen(NULL, RTLD_NOW);
    size_t (*length)(const char *) = dlsym(program, "strlen");
    void *next = dlsym(RTLD_NEXT, "sigaction"), *none = dlsym(RTLD_DEFAULT, "sgemm_");
    int status = 0;
    if (sigaction(SIGRTMAX, &action, NULL) != 0 || length == NULL)
        return 9;
    raise(SIGRTMAX);
    if (fork() == 0)
        exit((int)length("seven.."));
    wait(&status);
    printf("%d %d %d\n", (int)signals, next != NULL, none != NULL);
    return dlclose(program) == 0 ? WEXITSTATUS(status) : 8;
}
"""


def musl(folder: Path, source: str = _C) -> Program:
    (folder / "program.c").write_text(source)
    line = ["musl-gcc", str(folder / "program.c"), "-o", str(folder / "program")]
    subprocess.run(line, check=True, timeout=50)
    return Program((str(folder / "program"),), 7)


def jemalloc(folder: Path) -> Program:
    (library,) = Path("/usr/lib").glob("*/libjemalloc.so.2")
    program = compiled(folder)
    return Program(program.line, program.code, {"LD_PRELOAD": str(library)})


PROGRAMS: dict[str, Callable[[Path], Program]] = {
    "bash": bash,
    "git": git,
    "gcc": gcc,
    "java": java,
    "node": node,
    "numpy": lambda _: in_python(_NUMPY),
    "scipy": lambda _: in_python(_SCIPY),
    "scikit-learn": lambda _: in_python(_SKLEARN),
    "sound": sound,
    "dynamic": compiled,
    "static": lambda folder: compiled(folder, "-static"),
    "static-below-a-shell": lambda folder: below_a_shell(compiled(folder, "-static")),
    "musl": musl,
    "musl-below-a-shell": lambda folder: below_a_shell(musl(folder)),
    "musl-looks-up": lambda folder: below_a_shell(musl(folder, _LOOKS_UP)),
    "asan": lambda folder: compiled(folder, "-fsanitize=address"),
    "asan-below-a-shell": lambda folder: below_a_shell(compiled(folder, "-fsanitize=address")),
    "asan-finds": lambda folder: compiled(folder, "-fsanitize=address", words=("x",), code=1),
    "jemalloc": jemalloc,
}


def run(program: Program, *before: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [*before, *program.line],
        env={**environ, **program.environ},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def relkit_run(tmp_path: Path) -> tuple[str, ...]:
    timeline = str(tmp_path / "timeline")
    return (sys.executable, "-m", "relkit", "run", "--timeline-path", timeline, "--")


def without_ours(text: str) -> list[str]:
    """Standard error without relkit's lines; of a sanitizer's report what is no address."""
    lines = [line for line in text.splitlines() if not line.startswith("relkit: ")]
    if any("AddressSanitizer" in line for line in lines):
        return [word for line in lines for word in line.split() if word in ("SUMMARY:", "WRITE")]
    return lines


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_with_relkit_run_and_without(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    program = PROGRAMS[name](folder)
    bare = run(program)
    assert bare.returncode == program.code, bare.stderr
    hooked = run(program, *relkit_run(tmp_path))
    assert hooked.returncode == bare.returncode, hooked.stderr
    assert hooked.stdout == bare.stdout
    assert without_ours(hooked.stderr) == without_ours(bare.stderr)
    assert bare.stdout


def test_they_do_run_under_the_hook(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    looks = Program((shutil.which("sh") or "sh", "-c", "cat /proc/$$/maps; exit 0"), 0)
    assert "librelkit_hook.so" in run(looks, *relkit_run(tmp_path)).stdout
    assert "librelkit_hook.so" not in run(looks).stdout
