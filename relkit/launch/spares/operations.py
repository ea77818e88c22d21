"""torch's executor of operations on a rendezvous' state, with other rules and quicker looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch.distributed.elastic.rendezvous.dynamic_rendezvous import _Action, _RendezvousContext

# The state and a deadline -> what to do with the state.
Operation = Callable[[Any, float], _Action]
# An operation of torch's, the state and a deadline -> what to do with the state.
Rule = Callable[[Operation, Any, float], _Action]


class Operations:
    """Takes the place of torch's executor.

    Args:
        by_torch: the executor; rules: kind of torch's operations -> what is called in their place.
        look_s: from one look at the state to the next, s; torch has a second.
    """

    def __init__(
        self,
        by_torch: Any,  # noqa: ANN401
        rules: Mapping[type[Any], Rule],
        look_s: float,
    ) -> None:
        self._by_torch, self._rules, self._look_s = by_torch, rules, look_s

    def run(self, operation: Any, deadline: float, *more: Any) -> None:  # noqa: ANN401
        """As torch's."""
        if rule := self._rules.get(type(operation)):
            operation = partial(self._look, partial(rule, operation))
        self._by_torch.run(operation, deadline, *more)

    def _look(self, operation: Operation, context: Any, deadline: float) -> _Action:  # noqa: ANN401
        while (action := operation(context, deadline)) is _Action.SYNC:
            time.sleep(self._look_s)
            holder = self._by_torch._state_holder
            # torch would answer with what it has read within the last second.
            holder._last_sync_time = -1.0
            holder.sync()
            # torch's executor goes on with the state that it has itself.
            self._by_torch._state = holder.state
            context = _RendezvousContext(context.node, holder.state, context.settings)
        return action
