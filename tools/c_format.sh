#!/bin/sh
# Hold the C of native/ against .clang-format; with -i, make it so. Files may be named after that.
set -eu
cd "$(dirname "$0")/.."
how='--dry-run --Werror'
[ "${1:-}" != -i ] || { how=-i; shift; }
[ $# -gt 0 ] || set -- $(find native -name '*.[ch]')
# shellcheck disable=SC2086
exec .venv/bin/clang-format $how "$@"
