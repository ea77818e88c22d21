#!/bin/sh
# Install the Debian packages that tests use, where this runs as root; else only say so.
# run_tests.sh leaves out, by name, what still cannot run.
set -eu

# package:program that proves it is there
wanted='
gcc:gcc
clang:clang
iproute2:ip
openssh-server:/usr/sbin/sshd
default-jre-headless:java
slurmctld:/usr/sbin/slurmctld
slurmd:/usr/sbin/slurmd
slurm-client:srun
munge:/usr/sbin/munged
gdb:gdb
valgrind:valgrind
graphviz:dot
chromium:chromium
chromium-driver:chromedriver
'
missing=''
for entry in $wanted; do
    command -v "${entry#*:}" >/dev/null || missing="$missing ${entry%%:*}"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not root: these packages stay out:$missing" >&2
    exit 0
fi
echo "installing Debian packages:$missing" >&2
apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
