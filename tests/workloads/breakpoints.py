# Runs inside gdb: sets a breakpoint at each of some addresses, goes on whenever the process has stopped at one, and leaves it after so many stops.
import gdb


class Passing(gdb.Breakpoint):
    stops = 0
    last = 0

    def stop(self):
        Passing.stops += 1
        return Passing.stops >= Passing.last


def run(addresses, count):
    Passing.last = count
    breakpoints = [Passing(f"*{address:#x}", internal=True) for address in addresses]
    gdb.execute("continue", to_string=True)
    for breakpoint in breakpoints:
        breakpoint.delete()
    gdb.execute("detach", to_string=True)
    print(f"{Passing.stops} stops", flush=True)
