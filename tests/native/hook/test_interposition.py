"""What a program computes is the same with the hook: it defines no name that was not there.

And calls are seen however they are made, docs/hook-interposition.md says how.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from relkit.hook.environment import worker_environment
from relkit.hook.reader import state_files
from tests.native.builds import sanitizer_library
from tests.native.kept import NATIVE
from tests.native.recording import Recording, compile_c

pytestmark = pytest.mark.native

# A product with a loop of its own where no BLAS is linked, as small libraries have it.
FALL_BACK = """
#include <stddef.h>
#include <stdio.h>
void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *, size_t, size_t) __attribute__((weak));
int main(void)
{
    int n = 2;
    float one = 1, zero = 0, a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[] = {-1, -1, -1, -1};
    if (sgemm_)
        sgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
    else
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++)
                c[i + 2 * j] = a[i] * b[2 * j] + a[i + 2] * b[2 * j + 1];
    printf("%g %g %g %g", c[0], c[1], c[2], c[3]);
    return 0;
}
"""

# A BLAS of its own, whose product is its name.
BLAS = """
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)ldc;
    *c = NAME;
}
"""

DECLARED = """
void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *);
typedef void gemm(const char *, const char *, const int *, const int *, const int *, const float *,
                  const float *, const int *, const float *, const int *, const float *, float *,
                  const int *);
"""

# Calls the BLAS that it is linked with: by the linkage table, by a pointer in its data, by a jump.
USER = (
    DECLARED
    + """
gemm *table[] = {sgemm_};
float by_call(void);
float by_pointer(void);
void by_jump(const char *, const char *, const int *, const int *, const int *, const float *,
             const float *, const int *, const float *, const int *, const float *, float *,
             const int *);
static const int n = 512;
static const float one = 1;
float by_call(void)
{
    float c[1] = {0};
    sgemm_("N", "N", &n, &n, &n, &one, c, &n, c, &n, &one, c, &n);
    return c[0];
}
float by_pointer(void)
{
    float c[1] = {0};
    table[0]("N", "N", &n, &n, &n, &one, c, &n, c, &n, &one, c, &n);
    return c[0];
}
__attribute__((optimize("O2"))) void by_jump(
    const char *ta, const char *tb, const int *m, const int *k, const int *l, const float *alpha,
    const float *a, const int *lda, const float *b, const int *ldb, const float *beta, float *c,
    const int *ldc)
{
    sgemm_(ta, tb, m, k, l, alpha, a, lda, b, ldb, beta, c, ldc);
}
"""
)

# Opens libraries named on its command line, in order; "-" closes the newest.
OPENER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static void call(void *library, const char *name)
{
    float (*function)(void);
    void *found = dlsym(library, name);
    memcpy(&function, &found, sizeof function);
    printf("%g ", function());
}
static void jump(void *library)
{
    void (*function)(const char *, const char *, const int *, const int *, const int *,
                     const float *, const float *, const int *, const float *, const int *,
                     const float *, float *, const int *);
    void *found = dlsym(library, "by_jump");
    memcpy(&function, &found, sizeof function);
    int n = 512;
    float one = 1, c[1] = {0};
    function("N", "N", &n, &n, &n, &one, c, &n, c, &n, &one, c, &n);
    printf("%g ", c[0]);
}
int main(int count, char **names)
{
    void *library = NULL;
    for (int i = 1; i < count; i++) {
        if (strcmp(names[i], "-") == 0) {
            dlclose(library);
            continue;
        }
        library = dlopen(names[i], MODE | RTLD_LOCAL);
        if (library == NULL) {
            puts(dlerror());
            return 1;
        }
        call(library, "by_call");
        call(library, "by_pointer");
        jump(library);
    }
    return 0;
}
"""

SYMBOLS = f'#define RELKIT_SYMBOLS_ONLY\n#include "{NATIVE}/src/table/table.h"\n' + (
    "#define X(id, platform, kind, name, required) SYMBOL platform RK_SYMBOL_##id\n"
    "RELKIT_HOOKS(X)\n"
)


def hooked_names() -> list[str]:
    """The symbols of all rows but the hook's own."""
    done = subprocess.run(
        ["cc", "-E", "-P", "-x", "c", "-"],
        input=SYMBOLS,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    rows = [row.split(None, 1) for row in done.stdout.split("SYMBOL")[1:]]
    return ["".join(re.findall(r'"([^"]*)"', rest)) for name, rest in rows if name != "relkit"]


def build(folder: Path, name: str, code: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(code)
    return compile_c(folder / name, [source], *flags)


def library(folder: Path, name: str, code: str, *flags: str) -> Path:
    return build(folder, f"lib{name}.so", code, "-shared", "-fPIC", *flags)


def both_ways(recording: Recording, program: Path, *arguments: str, **more: str) -> tuple[str, str]:
    """What a program prints without and with the hook; it must end well both times."""
    outputs = []
    for env in (dict(os.environ), {**recording.environment(), **more}):
        done = subprocess.run(
            [str(program), *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        outputs.append(done.stdout)
    return outputs[0], outputs[1]


def user_of(folder: Path, number: int, *flags: str, more: str = "") -> Path:
    """A library that multiplies with a BLAS of its own; products are the number."""
    blas = library(folder, f"blas{number}", BLAS.replace("NAME", str(number)) + more)
    search = ("-Wl,--no-as-needed", str(blas), f"-Wl,-rpath,{folder}")
    return library(folder, f"user{number}", USER, *search, *flags)


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_a_weak_name_without_a_definition_stays_without(
    recording: Recording, tmp_path: Path, disabled: str
) -> None:
    program = build(tmp_path, "fall_back", FALL_BACK)
    more = {"RELKIT_HOOK_DISABLE": disabled}
    assert both_ways(recording, program, **more) == ("23 34 31 46", "23 34 31 46")


def test_a_sanitizer_that_is_preloaded_stays_first(recording: Recording, tmp_path: Path) -> None:
    """It ends the program where another library comes before it."""
    program = build(tmp_path, "fall_back", FALL_BACK, "-fsanitize=address")
    preloaded = {**os.environ, "LD_PRELOAD": sanitizer_library("asan")}
    hooked = {**preloaded, **worker_environment(recording.folder, preloaded)}
    done = subprocess.run(
        [str(program)], env=hooked, capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "23 34 31 46")


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "loaded later"])
def test_no_row_is_visible_where_its_library_is_not(
    recording: Recording, tmp_path: Path, linked: bool
) -> None:
    names = hooked_names()
    assert len(names) > 200
    code = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n"
    code += "\n".join(
        f'extern char weak_{i}[] __asm__("{name}") __attribute__((weak));'
        for i, name in enumerate(names)
    )
    code += "\nvoid look(void);\nvoid look(void)\n{\n"
    code += "\n".join(
        f'    if (weak_{i} || dlsym(RTLD_DEFAULT, "{name}")) puts("{name}");'
        for i, name in enumerate(names)
    )
    code += '\n    puts("looked");\n}\n'
    looker = library(tmp_path, "looker", code)
    if linked:
        main = "void look(void);\nint main(void)\n{\n    look();\n    return 0;\n}\n"
        program = build(tmp_path, "program", main, str(looker), f"-Wl,-rpath,{tmp_path}")
        arguments: tuple[str, ...] = ()
    else:
        program = build(
            tmp_path,
            "program",
            "#include <dlfcn.h>\n#include <string.h>\nint main(int count, char **names)\n{\n"
            "    void (*look)(void);\n    void *found = dlopen(names[count - 1], RTLD_NOW);\n"
            '    found = dlsym(found, "look");\n'
            "    memcpy(&look, &found, sizeof look);\n    look();\n    return 0;\n}\n",
        )
        arguments = (str(looker),)
    assert both_ways(recording, program, *arguments) == ("looked\n", "looked\n")


@pytest.mark.parametrize("mode", ["RTLD_NOW", "RTLD_LAZY"])
@pytest.mark.parametrize("bound", ["now", "lazy"])
def test_every_way_to_call_ends_in_the_librarys_own_blas_and_is_seen(
    recording: Recording, tmp_path: Path, mode: str, bound: str
) -> None:
    users = [user_of(tmp_path, number, f"-Wl,-z,{bound},-z,relro") for number in (7, 8)]
    program = build(tmp_path, "opener", OPENER, f"-DMODE={mode}")
    bare, hooked = both_ways(recording, program, *map(str, users))
    assert bare == hooked == "7 7 7 8 8 8 "
    (path,) = state_files(recording.folder)
    seen = recording.state(int(path.stem)).finished
    # What is bound at its first call, where two libraries have the name, is left alone until then.
    assert seen == 6 if (mode, bound) != ("RTLD_LAZY", "lazy") else seen >= 4


def test_more_libraries_of_one_name_than_can_be_told_apart(
    recording: Recording, tmp_path: Path
) -> None:
    users = [user_of(tmp_path, number) for number in range(1, 7)]
    program = build(tmp_path, "opener", OPENER, "-DMODE=RTLD_NOW")
    bare, hooked = both_ways(recording, program, *map(str, users))
    assert bare == hooked == "".join(f"{number} " * 3 for number in range(1, 7))
    (path,) = state_files(recording.folder)
    assert recording.state(int(path.stem)).finished == 4 * 3


def test_what_is_closed_is_forgotten_and_its_address_may_come_again(
    recording: Recording, tmp_path: Path
) -> None:
    users = [str(user_of(tmp_path, number)) for number in (1, 2, 3)]
    program = build(tmp_path, "opener", OPENER, "-DMODE=RTLD_NOW")
    rounds = [name for user in (*users, *users) for name in (user, "-")]
    bare, hooked = both_ways(recording, program, *rounds)
    assert bare == hooked == "1 1 1 2 2 2 3 3 3 " * 2
    (path,) = state_files(recording.folder)
    assert recording.state(int(path.stem)).finished == 6 * 3


def test_after_what_is_closed_others_are_seen_that_lie_elsewhere(
    recording: Recording, tmp_path: Path
) -> None:
    numbers = range(1, 7)
    # Each is larger than the one before, by more than huge pages are rounded: it does not fit into
    # the place of that.
    users = [user_of(tmp_path, n, more=f"char large[{n} << 22];\n") for n in numbers]
    program = build(tmp_path, "opener", OPENER, "-DMODE=RTLD_NOW")
    bare, hooked = both_ways(recording, program, *(x for user in users for x in (str(user), "-")))
    assert bare == hooked == "".join(f"{number} " * 3 for number in numbers)
    (path,) = state_files(recording.folder)
    assert recording.state(int(path.stem)).finished == 6 * 3


def test_a_library_that_is_closed_leaves_the_process(recording: Recording, tmp_path: Path) -> None:
    code = OPENER.replace(
        "dlclose(library);",
        "dlclose(library);\n            char line[512];\n"
        '            FILE *maps = fopen("/proc/self/maps", "r");\n'
        "            while (fgets(line, sizeof line, maps) != NULL)\n"
        '                if (strstr(line, "libblas") != NULL)\n'
        '                    puts("still there");\n'
        "            fclose(maps);",
    )
    program = build(tmp_path, "opener", code, "-DMODE=RTLD_NOW")
    bare, hooked = both_ways(recording, program, str(user_of(tmp_path, 1)), "-")
    assert bare == hooked == "1 1 1 "


@pytest.mark.parametrize("tag", ["--enable-new-dtags", "--disable-new-dtags"])
def test_a_library_finds_others_by_its_own_search_path(
    recording: Recording, tmp_path: Path, tag: str
) -> None:
    """dlopen looks at who calls it; and what is loaded inherits a DT_RPATH."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    blas = library(hidden, "blas5", BLAS.replace("NAME", "5"))
    user = library(tmp_path, "user5", USER, "-Wl,--no-as-needed", str(blas))
    by_path = f'dlopen("{user}", RTLD_NOW)' if tag == "--disable-new-dtags" else ""
    finder = library(
        tmp_path,
        "finder",
        "#include <dlfcn.h>\nvoid *find(void);\nvoid *find(void)\n{\n    return "
        + (by_path or 'dlopen("libblas5.so", RTLD_NOW | RTLD_GLOBAL)')
        + ";\n}\n",
        f"-Wl,{tag},-rpath,{hidden}",
    )
    main = (
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <string.h>\nint main(void)\n{\n"
        f'    void *(*find)(void);\n    void *found = dlopen("{finder}", RTLD_NOW);\n'
        '    found = dlsym(found, "find");\n'
        "    memcpy(&find, &found, sizeof find);\n"
        "    if (find() == NULL)\n        puts(dlerror());\n"
        f'    void *user = dlopen("{user}", RTLD_NOW);\n'
        "    if (user == NULL) {\n        puts(dlerror());\n        return 1;\n    }\n"
        '    float (*call)(void);\n    found = dlsym(user, "by_call");\n'
        '    memcpy(&call, &found, sizeof call);\n    printf("%g", call());\n    return 0;\n}\n'
    )
    program = build(tmp_path, "program", main)
    assert both_ways(recording, program) == ("5", "5")
    assert recording.only_state().finished == 1
