"""Times allocations below a number of Python frames: for each line `FRAMES COUNT` it prints the nanoseconds of COUNT allocations."""

import sys
import time

# Above the largest block of Python's own allocator.
BYTES = 600


def below(frames, count):
    if frames > 1:
        return below(frames - 1, count)
    start = time.perf_counter_ns()
    for _ in range(count):
        bytes(BYTES)
    return time.perf_counter_ns() - start


print("waiting", flush=True)
for line in sys.stdin:
    frames, count = map(int, line.split())
    # The module itself is the first frame.
    print(below(frames - 1, count), flush=True)
