#!/bin/bash
# MindFormers' way to start: bash examples/pretrain_gpt.sh [xx.yaml], with `relkit launch` for msrun.
# WORK_NUM is the number of processes; further arguments are flags of pretrain_gpt.py.

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

project_dir=$(cd "$(dirname "$0")" || exit; pwd)
config_path=${1:-$project_dir/gpt_tiny.yaml}
shift

relkit launch --nproc_per_node "${WORK_NUM:-2}" --master_port "${MASTER_PORT:-8828}" \
    "$project_dir/pretrain_gpt.py" --config_path="$config_path" "$@"
