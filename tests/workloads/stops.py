# Runs inside gdb: stops a process at calls of malloc and prints the whole chain of return addresses,
# as (path, file offset), with the time of the stop. Takes PID and the number of stops.
#
# A hardware breakpoint stops before the instruction runs, so also before a uprobe at the same place,
# and the return address on the stack is still the caller's. It must be set before the uprobe: an int3
# that gdb finds in memory it takes for a permanent breakpoint, and skips by moving the program counter.
import json
import os
import time

import gdb


def mappings(pid):
    found = []
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            start, end = (int(part, 16) for part in fields[0].split("-"))
            path = fields[5].strip() if len(fields) > 5 else ""
            found.append((start, end, int(fields[2], 16), path))
    return found


def place(maps, pc):
    for start, end, offset, path in maps:
        if start <= pc < end:
            return [path, pc - start + offset]
    return ["", pc]


def chain(pid):
    maps = mappings(pid)
    frame, places = gdb.newest_frame(), []
    while frame is not None:
        if frame.type() != gdb.INLINE_FRAME:
            places.append(place(maps, frame.pc()))
        frame = frame.older()
    return places


# Runs from the first instruction of a call to where it returns. Where a probe and gdb's own breakpoint are at one place, `continue`
# meets the same call again and again: without the breakpoint the instruction is simply run.
def finish_call(breakpoint):
    returns_to = int(gdb.parse_and_eval("*(unsigned long *)$rsp"))
    breakpoint.enabled = False
    gdb.execute(f"thbreak *{returns_to:#x}", to_string=True)
    gdb.execute("continue", to_string=True)
    breakpoint.enabled = True


def run(pid, stops):
    for setting in (
        "pagination off",
        "confirm off",
        "backtrace past-main on",
        "backtrace past-entry on",
        "backtrace limit unlimited",
        "breakpoint always-inserted on",
    ):
        gdb.execute(f"set {setting}", to_string=True)
    for signal in ("SIGPIPE", "SIGCHLD"):
        gdb.execute(f"handle {signal} nostop noprint pass", to_string=True)
    gdb.execute("hbreak *malloc", to_string=True)
    breakpoint = gdb.breakpoints()[-1]
    print("attached", flush=True)
    # The profiler is attached meanwhile; a line says that it is.
    os.read(0, 1)
    for stop in range(stops):
        # Uneven steps, so that a periodic program is stopped at different places.
        for _ in range((stop * 7) % 23):
            gdb.execute("continue", to_string=True)
            finish_call(breakpoint)
        gdb.execute("continue", to_string=True)
        if breakpoint.hit_count == 0 or not gdb.selected_inferior().pid:
            break
        at = time.monotonic_ns()
        record = {"time_ns": at, "tid": gdb.selected_thread().ptid[1], "chain": chain(pid)}
        print("stop " + json.dumps(record), flush=True)
        finish_call(breakpoint)
    # It ends here: at full speed, every allocation a sample, it would send more than anybody takes, and who falls behind loses the oldest.
    breakpoint.delete()
    gdb.execute("kill", to_string=True)
    print("killed", flush=True)
