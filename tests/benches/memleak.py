"""bcc's memleak as Debian 12 has it, able to attach.

Its library takes a seventh argument, the offset of a reference count, that the package's Python does not pass: the
kernel then refuses whatever happens to lie on the stack.
"""

import ctypes
import runpy
import sys

from bcc import libbcc

attach = libbcc.lib.bpf_attach_uprobe
if len(attach.argtypes) == 6:
    attach.argtypes = [*attach.argtypes, ctypes.c_uint32]
    libbcc.lib.bpf_attach_uprobe = lambda *arguments: attach(*arguments, 0)

sys.argv[0] = "/usr/sbin/memleak-bpfcc"
runpy.run_path(sys.argv[0], run_name="__main__")
