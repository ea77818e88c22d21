#!/bin/sh
# Make a virtual environment; on Debian the venv module is a package of its own.
# usage: make_venv.sh PYTHON FOLDER
set -eu
python=$1
folder=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "relkit needs Python 3.10 or newer; $python is $("$python" --version 2>&1)." >&2
    echo "  next: make demo PYTHON=/path/to/python3.11" >&2
    exit 2
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv
    else
        echo "The venv module is missing. next: sudo apt-get install python3-venv" >&2
        exit 2
    fi
fi
"$python" -m venv "$folder"
# Dependency groups need pip >= 25.1.
"$folder/bin/pip" install -q --upgrade 'pip>=25.1'
