#!/bin/sh
# Run a command as an ordinary user that exists only meanwhile: on a copy of this checkout that is
# the user's own, at the same path, in namespaces that go with the command. Where it is no root who
# asks, the command runs as it is.
# usage, in the checkout: as_user.sh COMMAND...
set -eu
name=relkit-tests
uid=54321
# The user's home, for what tests compile and keep. Only root makes folders there.
home=/var/cache/relkit-test-user

if [ "$(id -u)" != 0 ]; then
    exec "$@"
fi
if [ "${1-}" != --inside ]; then
    work=$(mktemp -d /var/tmp/relkit-as-user-XXXXXX)
    trap 'rm -rf "$work"' EXIT
    # All that runs inside goes with the namespaces, also when this shell is killed.
    setpriv --pdeathsig KILL \
        unshare --mount --propagation private --pid --fork --kill-child --mount-proc -- \
        "$0" --inside "$work" "$@" &
    child=$!
    trap 'kill -KILL "$child" 2>/dev/null; wait "$child" || :; exit 130' INT TERM HUP
    code=0
    wait "$child" || code=$?
    exit "$code"
fi
work=$2
shift 2
checkout=$PWD
chmod 755 "$work"

# The copy: what git has or would take. The user's own git, so that no test meets another's.
mkdir "$work/checkout" "$work/venv" "$work/python"
git ls-files -z --cached --others --exclude-standard |
    tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null | tar -xf - -C "$work/checkout"
mkdir -p "$work/checkout/.venv" "$home"
chown -R "$uid:$uid" "$work/checkout" "$home"

for database in passwd group; do
    case $database in
    passwd) entry="$name:x:$uid:$uid::$home:/bin/sh" ;;
    group) entry="$name:x:$uid:" ;;
    esac
    { cat "/etc/$database" && echo "$entry"; } >"$work/$database"
    mount --bind "$work/$database" "/etc/$database"
done

# An interpreter or a checkout in root's home: the folder on the way is replaced by one that can be
# passed through and holds nothing else.
python=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')
mount --bind .venv "$work/venv"
mount --bind "$python" "$work/python"
for goal in "$python" "$checkout"; do
    way=
    rest=$goal/
    while [ -n "$rest" ]; do
        way=$way${rest%%/*}
        rest=${rest#*/}
        [ -z "$way" ] || [ -e "$way" ] || break
        if [ -n "$way" ] && ! setpriv --reuid "$uid" --regid "$uid" --clear-groups test -x "$way"; then
            mount -t tmpfs -o mode=711,size=1m relkit "$way"
        fi
        way=$way/
    done
done
mkdir -p "$python" "$checkout"
mountpoint -q "$python" || [ -x "$python/bin/python3" ] || mount --bind "$work/python" "$python"
mount --bind "$work/checkout" "$checkout"
mount --bind "$work/venv" "$checkout/.venv"
cd "$checkout"

as_user() {
    env -u XDG_CACHE_HOME -u XDG_RUNTIME_DIR -u SUDO_USER -u MAKEFLAGS -u MAKELEVEL \
        HOME="$home" USER="$name" LOGNAME="$name" \
        setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@" </dev/null
}
as_user git -c init.defaultBranch=main init -q
as_user git add -A
as_user git -c user.name="$name" -c user.email="$name@localhost" commit -qm "what is tested"
# Not exec: the first process of a namespace takes all others along when it ends.
as_user "$@" || exit
