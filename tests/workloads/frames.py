"""Allocates from Python code of many shapes, and says what the stack of each allocation was, as Python itself sees it.

At `go` it prints `{"size": ["function (file:line)", …], …}`, oldest frame first. Blocks are told apart by their sizes, which are too large for Python's own allocator.
"""
import json
import os
import sys
import threading

REPEATS = 8
stacks = {}
sizes = iter(range(100_000, 1_000_000, 1_000))


def keep(block, frame):
    stack = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        stack.insert(0, f"{name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    known = stacks.setdefault(len(block), stack)
    if known != stack:
        sys.exit(f"one size at two stacks: {known} {stack}")


def recursion(size, depth=6):
    if depth:
        return recursion(size, depth - 1)
    keep(bytes(size), sys._getframe())


# Deeper than what is read of a stack.
def deep(size, depth=200):
    if depth:
        return deep(size, depth - 1)
    keep(bytes(size), sys._getframe())


def generator(size):
    for _ in range(2):
        yield keep(bytes(size), sys._getframe())


def generated(size):
    for _ in generator(size):
        pass


def comprehension(size):
    return [keep(bytes(size), sys._getframe()) for _ in range(2)]


def by_lambda(size):
    list(map(lambda n: keep(bytes(n), sys._getframe()), [size]))


def key_of_sort(size):
    sorted([size, size], key=lambda n: keep(bytes(n), sys._getframe()) or 0)


class Box:
    def __init__(self, size):
        keep(bytes(size), sys._getframe())

    @property
    def content(self):
        def inner():
            keep(bytes(self.size), sys._getframe())
        inner()


def constructor(size):
    Box(size)


def from_property(size):
    box = Box.__new__(Box)
    box.size = size
    box.content


def handler(size):
    try:
        {}["missing"]
    except KeyError:
        keep(bytes(size), sys._getframe())


MADE = compile("\n\n\nkeep(bytes(size), sys._getframe())", "made.py", "exec")


def compiled(size):
    exec(MADE, {**globals(), "size": size})


def by_thread(size):
    thread = threading.Thread(target=recursion, args=(size,))
    thread.start()
    thread.join()


# Code that is gone at once, and of which the next lies where it lay: in line N a block of 100,000 + 1,000 N bytes is allocated.
def gone():
    for number in range(1, 400):
        lines = "\n" * (number - 1)
        exec(compile(f"{lines}bytes({100_000 + 1_000 * number})", "gone.py", "exec"))


CASES = [recursion, generated, comprehension, by_lambda, key_of_sort, constructor, from_property, handler, compiled,
         by_thread]
# Before, each call takes the C stack of the interpreter, which is then too deep to be copied as well.
if sys.version_info >= (3, 11):
    CASES.append(deep)


def main():
    for case in CASES:
        size = next(sizes)
        for _ in range(REPEATS):
            case(size)


print("waiting", flush=True)
for line in sys.stdin:
    if line.startswith("exit"):
        break
    gone() if line.startswith("gone") else main()
    print(json.dumps(stacks), flush=True)
