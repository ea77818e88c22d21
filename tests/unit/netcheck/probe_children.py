"""Children that misbehave; started as `python -m tests.unit.netcheck.probe_children`."""

from __future__ import annotations

import os
import sys
import threading
import time

from relkit.netcheck.measure.probes.child import read_order, return_result


def main() -> None:
    order = read_order()
    manner = order["manner"]
    if manner == "hang":
        threading.Event().wait()
    elif manner == "spin":
        while True:
            pass
    elif manner == "die":
        sys.exit("the reason is the last line")
    elif manner == "silent":
        os._exit(7)
    elif manner == "orphan":
        # Tells its pid at once, then waits for its parent's end.
        os.write(int(order["fd"]), str(os.getpid()).encode() + b"\n")
        time.sleep(1000)
    return_result({"echo": order})


if __name__ == "__main__":
    main()
