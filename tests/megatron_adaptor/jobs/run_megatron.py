"""Runs a program of Megatron-LM's where there is no GPU; its checkout is on PYTHONPATH.

    run_megatron.py PROGRAM ITS ARGUMENTS ...

'cuda' means the CPU, and what a checkout would compile first is taken from megatron-core's wheel.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import runpy
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.trainer import megatron_core

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
_NUMBERS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")


def _first(function: Any = None, *_: object, **__: object) -> Any:  # noqa: ANN401
    """A decorator that changes nothing, with arguments or without."""
    return function if callable(function) else lambda inner: inner


class _Event:
    """An event of CUDA that is always over."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[..., float]:
        return lambda *_, **__: 0.0


def cuda_is_the_cpu() -> None:
    """Beyond what megatron-core itself asks for: what Megatron-LM's own programs do."""
    anything: Any = torch
    # First of all: what is decorated is so when it is imported.
    anything.compile = anything.jit.script = _first
    megatron_core.on_cpu()
    del sys.modules["megatron.core.tensor_parallel"].get_cuda_rng_tracker().fork
    here: Any = torch.cuda
    here.is_available = lambda: True
    here.device_count = lambda: 1
    here.empty_cache = here.ipc_collect = here.reset_peak_memory_stats = lambda *_, **__: None
    here.manual_seed_all = lambda _seed: None
    here.memory_stats = lambda *_, **__: {}
    here.get_device_capability = lambda *_: (8, 0)
    here.get_device_properties = lambda *_: types.SimpleNamespace(
        major=8, minor=0, name="cpu", multi_processor_count=1
    )
    here.Event = _Event
    for name in _NUMBERS:
        setattr(here, name, lambda *_, **__: 0)
    for name in ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Byte"):
        setattr(here, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    here.nvtx.range_push = here.nvtx.range_pop = lambda *_, **__: None
    here.random.get_rng_state, here.random.set_rng_state = here.get_rng_state, here.set_rng_state
    module: Any = torch.nn.Module
    module.cuda = lambda self, *_, **__: self
    tensor: Any = torch.Tensor
    tensor.pin_memory = lambda self, *_, **__: self
    plain_to = tensor.to

    def to(self: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:  # noqa: ANN401
        kept = [each for each in arguments if not str(each).startswith("cuda")]
        return plain_to(self, *kept, **named) if kept or named else self

    tensor.to = to


def loaders_leave_dropout_alone() -> None:
    """A loader that begins to read draws from the CPU's stream, which is not dropout's on a GPU."""
    loader: Any = torch.utils.data.dataloader._BaseDataLoaderIter
    begin = loader.__init__

    def outer(self: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        before = torch.get_rng_state()
        begin(self, *arguments, **named)
        torch.set_rng_state(before)

    loader.__init__ = outer


def without_compiling() -> None:
    """The data sets' helpers, compiled; Triton's kernels, which nothing here calls, are absent."""
    name = "megatron.core.datasets.helpers_cpp"
    files = importlib.metadata.files("megatron-core") or []
    path = next(file for file in files if file.name.startswith("helpers_cpp") and file.suffix)
    spec = importlib.util.spec_from_file_location(name, str(path.locate()))
    assert spec is not None
    assert spec.loader is not None
    helpers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helpers)
    sys.modules[name] = helpers
    name = "megatron.core.transformer.custom_layers.batch_invariant_kernels"
    kernels: Any = types.ModuleType(name)
    kernels.enable_batch_invariant_mode = lambda: None
    kernels.is_batch_invariant_mode_enabled = lambda: False
    sys.modules[name] = kernels


def steps_are_kept() -> None:
    """torch's Adam counts by parameter, what Apex's and Transformer Engine's do not.

    With it, megatron-core's distributed optimizer asks its file for counts, and so cannot read what
    it has written itself; and in fp32 it writes into views of weights that want gradients.
    """
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    inner = DistributedOptimizer._set_main_param_and_optimizer_states

    def outer(self: Any, parameter: Any, tensors: dict[str, torch.Tensor]) -> None:  # noqa: ANN401
        group, place = self.model_param_group_index_map[parameter]
        state = self.optimizer.state[self.optimizer.param_groups[group]["params"][place]]
        # All parameters share one, which each would count on.
        state["step"] = state["step"].clone()
        with torch.no_grad():
            inner(self, parameter, {**tensors, "step": state["step"]})

    DistributedOptimizer._set_main_param_and_optimizer_states = outer


def main() -> None:
    """Run it."""
    program = Path(sys.argv[1])
    del sys.argv[0]
    torch.set_num_threads(1)
    sys.stdout.write(f"rank {os.environ['RANK']} begins\n")
    sys.stdout.flush()
    cuda_is_the_cpu()
    loaders_leave_dropout_alone()
    without_compiling()
    import megatron.training.initialize as initialize

    initialize._compile_dependencies = lambda: None
    steps_are_kept()
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
