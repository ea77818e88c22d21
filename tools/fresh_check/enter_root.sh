#!/bin/sh
# Become the first process of a root folder, and run a command there.
# usage: enter_root.sh ROOT HOSTNAME MOUNTS COMMAND...    (in fresh mount, pid, uts, ipc namespaces)
# MOUNTS is a file with a folder of the host a line; each appears read-only at the same place.
# All mounts go with the namespace, so nothing here is undone.
set -eu
root=$1
name=$2
mounts=$3
shift 3

# A root must be a mount of its own, for pivot_root and for `ip netns exec`.
mount --bind "$root" "$root"
cd "$root"
while read -r folder; do
    mount --bind "$folder" ".$folder"
    mount -o remount,bind,ro ".$folder"
done <"$mounts"

mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
[ ! -d sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755,size=1m dev dev
for device in null zero full random urandom tty kmsg fuse net/tun; do
    [ -c "/dev/$device" ] || continue
    mkdir -p "$(dirname "dev/$device")"
    : >"dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mkdir dev/pts dev/shm dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t mqueue mqueue dev/mqueue
mount -t tmpfs -o mode=755 run run
mkdir -m 1777 run/lock

hostname "$name"
mkdir -p .host
pivot_root . .host
cd /
umount -l /.host
rmdir /.host
# Not exec: the first process reaps what others leave behind, which a shell that waits does.
"$@" </dev/null || exit
exit 0
