"""bcc's memleak as Debian 12 has it, able to attach.

Its library takes a seventh argument, the offset of a reference count, that the package's Python does not pass: the
kernel then refuses whatever happens to lie on the stack. And it insists on mmap and munmap, which an allocator with a
library of its own does not have.
"""

import ctypes
import runpy
import sys

import bcc
from bcc import libbcc

attach = libbcc.lib.bpf_attach_uprobe
if len(attach.argtypes) == 6:
    attach.argtypes = [*attach.argtypes, ctypes.c_uint32]
    libbcc.lib.bpf_attach_uprobe = lambda *arguments: attach(*arguments, 0)


def optional(attach):
    def attach_if_there(self, *arguments, **named):
        try:
            return attach(self, *arguments, **named)
        except Exception:
            if named.get("sym") not in ("mmap", "munmap"):
                raise

    return attach_if_there


bcc.BPF.attach_uprobe = optional(bcc.BPF.attach_uprobe)
bcc.BPF.attach_uretprobe = optional(bcc.BPF.attach_uretprobe)

sys.argv[0] = "/usr/sbin/memleak-bpfcc"
runpy.run_path(sys.argv[0], run_name="__main__")
