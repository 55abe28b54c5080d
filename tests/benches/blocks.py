"""What allocate.py does, in blocks on command: a line with a number of rounds is answered by the CPU time of
the process for them, in nanoseconds."""

import sys
import time

from allocate import records, work


def main():
    work(0)
    print("running", flush=True)
    held = []
    seed = 0
    for line in sys.stdin:
        start = time.process_time_ns()
        for _ in range(int(line)):
            seed += 1
            work(seed)
            held.append(records(seed))
            if len(held) > 20:
                held.pop(0)
        print(time.process_time_ns() - start, flush=True)


main()
