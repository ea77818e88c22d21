#!/bin/sh
# Install the Debian packages that tests use, where this runs as root; else only say so.
# Nothing is left to recommended packages: what is needed is named here, and proved by use.
# run_tests.py leaves out, by name, what still cannot run.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Compilers are proved by a link: a program may be there without its headers or its runtime.
can_link() {
    echo 'int main(void) { return 0; }' >"$work/main.c"
    gcc -o "$work/main" "$work/main.c" -ldl -lpthread
}
can_fuzz() {
    cat >"$work/fuzz.c" <<'END'
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return data && size > 8 ? 0 : 0; }
END
    clang -fsanitize=fuzzer,address,undefined -o "$work/fuzz" "$work/fuzz.c" &&
        "$work/fuzz" -runs=10 "$work"
}
has_jemalloc() {
    ls /usr/lib/*/libjemalloc.so.2
}
has_a_font() { # Chromium and graphviz measure text
    fc-list | grep -q .
}

# package:proof, which is a program or one of the functions above
wanted='
gcc:gcc
git:git
nodejs:node
sox:sox
musl-tools:musl-gcc
strace:strace
libjemalloc2:has_jemalloc
libc6-dev:can_link
binutils:readelf
procps:sysctl
util-linux:unshare
mount:mount
iproute2:ip
openssl:openssl
curl:curl
cmake:cmake
shellcheck:shellcheck
clang:clang
libclang-rt-dev:can_fuzz
openssh-client:ssh
openssh-server:/usr/sbin/sshd
default-jre-headless:java
slurmctld:/usr/sbin/slurmctld
slurmd:/usr/sbin/slurmd
slurm-client:srun
munge:/usr/sbin/munged
gdb:gdb
openmpi-bin:mpirun
valgrind:valgrind
graphviz:dot
fontconfig:fc-list
fonts-dejavu-core:has_a_font
prometheus:promtool
chromium:chromium
chromium-driver:chromedriver
'

unproved() { # the packages whose proof fails
    for entry in $wanted; do
        proof=${entry#*:}
        if command -v "$proof" >/dev/null; then
            case $proof in can_* | has_*) "$proof" >/dev/null 2>&1 && continue ;; *) continue ;; esac
        fi
        printf ' %s' "${entry%%:*}"
    done
}

missing=$(unproved)
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not root: these packages stay out:$missing" >&2
    exit 0
fi
echo "installing Debian packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
known=''
for package in $missing; do
    # Before Debian 12 the sanitizers' runtime came with clang itself.
    if [ -n "$(apt-cache madison "$package")" ]; then
        known="$known $package"
    else
        echo "this release has no package $package" >&2
    fi
done
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $known >/dev/null
missing=$(unproved)
[ -z "$missing" ] || {
    echo "installed, but what they are for still does not work:$missing" >&2
    exit 1
}
