"""Runs the snippets of the pages, and then sees that what they have saved is what is loaded.

    snippets_job.py FOLDER SECTION ...

SECTION: one of PARTS.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from relkit.flash_checkpoint.slots.slot_folder import FOLDER_VARIABLE
from tests.flash_checkpoint.jobs import page_snippets
from tests.job_end import end_rank

GUIDE, API = "docs/flash-checkpoint.md", "docs/python-api.md"
STEPS = 4
CODE = page_snippets.sections()


def _made() -> tuple[Any, torch.optim.Optimizer, Callable[..., None]]:
    net = torch.nn.Linear(4, 4)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    return model, optimizer, train


def ddp(folder: Path) -> None:
    """Twice in one process: the second time, all that the first has saved is found."""
    model, optimizer, train = _made()
    names = {
        "torch": torch, "os": os, "checkpoint_dir": str(folder), "model": model,
        "optimizer": optimizer, "train": train, "steps": STEPS, "save_memory_interval": 1,
        "save_storage_interval": 2,
    }  # fmt: skip
    code = CODE[GUIDE, "Flash checkpoint"]
    first = page_snippets.run(code, names)
    assert first is not None
    assert first["checkpointer"].load_checkpoint()["step"] == STEPS
    second = page_snippets.run(code, names | {"steps": STEPS + 1})
    assert second is not None
    assert second["ckpt_dict"]["step"] == STEPS
    assert second["checkpointer"].load_checkpoint()["step"] == STEPS + 1


def protect(folder: Path) -> None:
    """The two lines, once more when the loop has ended."""
    model, optimizer, train = _made()
    os.chdir(folder)
    names = {
        "model": model, "optimizer": optimizer, "train": train, "epochs": 2,
        "loader": DataLoader(TensorDataset(torch.arange(3.0))),
        "scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
    }  # fmt: skip
    code = CODE[GUIDE, "Two lines for a plain loop"]
    first = page_snippets.run(code, names)
    assert first is not None
    first["protection"].save()
    first["protection"].close()
    second = page_snippets.run(code, names)
    assert second is not None
    assert second["begun"].step == 6
    second["protection"].close()


def fsdp(folder: Path) -> None:
    """Save, in memory and to disk, and load in the next line."""
    from torch.distributed import checkpoint as dist_cp
    from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    device = torch.device("cpu")
    model = FullyShardedDataParallel(net, use_orig_params=True, device_id=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, every in ((1, 1), (2, 3)):  # the second in memory only
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        names = {
            "FSDP": FullyShardedDataParallel, "StateDictType": StateDictType, "dist_cp": dist_cp,
            "load_sharded_optimizer_state_dict": load_sharded_optimizer_state_dict, "os": os,
            "checkpoint_dir": str(folder), "model": model, "optimizer": optimizer, "step": step,
            "save_memory_interval": 1, "save_storage_interval": every,
        }  # fmt: skip
        made = page_snippets.run(CODE[GUIDE, "FSDP and fully_shard"], names)
        assert made is not None, "nothing was found"
        assert made["state_dict"]["step"] == step


def megatron(folder: Path) -> None:
    """Save, and load in the next line; with the guide's replicas, too."""
    from tests.flash_checkpoint.jobs import megatron_stand_in

    rank = dist.get_rank()
    args = megatron_stand_in.install(
        save=str(folder), load=str(folder), use_dist_ckpt=False, tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1, rank=rank, iteration=0,
    )  # fmt: skip
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    names = {
        "args": args, "model": [net], "optimizer": optimizer, "save_memory_interval": 1,
        "opt_param_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
    }  # fmt: skip
    code = CODE[GUIDE, "Megatron-LM"]
    replicas = code.replace("storage_type=", "replica_count=2, storage_type=")
    disk = code.replace("StorageType.MEMORY", "StorageType.DISK")
    for iteration, each in enumerate((code, replicas, disk), 1):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        assert page_snippets.run(each, names | {"iteration": iteration}) is not None
        assert args.iteration == iteration


def deepspeed(folder: Path) -> None:
    """Twice in one process, as the loop of DDP."""
    from tests.flash_checkpoint.jobs import deepspeed_engine  # has DeepSpeed compile nothing

    def train(engine: Any) -> None:  # noqa: ANN401
        engine.backward(engine(torch.ones(2, 4)).square().mean())
        engine.step()

    adam = {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}
    for steps in (STEPS, STEPS + 1):
        model = torch.nn.Linear(4, 4)
        names = {
            "deepspeed": vars(deepspeed_engine)["deepspeed"], "model": model, "steps": steps,
            "seen": steps,
            "checkpoint_dir": str(folder), "train": train,
            "config": {"train_micro_batch_size_per_gpu": 2, "optimizer": adam,
                       "zero_optimization": {"stage": 1}},
        }  # fmt: skip
        made = page_snippets.run(CODE[GUIDE, "DeepSpeed"], names, "train(engine)")
        assert made is not None
        assert made["client_state"].get("seen", 0) == (0 if steps == STEPS else STEPS)
        loaded, client_state = made["checkpointer"].load_checkpoint(str(folder))
        assert (loaded, client_state["seen"]) == (f"memory:global_step{steps}", steps)


def hugging_face(folder: Path) -> None:
    """The Trainer's five lines, twice in one process."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from tests.flash_checkpoint.jobs.hf_job import LENGTH, VOCABULARY, Texts

    shape = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=1)
    code = CODE[GUIDE, "Hugging Face's Trainer"]
    for steps in (2, 3):
        options = {
            "model": GPT2LMHeadModel(shape),
            "train_dataset": Texts(),
            "args": TrainingArguments(
                output_dir=str(folder), use_cpu=True, ddp_backend="gloo", report_to=[],
                max_steps=steps, per_device_train_batch_size=2, save_strategy="no",
                disable_tqdm=True,
            ),
        }  # fmt: skip
        names = {"Trainer": Trainer, "options": options}
        made = page_snippets.run(code.replace("(..., ", "(**options, "), names)
        assert made is not None
        resumed = made["flash"].newest(made["trainer"])
        assert Path(resumed).name == f"checkpoint-{steps}"


def marks(folder: Path) -> None:
    """Steps, waits for input, and a report."""
    loader = [1, 2, 3]
    assert page_snippets.run(_of_page(API, "step("), {"loader": loader}) is not None
    how_to = _of_page("docs/how-to/straggler.md", "step(")
    assert page_snippets.run(how_to, {"loader": loader}) is not None
    report = folder / f"report-{dist.get_rank()}.json"
    report.write_text(json.dumps({"findings": [{"id": "X", "status": "ok"}]}))
    code = _of_page(API, "report.json").replace("/root/timeline/report.json", str(report))
    assert page_snippets.run(code, {}) is not None


def _of_page(page: str, word: str) -> str:
    (code,) = [text for (where, _), text in CODE.items() if where == page and word in text]
    return code


def replicated(folder: Path) -> None:
    """The loop of try-to-persist."""
    model, optimizer, _ = _made()
    os.chdir(folder)
    code = _of_page("docs/how-to/save-and-resume.md", "ReplicatedLoop").replace("10_000", "3")
    names = {
        "model": model, "optimizer": optimizer,
        "loss_of": lambda step: model(torch.full((2, 4), float(step))).sum(),
    }  # fmt: skip
    assert page_snippets.run(code, names) is not None


PARTS: dict[str, Callable[[Path], None]] = {
    part.__name__: part
    for part in (ddp, protect, fsdp, megatron, deepspeed, hugging_face, marks, replicated)
}


def main() -> None:
    """All that are asked for, one after the other."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in sys.argv[2:]:
        folder, slots = Path(sys.argv[1]) / name, Path(sys.argv[1]) / f"slots-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        slots.mkdir(mode=0o700, exist_ok=True)
        # In the place of the launcher's, which has room for one checkpointer.
        os.environ[FOLDER_VARIABLE] = str(slots)
        dist.barrier()
        PARTS[name](folder)
        # One write: with PYTHONUNBUFFERED, print() makes two, and the ranks write at once.
        os.write(1, f"rank {dist.get_rank()} ran {name}\n".encode())
        dist.barrier()
    end_rank()


if __name__ == "__main__":
    main()
