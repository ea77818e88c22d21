#!/bin/sh
# Lay relkit and its libraries out in build/ as an installation has them, and check that on this
# machine's GPU with this machine's torch.
# PYTHON names the interpreter that has torch with CUDA; nothing is installed or fetched.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import click, ClusterShell, jinja2, numpy, psutil, rich, torch' 2>/dev/null || {
    echo "gpu-check: nothing was checked: $python lacks torch or one of relkit's dependencies." >&2
    echo "next: $python -m pip install . beside a torch with CUDA; PYTHON=... names another." >&2
    exit 3
}
root=$PWD
case $python in /*) ;; */*) python=$root/$python ;; esac
build=$root/build/gpu-check
stage=$build/stage
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
cmake --build "$build" --parallel >/dev/null
rm -rf "$stage"
cmake --install "$build" --prefix "$stage" >/dev/null
cp -RL relkit tools examples "$stage"
# In the stage: `python -m` takes the packages of the folder that it runs in before all others.
cd "$stage"
exec env PYTHONPATH="$stage${PYTHONPATH:+:$PYTHONPATH}" "$python" -m tools.gpu_check \
    --results "$root/build/gpu-results.json" --page "$root/docs/reference/gpu-results.md" "$@"
