"""Allocates from Python code of many shapes, and says what the stack of each allocation was, as Python itself sees it.

At each line it prints `{"size": ["function (file:line)", …], …}`, oldest frame first. Blocks are distinguished by their sizes, which are too large for Python's own allocator.
`go` allocates at each shape, `stops N` once at N chains of random shapes, `inside` in other interpreters of the process, and `gone` in code that is gone.
"""
import asyncio
import contextlib
import functools
import json
import os
import random
import re
import sys
import threading

try:
    import ctypes
except ImportError:
    ctypes = None

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


# Shapes that go on to the next one. The last allocates.
def go_on(rest, size):
    if rest:
        rest[0](rest[1:], size)
    else:
        keep(bytes(size), sys._getframe())


def through_recursion(rest, size, depth=3):
    if depth:
        return through_recursion(rest, size, depth - 1)
    go_on(rest, size)


def through_generators(rest, size):
    def inner():
        yield go_on(rest, size)

    def outer():
        yield from inner()
    list(outer())


def through_comprehensions(rest, size):
    return {key: [go_on(rest, size) for _ in range(1)] for key in (key for key in [1])}


def through_lambda(rest, size):
    return list(map(lambda n: go_on(rest, n), [size]))


def through_sort(rest, size):
    sorted([size], key=lambda n: go_on(rest, n) or 0)


def through_reduce(rest, size):
    functools.reduce(lambda _, n: go_on(rest, n), [0, size])


def through_pattern(rest, size):
    re.sub("x", lambda _: go_on(rest, size) or "", "x")


# The code stays until it has been read.
codes = []


def through_code(rest, size):
    codes.append(compile("\n\ngo_on(rest, size)", "made.py", "exec"))
    exec(codes[-1], {**globals(), "rest": rest, "size": size})


def through_class(rest, size):
    class Body:
        member = go_on(rest, size)


def through_end(rest, size):
    class Ends:
        def __del__(self):
            go_on(rest, size)
    Ends()


def through_exception(rest, size):
    try:
        raise KeyError(size)
    except KeyError:
        go_on(rest, size)
    finally:
        size = 0


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named)
    return wrapper


@decorated
def through_decorator(rest, size):
    go_on(rest, size)


def through_context(rest, size):
    @contextlib.contextmanager
    def context():
        go_on(rest, size)
        yield
    with context():
        pass


def through_coroutines(rest, size):
    async def inner():
        go_on(rest, size)

    async def items():
        await inner()
        yield 1

    async def outer():
        return [item async for item in items()]
    try:
        outer().send(None)
    except StopIteration:
        pass


def through_tasks(rest, size):
    async def task():
        await asyncio.sleep(0)
        go_on(rest, size)

    async def main():
        await asyncio.gather(task())
    if asyncio._get_running_loop():
        return go_on(rest, size)
    asyncio.run(main())


# Calls that the interpreter makes itself.
class Made:
    def __init__(self, rest, size):
        go_on(rest, size)

    @property
    def content(self):
        return self + 1

    def __add__(self, other):
        return next(iter(self))

    def __iter__(self):
        return self

    def __next__(self):
        go_on(*self.arguments, **{})


def through_constructor(rest, size):
    if size % 2000:
        return Made(rest, size)
    made = Made.__new__(Made)
    made.arguments = rest, size
    made.content


def through_thread(rest, size):
    thread = threading.Thread(target=go_on, args=(rest, size))
    thread.start()
    thread.join()


# A library in C, which is none of Python's, calls back.
def through_library(rest, size):
    if not ctypes:
        return go_on(rest, size)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    once = [go_on]

    def compare(left, right):
        if once:
            once.pop()(rest, size)
        return 0
    ctypes.CDLL(None).qsort((ctypes.c_int * 2)(), 2, 4, kind(compare))


SHAPES = [through_recursion, through_generators, through_comprehensions, through_lambda, through_sort, through_reduce,
          through_pattern, through_code, through_class, through_end, through_exception, through_decorator,
          through_context, through_coroutines, through_tasks, through_constructor, through_thread, through_library]


def stops(number):
    random.seed(number)
    for at in range(number):
        go_on(random.choices(SHAPES, k=random.randint(1, 5)), next(sizes))


# What other interpreters of the process run. Their threads and their first ones allocate.
INSIDE = """
import json, os, sys, threading

stacks = {}


def keep(block, frame):
    stack = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        stack.insert(0, f"{name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    stacks[len(block)] = stack


def recursion(size, depth):
    if depth:
        return recursion(size, depth - 1)
    for _ in range(REPEATS):
        keep(bytes(size), sys._getframe())


def generator(size):
    yield recursion(size, 2)


recursion(FIRST, 3)
list(generator(FIRST + 1000))
thread = threading.Thread(target=lambda: list(generator(FIRST + 2000)))
thread.start()
thread.join()
print(json.dumps({"thread": FIRST + 2000, "stacks": stacks}), flush=True)
"""


def create(is_isolated):
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        return interpreters, interpreters.create("isolated" if is_isolated else "legacy")
    import _xxsubinterpreters as interpreters
    return interpreters, interpreters.create(isolated=is_isolated)


# They and their code stay until the end.
others = []


def inside():
    # Before 3.12, isolated interpreters start no threads.
    for is_isolated in [True, False] if sys.version_info >= (3, 12) else [False]:
        interpreters, other = create(is_isolated)
        first = next(sizes)
        next(sizes), next(sizes)
        text = f"REPEATS = {REPEATS}\nFIRST = {first}\n" + INSIDE
        interpreters.run_string(other, f"code = compile({text!r}, 'inside.py', 'exec')\nexec(code)")
        size = next(sizes)
        for _ in range(REPEATS):
            recursion(size)
        others.append((interpreters, other))


def main():
    for case in CASES:
        size = next(sizes)
        for _ in range(REPEATS):
            case(size)


print("waiting", flush=True)
for line in sys.stdin:
    if line.startswith("exit"):
        for interpreters, other in others:
            interpreters.destroy(other)
        break
    if line.startswith("stops"):
        stops(int(line.split()[1]))
    else:
        {"gone": gone, "inside": inside}.get(line.strip(), main)()
    print(json.dumps(stacks), flush=True)
