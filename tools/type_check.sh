#!/bin/sh
# mypy for the interpreter $1, with a cache that outlives a checkout: a fresh clone starts from the one
# kept below ~/.cache. mypy holds each file of a cache against the hash of the source and of what it
# imports, so one that was written by other sources costs time and never a wrong answer.
set -eu
cd "$(dirname "$0")/.."
python="$1"
key="$("$python" -c 'import sys, mypy.version; print(mypy.version.__version__, *sys.version_info[:2], sep="-")')"
kept="${XDG_CACHE_HOME:-$HOME/.cache}/relkit/mypy-$key.tar"
if [ ! -d .mypy_cache ] && [ -f "$kept" ]; then
  tar -xf "$kept" || rm -rf .mypy_cache
fi
"$python" -m mypy
# One file, put there whole: two clones may write it at once.
if [ -z "$(find "$kept" -mtime -1 2>/dev/null)" ]; then
  mkdir -p "$(dirname "$kept")"
  tar -cf "$kept.$$" .mypy_cache && mv -f "$kept.$$" "$kept"
fi
