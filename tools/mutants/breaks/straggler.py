"""Breaks of the straggler's scores: who is slow, since when and why, which edge, on whose clock."""

from __future__ import annotations

from tools.mutants.model import Break

_RANK_SCORER = "tests/unit/straggler/test_rank_scorer.py"
_RANK_LIMIT = ("tests/unit/straggler/test_rank_limit.py",)
_SEQUENTIAL = ("tests/unit/straggler/test_sequential.py",)
_ONSET = ("tests/unit/straggler/test_onset.py",)
_EVIDENCE = ("tests/unit/straggler/test_evidence.py",)
_CAUSES = ("tests/unit/straggler/test_causes.py",)
_EDGES = ("tests/unit/straggler/test_edge_rates.py",)
_LINKS = ("tests/unit/straggler/test_links.py",)
_ONLINE = ("tests/unit/straggler/test_online_scorer.py",)
_CLOCKS = ("tests/unit/straggler/test_clocks.py",)
_RUN_TIMES = ("tests/unit/straggler/test_run_times.py",)
_LOCAL = ("tests/unit/straggler/test_local_time.py",)
_CODEC = ("tests/unit/straggler/test_step_codec.py",)
_ANNOUNCER = ("tests/unit/straggler/test_verdict_announcer.py",)
_NODE = ("tests/unit/straggler/test_straggler_node.py",)
_PERIOD = ("tests/unit/straggler/test_step_period.py",)
_SEGMENTER = ("tests/unit/straggler/test_step_segmenter.py",)
_BUDGET = ("tests/unit/straggler/test_step_budget.py",)
_SCORER = "relkit/straggler/score/rank_scorer.py"
_EDGE_RATES = "relkit/straggler/score/edge_rates.py"
_HANG = ("tests/unit/hang/test_attribute.py",)

BREAKS = (
    Break("relkit/hang/finding_builder.py", "(runnable and share > _IDLE_SHARE)", "False", _HANG),
    Break(
        "relkit/hang/finding_builder.py", "(runnable and share > _IDLE_SHARE)", "runnable", _HANG
    ),
    Break(
        "relkit/hang/finding_builder.py",
        "(runnable and share > _IDLE_SHARE)",
        "share > _IDLE_SHARE",
        _HANG,
    ),
    Break(
        _SCORER,
        "self._limit = self._settings.limit(ranks)",
        "self._limit = self._settings.limit(ranks) + 3.0",
        _RANK_LIMIT,
    ),
    Break(
        _SCORER,
        "tests / np.sqrt(self.horizon_steps) / self.false_alarm))",
        "tests / np.sqrt(self.horizon_steps) / self.false_alarm) + 3.0)",
        _RANK_LIMIT,
    ),
    Break(
        _SCORER,
        "tests / np.sqrt(self.horizon_steps) / self.false_alarm))",
        "tests / np.sqrt(self.horizon_steps)))",
        _RANK_LIMIT,
    ),
    Break(_SCORER, "max(1, ranks) * len(FEATURES)", "len(FEATURES)", _RANK_LIMIT),
    Break(
        _SCORER,
        "(since.late_steps == 0) | (since.late_s >= _LATE_SHARE * since.slowdown_s[WHOLE])",
        "np.ones_like(self._raised)",
        (f"{_RANK_SCORER}::test_who_is_slow_and_never_late_costs_nothing",),
    ),
    Break(
        _SCORER,
        "material: Flags = (since.slowdown_s >= min_s) & (more_s >= min_s) & (whole_s > 0.0)",
        "material: Flags = since.slowdown_s > 0.0",
        _RANK_LIMIT,
    ),
    Break(
        _SCORER,
        "        self._shift.forget(over)\n",
        "",
        (f"{_RANK_SCORER}::test_a_fault_is_raised_once_and_dropped_once",),
    ),
    Break(
        _SCORER,
        "        material[WHOLE] &= sure\n",
        "",
        (
            f"{_RANK_SCORER}::test_starvation_that_wanders_is_not_raised_and_does_not_hide_slow_compute",
        ),
    ),
    Break(
        "relkit/straggler/score/sequential.py",
        "MAX_PER_STEP = 3.0",
        "MAX_PER_STEP = 300.0",
        (f"{_RANK_SCORER}::test_one_long_pause_is_no_straggler",),
    ),
    Break(
        "relkit/straggler/score/sequential.py",
        "(slowdown - 0.5 * self._shifts)",
        "slowdown",
        _SEQUENTIAL,
    ),
    Break(
        "relkit/straggler/score/sequential.py",
        "fresh = (self.log_likelihood <= 0.0) & (ratio > 0.0)",
        "fresh = ratio > 0.0",
        (f"{_RANK_SCORER}::test_ten_percent_is_found_within_thirty_steps",),
    ),
    Break(
        "relkit/straggler/score/onset.py",
        "np.minimum(slowdown, most)[::-1]",
        "slowdown[::-1]",
        _ONSET,
    ),
    Break(
        "relkit/straggler/score/onset.py",
        "return int(numbers[used][begins(share[used])]) if used.any() else evident",
        "return evident",
        (f"{_RANK_SCORER}::test_a_fault_begins_in_its_first_step_though_noise_came_before_it",),
    ),
    Break(
        "relkit/straggler/score/sequential.py",
        "usual = np.minimum(others / (elsewhere + self._priors), 0.3)",
        "usual = np.minimum(before / (seen[:, None] + self._priors), 0.3)",
        (f"{_RANK_SCORER}::test_pauses_now_and_then_are_the_host",),
    ),
    Break(
        "relkit/straggler/score/causes.py",
        "clean_s[RUN_QUEUE_WAIT] - clean_s[THROTTLED]",
        "clean_s[RUN_QUEUE_WAIT]",
        _CAUSES,
    ),
    Break("relkit/straggler/score/causes.py", "_DEVICE_OFF_CPU * usual", "2.0 * usual", _CAUSES),
    Break(
        "relkit/straggler/score/causes.py",
        "expected = float(peers_s[part]) * (running / theirs if theirs > 0.0 else 1.0)",
        "expected = float(peers_s[part])",
        _CAUSES,
    ),
    Break(
        "relkit/straggler/score/causes.py",
        "if stolen >= _EXPLAINS * slowdown:",
        "if stolen > 0.0:",
        _CAUSES,
    ),
    Break(
        "relkit/straggler/score/peers.py",
        "low = low + (known & (low >= place))",
        "low = low + 0 * place",
        (f"{_RANK_SCORER}::test_median_of_others_leaves_oneself_out",),
    ),
    Break(
        "relkit/straggler/score/slowdown.py",
        "values, weights, _ODD_TIMES)",
        "values, weights)",
        (f"{_RANK_SCORER}::test_checkpoints_that_all_ranks_write_blind_nobody",),
    ),
    Break(
        "relkit/straggler/score/evidence.py",
        "np.minimum(waits_s, max_s)",
        "waits_s",
        _EVIDENCE,
    ),
    Break(_EDGE_RATES, "_AS_SLOW = 0.5", "_AS_SLOW = 1.0", _EDGES),
    Break(_EDGE_RATES, "_AS_SLOW = 0.5", "_AS_SLOW = 0.0", _EDGES),
    Break(
        _EDGE_RATES,
        "_SOFT * sample.waited_s) / sample.acked",
        "_SOFT * sample.waited_s)",
        _EDGES,
    ),
    Break(
        _EDGE_RATES,
        "if len({end for edge in taken for end in edge}) > 2:",
        "if len(taken) > 2:",
        _EDGES,
    ),
    Break(_EDGE_RATES, "            if target == host:\n                continue\n", "", _EDGES),
    Break(
        _EDGE_RATES,
        "        if state.traffic < _MIN_SHARE * max_traffic:\n            return\n",
        "",
        _EDGES,
    ),
    Break(
        _EDGE_RATES,
        "            if not fit:\n                edges |= mine & slow\n",
        "            edges |= mine & slow\n",
        _EDGES,
    ),
    Break(
        _EDGE_RATES,
        "share = _CLEAR if edge in self._slow else 1.0",
        "share = 0.0 if edge in self._slow else 1.0",
        _EDGES,
    ),
    Break(
        "relkit/straggler/score/links.py",
        "if e[0] != e[1] and e not in good]",
        "if e[0] != e[1]]",
        _LINKS,
    ),
    Break(
        "relkit/straggler/score/links.py",
        "chosen, sure = _by_exits(links or tied, covers[tied[0]])",
        "chosen, sure = _by_exits(tied, covers[tied[0]])",
        _LINKS,
    ),
    Break(
        "relkit/straggler/score/links.py",
        "path.exits[place[target]] - path.exits[place[source]]",
        "path.exits[place[source]] - path.exits[place[target]]",
        _LINKS,
    ),
    Break(
        "relkit/straggler/score/network.py",
        "return self._by_counters if self._measured else by_times",
        "return by_times",
        ("tests/unit/straggler/test_straggler_node.py",),
    ),
    Break(
        "relkit/launch/straggler/straggler_thread.py",
        "if self._first and job_dir is not None and node == 0:",
        "if job_dir is not None and node == 0:",
        ("tests/unit/straggler/test_straggler_node.py",),
    ),
    Break(
        "relkit/launch/straggler/straggler_thread.py",
        "if self._first and job_dir is not None and node == 0:",
        "if self._first and job_dir is not None:",
        ("tests/unit/straggler/test_straggler_node.py",),
    ),
    Break(
        "relkit/launch/agent.py",
        "stragglers.forget_earlier_job(job_dir, int(worker_group.group_rank or 0))",
        "pass",
        ("tests/straggler/test_live_jobs.py",),
    ),
    Break(
        "relkit/straggler/score/clocks.py", "np.clip(offset_s, min_s, max_s)", "offset_s", _CLOCKS
    ),
    Break(
        "relkit/straggler/score/clocks.py",
        'np.argsort(shared_s[usable], kind="stable")[:kept]',
        'np.argsort(shared_s[usable], kind="stable")[-kept:]',
        _CLOCKS,
    ),
    Break(
        "relkit/straggler/score/matched_collectives.py",
        "shift = offset_s[matched.rank]",
        "shift = -offset_s[matched.rank]",
        _ONLINE,
    ),
    Break(
        "relkit/straggler/score/matched_collectives.py",
        "whole = (count == size_at[place[order[first]]]) & (count > 1)",
        "whole = count > 1",
        _ONLINE,
    ),
    Break(
        "relkit/straggler/score/online_scorer.py",
        "return verdict.cost_s >= min_s or self._verdicts.holds(verdict)",
        "return True",
        _ONLINE,
    ),
    Break(
        "relkit/straggler/score/align.py",
        "complete = complete and len(self._key_of) >= self._world_size",
        "pass",
        _ONLINE,
    ),
    Break(
        "relkit/straggler/score/align.py",
        "if record.step <= group.done:",
        "if record.step < group.done:",
        _ONLINE,
    ),
    Break(
        "relkit/straggler/collect/run_times.py",
        "np.where(after < len(times), later, 0)",
        "0",
        _RUN_TIMES,
    ),
    Break(
        "relkit/straggler/collect/run_times.py",
        "np.maximum.accumulate((wanted - times)[::-1])[::-1]",
        "wanted - times",
        _RUN_TIMES,
    ),
    Break(
        "relkit/straggler/collect/local_time.py",
        "own = np.minimum(own, long_ns - by_main)",
        "pass",
        _LOCAL,
    ),
    Break(
        "relkit/straggler/collect/local_time.py",
        "fresh[1:] = starts[1:] > ends[:-1]",
        "fresh[1:] = True",
        _LOCAL,
    ),
    Break(
        "relkit/straggler/collect/cgroup.py", '(1e6 if match[1] == b"usec" else 1e9)', "1e6", _LOCAL
    ),
    Break(
        "relkit/straggler/collect/cgroup.py",
        "return max(totals_s, default=None)",
        "return min(totals_s, default=None)",
        _BUDGET,
    ),
    Break(
        "relkit/straggler/collect/step_period.py",
        "np.argmax(as_good)",
        "np.argmax(shares)",
        _BUDGET,
    ),
    Break(
        "relkit/straggler/collect/step_period.py",
        "(periods + 1) / (_RARE * periods)",
        "1.0 / _RARE",
        _PERIOD,
    ),
    Break(
        "relkit/straggler/collect/step_period.py",
        "_RARE = 32",
        "_RARE = 8",
        _PERIOD,
    ),
    Break(
        "relkit/straggler/collect/step_work.py",
        "np.where(np.isin(track, single), ",
        "np.where(track < -9, ",
        _SEGMENTER,
    ),
    Break(
        "relkit/straggler/collect/step_work.py",
        "if size == 1]",
        "if size >= 1]",
        _SEGMENTER,
    ),
    Break(
        "relkit/straggler/collect/step_work.py",
        "int(code[first]), number)",
        'int(row["code"]), number)',
        _SEGMENTER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        " and spell.dropped_s <= latest_s:",
        ":",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/exclusion.py",
        "math.floor(100 * verdict.confidence + 1e-6) / 100",
        "verdict.confidence",
        ("tests/unit/straggler/test_control.py",),
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "self._spells[who] = spell.go_on(verdict)",
        "pass",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "cost_s -= before.cost_s * max(0, again) / steps",
        "pass",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "max(verdict.first_step, before.first_step) + 1",
        "before.first_step + 1",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "spell.is_said or now_s < self._quiet_until_s.get(who, now_s):",
        "spell.is_said:",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "self.cause is verdict.cause and ",
        "",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "now_s - self.dropped_s < _QUIET_S",
        "True",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "max(MIN_COST_S, _MIN_SHARE * (now_s - spell.began_s))",
        "MIN_COST_S",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/verdict_announcer.py",
        "first_step=spell.first_step, ",
        "",
        _ANNOUNCER,
    ),
    Break(
        "relkit/launch/straggler/straggler_leader.py",
        "self._announcer.end()",
        "pass",
        _NODE,
    ),
    Break(
        "relkit/straggler/transport/step_codec.py",
        '(rows["rank"] < world_size).all()',
        '(rows["rank"] <= world_size).all()',
        _CODEC,
    ),
    Break(
        "relkit/straggler/transport/step_codec.py",
        "(-(step & -step) if step else -(1 << 62), -step)",
        "-step",
        _BUDGET,
    ),
)
