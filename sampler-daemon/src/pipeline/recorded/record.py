#!/usr/bin/env python3
"""Records a run of samplerd on two processes of `program`: ring.bin has the records that its eBPF programs wrote.

    cc ...                               compiles `program` (program.c has the command)
    sudo python3 record.py SAMPLERD      writes ring.bin and run.json beside this script
    UPDATE_GOLDEN=1 cargo test -p sampler-daemon --lib recorded

samplerd does not know of the recording. Its ring is so large that no byte of it is overwritten, so the records are still there after
samplerd has read them. This script gets samplerd's descriptor of the ring by pidfd_getfd(2). Reference: kernel/bpf/ringbuf.c.
"""

import ctypes
import json
import mmap
import os
import re
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PIDFD_GETFD = 438
MAP_TYPE_RINGBUF = 27
RING_BYTES = 4 << 20
FUNCTIONS = ["malloc", "calloc", "realloc", "free"]
PAGE = mmap.PAGESIZE
# sampler_common::wire: RecordKind::AllocationSnapshot, and the size of AllocationRecord.
SNAPSHOT, HEADER_BYTES = 1, 128
# One in some ten allocations is sampled, and the fixture stays small.
ARGUMENTS = ["--interval", "2KiB", "--snapshot", "4KiB", "--ring", str(RING_BYTES), "--no-mappings", "--max-samples-per-second", "unlimited"]


def ring_of(pid):
    """A descriptor of samplerd's ring, for this process."""
    for name in os.listdir(f"/proc/{pid}/fdinfo"):
        with open(f"/proc/{pid}/fdinfo/{name}") as info:
            fields = dict(re.findall(r"(\w+):\s+(\S+)", info.read()))
        if int(fields.get("map_type", 0)) == MAP_TYPE_RINGBUF and int(fields["max_entries"]) == RING_BYTES:
            target = os.pidfd_open(pid)
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.syscall(PIDFD_GETFD, target, int(name), 0)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
            return descriptor
    sys.exit("samplerd has no such ring")


def written_to(descriptor):
    """The number of bytes written to the ring so far, and the ring's data."""
    length = PAGE + RING_BYTES
    whole = mmap.mmap(descriptor, length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=PAGE)
    written = struct.unpack_from("=Q", whole)[0]
    if written > RING_BYTES:
        sys.exit(f"{written} bytes were written: the first of them are gone")
    return written, whole[PAGE:]


def trimmed(ring):
    """The same records, without the bytes that were reserved for a stack and not used. Each has its length and four zero bytes in front."""
    out, at = b"", 0
    while at < len(ring):
        length, _ = struct.unpack_from("=II", ring, at)
        if length >> 30:
            sys.exit("a record is busy or discarded")
        kind, stack_bytes = struct.unpack_from("=II", ring, at + 8)
        used = HEADER_BYTES + stack_bytes if kind == SNAPSHOT else length
        out += struct.pack("=II", used, 0) + ring[at + 8 : at + 8 + used] + bytes(-used % 8)
        at += 8 + length + -length % 8
    return out


def code_of(pid):
    """Start, end and file offset of the program's code."""
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            addresses, rights, offset, _ = line.split(None, 3)
            if "x" in rights and line.endswith("/program\n"):
                return [*(int(address, 16) for address in addresses.split("-")), int(offset, 16)]
    sys.exit("the program has no code")


def start():
    # Copies of its stack contain neither an environment nor a path of this machine.
    return subprocess.Popen(["./program"], cwd=HERE, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def main():
    programs = [start(), start()]
    code = code_of(programs[0].pid)
    with tempfile.TemporaryDirectory() as directory:
        pids = [str(program.pid) for program in programs]
        spec = os.path.join(directory, "spec")
        with open(spec, "w") as file:
            file.write("library */program\n" + "".join(f"{name} {name}\n" for name in FUNCTIONS))
        listen = ["--allocator-spec", spec, "--listen", f"unix:{directory}/socket", "--pid", *pids]
        samplerd = subprocess.Popen([sys.argv[1], *ARGUMENTS, *listen], stdout=subprocess.PIPE)
        try:
            samplerd.stdout.readline()
            ring = ring_of(samplerd.pid)
            # The records before come from samplerd's measurement of prices.
            begin, _ = written_to(ring)
            for program in programs:
                program.stdin.write(b"\n")
                program.stdin.flush()
            for program in programs:
                program.stdout.readline()
            end, data = written_to(ring)
            recorded = trimmed(data[begin:end])
        finally:
            samplerd.terminate()
            samplerd.wait()
            for program in programs:
                program.kill()
                program.wait()
    with open(os.path.join(HERE, "ring.bin"), "wb") as file:
        file.write(recorded)
    with open(os.path.join(HERE, "run.json"), "w") as file:
        json.dump({"pids": [int(pid) for pid in pids], "code": code}, file)
        file.write("\n")
    print(f"{len(recorded)} bytes of pids {pids}")


main()
