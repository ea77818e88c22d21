"""Breaks of netcheck: which pairs are measured, and what is made of the figures."""

from __future__ import annotations

from tools.mutants.model import Break

_VERDICT = ("tests/unit/netcheck/test_verdict.py",)
_ROBUST = ("tests/unit/netcheck/test_robust.py",)
_LOAD = "tests/unit/netcheck/test_load.py"
_JUDGE = ("tests/unit/netcheck/test_judge.py",)
_OBSERVATIONS = ("tests/unit/netcheck/test_observations.py",)
_LAUNCH = ("tests/unit/launch/test_network_check.py",)
_SCHEDULE = ("tests/unit/netcheck/test_schedule.py",)
_REPORT = ("tests/unit/netcheck/test_report.py",)
_CONTROLLER = ("tests/unit/netcheck/test_controller.py",)
_BUNDLE = ("tests/unit/netcheck/test_bundle.py",)
_FLOW = ("tests/unit/netcheck/test_probe_flow.py",)
_SERVE = ("tests/unit/netcheck/test_probe_serve.py",)
_LIMIT = ("tests/unit/netcheck/test_detection_limit.py",)
_CHILDREN = ("tests/unit/netcheck/test_probe_children.py",)
_DEVICES = "relkit/launch/netcheck/slow_devices"
_SLOW_DEVICES = ("tests/unit/launch/test_slow_devices.py",)

BREAKS = (
    Break(
        "relkit/launch/netcheck/network_check.py",
        "            lines += not_measured(result.edges, probe)\n",
        "",
        _LAUNCH,
    ),
    Break("relkit/launch/netcheck/network_check.py", "probe=probe,", "", _LAUNCH),
    # A reader that had to wait makes a line seem faster than it is.
    Break(
        "relkit/netcheck/measure/probes/tcp_flow.py",
        "max(counted, arrived_bytes(stream) or 0)",
        "counted",
        _FLOW,
    ),
    Break(
        "relkit/netcheck/measure/probes/tcp_flow.py",
        "sum(now == then for now, then in zip(self._arrived(), self._at_start, strict=True))",
        "0",
        _FLOW,
    ),
    Break(
        "relkit/netcheck/measure/probes/tcp_flow.py",
        "_BYTES_RECEIVED_AT, _TCP_INFO_BYTES = 128, 136",
        "_BYTES_RECEIVED_AT, _TCP_INFO_BYTES = 120, 128",
        _FLOW,
    ),
    Break(
        "relkit/netcheck/measure/schedule.py",
        "node_rounds=5, link_rounds=3",
        "node_rounds=2, link_rounds=2",
        _SCHEDULE,
    ),
    Break(
        "relkit/netcheck/measure/schedule.py",
        "SMALL_CONFIRMS = 9",
        "SMALL_CONFIRMS = 1",
        _SCHEDULE,
    ),
    Break(
        "relkit/netcheck/solve/confirm.py",
        "any(fault.capacity > 0.0 for",
        "any(fault.capacity >= 0.0 for",
        _SCHEDULE,
    ),
    Break("relkit/netcheck/solve/judge.py", "if not could_not_run(edge)]", "]", _REPORT),
    Break(
        "relkit/netcheck/solve/judge.py",
        "if result.one_host and not has_bounds(thresholds):",
        "if False:",
        _REPORT,
    ),
    Break("relkit/netcheck/solve/judge.py", "        if node not in diagnosed\n", "", _REPORT),
    Break(
        "relkit/netcheck/solve/judge.py",
        "        if is_down(facts)\n",
        "        if not facts.answered\n",
        _REPORT,
    ),
    Break(
        "relkit/netcheck/solve/judge.py", "count * (count - 1) // 2", "count * (count - 1)", _JUDGE
    ),
    Break(
        "relkit/netcheck/solve/verdict.py",
        "            if not candidate.alternatives\n",
        "",
        _VERDICT,
    ),
    Break(
        "relkit/netcheck/solve/verdict.py",
        "if not edge.accused and edge.source != edge.target}",
        "if edge.source != edge.target}",
        _VERDICT,
    ),
    Break(
        "relkit/netcheck/solve/observations.py",
        "MAX_PER_EDGE = 10.0",
        "MAX_PER_EDGE = 1e9",
        (*_ROBUST, *_VERDICT),
    ),
    Break(
        "relkit/netcheck/solve/observations.py",
        "edge.size_bytes > known.size_bytes",
        "edge.size_bytes < known.size_bytes",
        _VERDICT,
    ),
    Break(
        "relkit/netcheck/solve/observations.py",
        "(ours >= 0) & (theirs >= 0)",
        "(theirs >= 0)",
        _OBSERVATIONS,
    ),
    Break(
        "relkit/netcheck/solve/robust.py",
        'float(np.quantile(logs, 0.9, method="higher"))',
        "middle",
        _ROBUST,
    ),
    Break(
        "relkit/netcheck/solve/robust.py",
        "ratios[(ratios > 1.0) & (ratios < 1.5)] - 1.0",
        "ratios[ratios < 1.5] - 1.0",
        _ROBUST,
    ),
    Break(
        "relkit/netcheck/solve/robust.py",
        "(count + PRIOR_WEIGHT)\n    near",
        "max(count, 1)\n    near",
        _ROBUST,
    ),
    Break(
        "relkit/netcheck/solve/likelihood.py",
        "0.0, ratio - capacity)\n",
        "ratio - capacity, ratio - capacity)\n",
        _ROBUST,
    ),
    Break("relkit/netcheck/solve/explain.py", "PRICE = 14.0", "PRICE = 2.0", _VERDICT),
    Break(
        "relkit/netcheck/solve/explain.py",
        "noise[own] = np.maximum(noise[own], scatter(means / left))",
        "pass",
        (f"{_LOAD}::test_the_links_of_a_slow_node_are_not_convicted_for_their_scatter",),
    ),
    Break(
        "relkit/netcheck/solve/analyse.py",
        "if uplinks * 2 > len(analysis.seen.group_names):",
        "if False:",
        _VERDICT,
    ),
    Break(
        "relkit/netcheck/solve/analyse.py",
        "view = _only_accused(seen) if common else seen",
        "view = seen",
        _VERDICT,
    ),
    Break(
        "relkit/netcheck/solve/components.py",
        "plain = all_edges[~named]",
        "plain = all_edges",
        _OBSERVATIONS,
    ),
    # A healthy node leaves for its devices, or a slow one stays.
    Break(
        "relkit/straggler/preflight/devices.py",
        "by_kind[score.kind, score.model]",
        'by_kind[score.kind, ""]',
        ("tests/unit/straggler/test_preflight.py",),
    ),
    Break(f"{_DEVICES}.py", "2 * len(low) >= len(group)", "False", _SLOW_DEVICES),
    Break(f"{_DEVICES}.py", "if device.is_certain]", "]", _SLOW_DEVICES),
    Break(
        f"{_DEVICES}.py", "alike[score.kind, score.model]", 'alike[score.kind, ""]', _SLOW_DEVICES
    ),
    Break(
        "relkit/fleet/identity.py",
        'machine.partition("/")[0]',
        "machine",
        ("tests/unit/fleet/test_argv.py",),
    ),
    Break(
        "relkit/netcheck/measure/probes/rate_child.py",
        "used_s = time.thread_time() - begin_s",
        "used_s = time.monotonic() - end_s + _CPU_MAX_S",
        _CHILDREN,
    ),
)
