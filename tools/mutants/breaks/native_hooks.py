"""Breaks of the C hook: its start, its table, its wrappers, transfers, and timing on devices."""

from __future__ import annotations

from tools.mutants.model import Break

_GLOO = "tests/native/hook/test_gloo.py"
_HELPERS = "tests/native/hook/test_helpers.py"
_TRANSFERS = (
    "tests/native/platforms/test_transfers.py::test_ranks_agree_on_names_numbers_and_sizes",
)
_ODD = "tests/native/platforms/test_odd.py"
_COUNTS = ("tests/native/platforms/test_work.py::test_counts_bytes_flops_and_times",)
_NAMES = (f"{_GLOO}::test_all_collectives_have_their_names_and_sizes",)

BREAKS = (
    Break(
        "native/src/lifecycle.c",
        '    if (is_set("RELKIT_HOOK_CHILDREN"))\n        return false;\n',
        "",
        (f"{_HELPERS}::test_children_are_recorded_where_somebody_asks_for_it",),
    ),
    Break(
        "native/src/lifecycle.c",
        "getppid() != number_from",
        "getppid() == number_from",
        (f"{_HELPERS}::test_there_are_only_so_many_files",),
    ),
    # The headers beside it would do as well, but all of the hook is compiled again for one of them.
    Break("native/src/table/hook_rows.c", ".kind = RK_##kind_,", ".kind = RK_GEMM,", _NAMES),
    Break(
        "native/src/table/hook_rows.c",
        ".platform = #platform_,",
        '.platform = "cpu",',
        ("tests/native/platforms/test_doctor.py",),
    ),
    Break(
        "native/src/table/hook_rows.c",
        ".symbol = RK_SYMBOL_##id",
        '.symbol = ""',
        ("tests/native/platforms/test_doctor.py",),
    ),
    Break(
        "native/src/wrappers/gloo_groups.c",
        '#define HELPER_SUFFIX "/checks"',
        '#define HELPER_SUFFIX ""',
        (f"{_GLOO}::test_group_names[detail]",),
    ),
    Break(
        "native/src/wrappers/gloo_groups.c",
        "        if (notes->unnamed[i].group == notes->group)\n",
        "        if (notes->helper == NULL)\n",
        (f"{_GLOO}::test_group_names[plain]",),
    ),
    Break(
        "native/src/wrappers/mkl_gemm.c",
        "(m * k + k * n) * in_bytes + m * n * out_bytes",
        "(m * k + k * n) * in_bytes",
        _NAMES,
    ),
    Break(
        "native/src/transfers/transfers.c",
        "    else if (call->times_size)\n",
        "    else if (false)\n",
        _TRANSFERS,
    ),
    Break(
        "native/src/transfers/transfers.c",
        "bool receives = call->kind == RK_TRANSFER_RECV;",
        "bool receives = false;",
        _TRANSFERS,
    ),
    Break(
        "native/src/transfers/transfer_communicators.c",
        "    hash = rk_hash(hash, &color, sizeof color);\n",
        "",
        _TRANSFERS,
    ),
    Break(
        "native/src/device/timing.c",
        "if (api->peek_error != NULL && api->peek_error() != 0)",
        "if (false)",
        (f"{_ODD}::test_an_error_of_the_programs_own_stays_its_own",),
    ),
    Break(
        "native/src/device/timing.c",
        "enum { SAMPLE_DEFAULT = 64,",
        "enum { SAMPLE_DEFAULT = 1,",
        (f"{_ODD}::test_how_many_launches_are_timed",),
    ),
    Break(
        "native/src/device/aborts.c",
        "    if (header != NULL && aborted)\n",
        "    if (false)\n",
        (
            "tests/native/platforms/test_hang.py"
            "::test_release_aborts_the_communicator_and_the_blocked_rank_returns",
        ),
    ),
)
