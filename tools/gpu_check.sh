#!/bin/sh
# Build the hook beside the checkout, and check it on this machine's GPU with this machine's torch.
# PYTHON names the interpreter that has torch with CUDA; nothing is installed or fetched.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
"$python" -c 'import click, ClusterShell, jinja2, numpy, psutil, rich, torch' 2>/dev/null || {
    echo "gpu-check: nothing was checked: $python lacks torch or one of relkit's dependencies." >&2
    echo "next: $python -m pip install relkit, beside a torch with CUDA; PYTHON=... names another." >&2
    exit 3
}
build=build/gpu-check
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo >/dev/null
cmake --build "$build" --parallel >/dev/null
library=$(find "$PWD/$build" -name librelkit_hook.so | head -n 1)
exec env PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" RELKIT_HOOK_LIBRARY="$library" \
    "$python" -m tools.gpu_check "$@"
