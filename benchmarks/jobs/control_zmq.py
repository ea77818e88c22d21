"""A leader, or many clients of it, over ZeroMQ with CURVE; see launches/control_plane.py."""

from __future__ import annotations

import sys
import time

from benchmarks.jobs.control_role import BEAT_MS, QUIET_S, Role, ask_for, cpu_s, memory_mb

IMPORT_MB, IMPORT_S = memory_mb(), time.perf_counter()
import zmq  # noqa: E402
from zmq.utils.monitor import recv_monitor_message  # noqa: E402

IMPORT_S, IMPORT_MB = time.perf_counter() - IMPORT_S, memory_mb() - IMPORT_MB
# Both ends may know this: it is a benchmark.
SERVER = (b"Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", b"D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs")


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 8000)
    return context


def _heartbeat(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.HEARTBEAT_IVL, BEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * BEAT_MS)


def lead(role: Role) -> None:
    """Answer the driver until it closes the pipe."""
    socket = _context().socket(zmq.ROUTER)
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = SERVER
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    _heartbeat(socket)
    events = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    role.tell(port=port, import_s=IMPORT_S, import_mb=IMPORT_MB)
    peer = b""
    for word, number in role.orders():
        begun_s, begun_cpu_s, count = time.perf_counter(), cpu_s(), 0
        if word == "receive":
            role.tell(ready=1)
            while count < number and socket.poll(int(QUIET_S * 1000)):
                peer, _ = socket.recv_multipart()
                count += 1
        elif word == "disconnected":
            role.tell(ready=1)
            recv_monitor_message(events)
        elif word == "flood":
            try:
                while count < number:
                    socket.send_multipart((peer, bytes(200)), zmq.NOBLOCK)
                    count += 1
            except zmq.Again:
                pass
        wall_s = time.perf_counter() - begun_s
        role.tell(wall_s=wall_s, cpu_s=cpu_s() - begun_cpu_s, memory_mb=memory_mb(), count=count)


def connect(role: Role, port: int, count: int) -> None:
    """Make the connections, and send on all of them whenever the driver says so."""
    context, sockets = _context(), []
    for _ in range(count):
        socket = context.socket(zmq.DEALER)
        socket.curve_serverkey = SERVER[0]
        socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        _heartbeat(socket)
        socket.connect(f"tcp://127.0.0.1:{port}")
        sockets.append(socket)
    role.tell(connecting=count)
    for _ in role.orders():
        for socket in sockets:
            socket.send(bytes(200))
        role.tell(sent=count)


if __name__ == "__main__":
    ask_for(sys.argv, lead, connect)
