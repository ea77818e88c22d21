#!/bin/sh
# The hook is C11: say so before a build log of a hundred lines does.
command -v cc >/dev/null || command -v gcc >/dev/null || {
    echo "A C compiler is needed to build the hook. next: sudo apt-get install gcc libc6-dev" >&2
    exit 2
}
