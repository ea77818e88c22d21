#!/bin/sh
# Run the whole test suite; what this machine cannot run is left out by marker, and said aloud.
set -eu
cd "$(dirname "$0")/.."

leave_out=''
leave() { # marker, reason
    echo "left out: tests marked '$1' ($2)" >&2
    leave_out="${leave_out:+$leave_out and }not $1"
}
[ "$(id -u)" = 0 ] || leave root "not running as root"
{ command -v chromium && command -v chromedriver; } >/dev/null || leave browser "no chromium"
command -v gdb >/dev/null || leave gdb "no gdb"
command -v dot >/dev/null || leave dot "no graphviz"
command -v /usr/sbin/sshd >/dev/null || leave sshd "no openssh-server"
{ command -v /usr/sbin/slurmctld && command -v /usr/sbin/slurmd && command -v srun &&
    command -v /usr/sbin/munged; } >/dev/null || leave slurm "no slurmctld, slurmd, srun or munged"
command -v clang >/dev/null || leave fuzz "no clang"
command -v java >/dev/null || leave spark "no Java"

.venv/bin/ruff format --check -q .
.venv/bin/ruff check -q .
tools/c_format.sh
.venv/bin/mypy
pytest() {
    .venv/bin/python -m pytest -q -p no:cacheprovider ${leave_out:+-m "$leave_out"} "$@"
}
if [ $# -gt 0 ]; then
    pytest "$@"
    exit
fi

# Two halves side by side, as most tests wait for something; those that judge the speed of ranks
# have the machine to themselves after that.
second=$(mktemp)
trap 'rm -f "$second"' EXIT
pytest tests --ignore=tests/cluster --ignore=tests/unit --ignore=tests/straggler >"$second" 2>&1 &
failed=0
pytest tests/cluster tests/unit || failed=$?
wait $! || failed=$?
cat "$second"
pytest tests/straggler || failed=$?
exit "$failed"
