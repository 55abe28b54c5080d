#!/bin/sh
# Runs the systemd of a root directory, in namespaces and a control group of its own: boot.sh ROOT CGROUP
# Linux ends everything in them with the first process.
set -eu
mkdir "$2"
echo $$ >"$2/cgroup.procs"
exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child sh -euc '
    mount --bind "$0" "$0"
    cd "$0"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs dev
    for device in null zero full random urandom tty; do
        touch dev/$device
        mount --bind /dev/$device dev/$device
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs tmpfs tmp
    pivot_root . mnt
    umount --lazy mnt
    exec env -i container=sampler-test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --show-status=no
' "$1"
