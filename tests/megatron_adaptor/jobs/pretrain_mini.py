"""A Megatron program over megatron-core from PyPI, with relkit's import or without it.

    pretrain_mini.py --adaptor yes --save FOLDER --tp 2 ...

Each rank's last line has a digest of its weights.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import warnings

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--adaptor", default="yes")
    add("--save")
    add("--load")
    add("--save-interval", type=int, default=0)
    add("--train-iters", type=int, default=6)
    add("--tp", dest="tensor_model_parallel_size", type=int, default=1)
    add("--pp", dest="pipeline_model_parallel_size", type=int, default=1)
    add("--ep", dest="expert_model_parallel_size", type=int, default=1)
    add("--use-distributed-optimizer", action="store_true")
    add("--num-distributed-optimizer-instances", type=int, default=1)
    add("--type", default="float32")
    add("--global-batch-size", type=int, default=8)
    given = parser.parse_args()

    from tests.megatron_adaptor.jobs import mini_training
    from tests.trainer import megatron_core

    torch.set_num_threads(1)
    sys.stdout.write(f"rank {os.environ['RANK']} begins\n")
    sys.stdout.flush()
    megatron_core.on_cpu()
    mini_training.install()
    if given.adaptor == "yes":
        import relkit.megatron_adaptor
        import relkit.megatron_adaptor as again

        assert again is relkit.megatron_adaptor
    dist.init_process_group("gloo")
    args = argparse.Namespace(
        **vars(given), ckpt_format="torch", use_dist_ckpt=False, async_save=False,
        consumed_train_samples=0, micro_batch_size=1, num_layers=2, hidden_size=16,
        ffn_hidden_size=32, num_attention_heads=2, num_query_groups=2, normalization="LayerNorm",
        norm_epsilon=1e-5, swiglu=False, add_bias_linear=given.expert_model_parallel_size == 1,
        num_experts=4 if given.expert_model_parallel_size > 1 else None, moe_router_topk=2,
        virtual_pipeline_model_parallel_size=None, bf16=given.type == "bfloat16",
        fp16=given.type == "float16", world_size=dist.get_world_size(),
    )  # fmt: skip
    model = mini_training.pretrain(args)
    digest = hashlib.sha256()
    for parameter in model[0].parameters():
        digest.update(parameter.detach().float().numpy().tobytes())
    sys.stdout.write(f"rank {dist.get_rank()} weights {digest.hexdigest()}\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
