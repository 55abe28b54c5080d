# Makes a place of its own in a new Debian, then waits: fresh.sh ROOT CARGO_HOME RUSTUP_HOME
# The toolchain and the certificates are the machine's, and what is written into them is forgotten.
set -eu
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/mnt"
overlay() {
    mkdir -p "$2" "$1/mnt/$3" "$1/mnt/work-$3"
    mount -t overlay none -o "lowerdir=$4,upperdir=$1/mnt/$3,workdir=$1/mnt/work-$3" "$2"
}
overlay "$1" "$1/root/.cargo" cargo "$2"
overlay "$1" "$1/root/.rustup" rustup "$3"
overlay "$1" "$1/etc/ssl/certs" certificates /etc/ssl/certs
printf '#!/bin/sh\nexec "$@"\n' >"$1/usr/local/bin/sudo"
chmod +x "$1/usr/local/bin/sudo"
exec chroot "$1" sh -c 'cd /root/sampler && echo made && exec sleep infinity'
