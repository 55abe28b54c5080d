#!/bin/sh
# Profiles on a kernel that this machine does not run: boots one of Debian's in qemu (software
# emulation, no KVM needed) with an initramfs that holds samplerd, sampler and two workloads, and
# fails unless the numbers are the truth (see init).
#
#   tests/vm/run.sh [6.1|6.12|sid|all]     default 6.1, which has neither multi nor session uprobes
#
# Needs a Debian machine with qemu-system-x86, busybox-static and cpio, a C compiler, and the programs
# built before (cargo xtask build-ebpf && cargo xtask build-preload && cargo build --release --bins).
# The kernel package is downloaded into TARGET/vm and unpacked there; nothing is installed, and the
# machine's package lists stay unchanged.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
version=${1:-6.1}
case $version in
all)
    for each in 6.1 6.12 sid; do
        echo "== Debian's kernel $each"
        "$0" $each
    done
    exit
    ;;
6.1) meta=linux-image-cloud-amd64 engine=perf refused="session multi" ;;
6.12) meta=linux-image-6.12-cloud-amd64 engine=multi refused=session ;;
sid) meta=linux-image-cloud-amd64 engine=session refused= ;;
*) echo "run.sh: kernel $version is unknown (try 6.1, 6.12, sid or all)" >&2; exit 2 ;;
esac
for need in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio cc:gcc; do
    command -v "${need%%:*}" >/dev/null ||
        { echo "run.sh: ${need%%:*} is missing (apt-get install ${need##*:})" >&2; exit 2; }
done
for program in samplerd sampler sampler-inject libsampler_preload.so; do
    [ -x "$target/release/$program" ] ||
        { echo "run.sh: $target/release/$program is missing (cargo build --release --bins)" >&2; exit 2; }
done

mkdir -p "$target/vm/$version"
cd "$target/vm/$version"
if ! ls boot/vmlinuz* >/dev/null 2>&1; then
    if [ "$version" = sid ]; then
        mkdir -p apt/lists/partial apt/archives/partial
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main" >apt/sources.list
        : >apt/status
        cat >apt/apt.conf <<-END
		Dir::State "$PWD/apt";
		Dir::State::status "$PWD/apt/status";
		Dir::Cache "$PWD/apt";
		Dir::Etc::sourcelist "$PWD/apt/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		APT::Sandbox::User "root";
		END
        export APT_CONFIG="$PWD/apt/apt.conf"
        apt-get -qq update
    fi
    package=$(apt-cache depends "$meta" | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$package" ] || { echo "run.sh: no package $meta (apt-get update)" >&2; exit 2; }
    # Debian's newer packages have the kernel in a package and a folder of its own.
    case $version in sid) package=linux-binary-${package#linux-image-} ;; esac
    apt-get download "$package"
    mkdir -p boot
    dpkg-deb --fsys-tarfile "$package"_*.deb |
        tar -x --wildcards --transform 's:.*/\(vmlinuz[^/]*\)$:boot/\1:' '*/vmlinuz*'
fi

rm -rf tree
mkdir -p tree/bin tree/workload/dwarf tree/workload/fp tree/dev
mknod tree/dev/console c 5 1 2>/dev/null || true
cp "$(command -v busybox)" tree/bin/busybox
ln -s busybox tree/bin/sh
cp "$target/release/samplerd" "$target/release/sampler" "$target/release/sampler-inject" \
    "$target/release/libsampler_preload.so" tree/bin/
for workload in edges truth budget; do
    # The flags of tests/src/build.rs.
    cc -O2 -g -fno-builtin -fno-optimize-sibling-calls "$root/tests/workloads/$workload.c" \
        -o "tree/workload/dwarf/$workload" -pthread -lm -ldl
done
cc -O2 -g -fno-builtin -fno-optimize-sibling-calls -fno-omit-frame-pointer \
    "$root/tests/workloads/edges.c" -o tree/workload/fp/edges -pthread -lm -ldl
ldd tree/bin/samplerd tree/bin/sampler tree/bin/sampler-inject tree/workload/dwarf/* | awk '/\(0x/ && $(NF - 1) ~ "^/" { print $(NF - 1) }' | sort -u |
    while read -r library; do
        mkdir -p "tree$(dirname "$library")"
        cp -L "$library" "tree$library"
    done
cp "$here/init" tree/init
chmod +x tree/init
echo "engine=$engine refused='$refused'" >tree/expected
(cd tree && find . | cpio --quiet -o -H newc) | gzip -1 >initramfs

timeout 1800 qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 1024 -nographic -no-reboot \
    -kernel boot/vmlinuz* -initrd initramfs -append "console=ttyS0 quiet panic=-1" </dev/null |
    sed -u 's/\r//g' | tee console
grep -q '^vm: ok$' console || { echo "run.sh: failed on Linux $version" >&2; exit 1; }
