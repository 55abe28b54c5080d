"""Times allocations below a number of Python frames: for each line `FRAMES COUNT` it prints the nanoseconds of COUNT allocations."""

import sys
import time

# Above the largest block of Python's own allocator.
BYTES = 600
MAX_FRAMES = 128


def below_1(count):
    start = time.perf_counter_ns()
    for _ in range(count):
        bytes(BYTES)
    return time.perf_counter_ns() - start


# Each frame is another function's, as in most programs.
for frames in range(2, MAX_FRAMES):
    exec(f"def below_{frames}(count):\n    return below_{frames - 1}(count)")

print("waiting", flush=True)
for line in sys.stdin:
    frames, count = map(int, line.split())
    # The module itself is the first frame.
    print(globals()[f"below_{frames - 1}"](count), flush=True)
