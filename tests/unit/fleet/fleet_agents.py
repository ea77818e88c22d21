"""An agent that misbehaves as its node's name says: `python fleet_agents.py agent --name=NAME`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from relkit.fleet.wire import MAX_LINE_BYTES, PROTOCOL

NAME = sys.argv[-1].removeprefix("--name=")
KIND = NAME.split("-")[0]


def say(**fields: object) -> None:
    """One line."""
    print(json.dumps({"node": NAME, **fields}), flush=True)


def hello(protocol: int = PROTOCOL) -> None:
    """The first line."""
    say(op="hello", protocol=protocol, version="9.9", hostname="h", pid=os.getpid(), machine="m")


def before_hello() -> None:
    """What goes wrong on the way up."""
    if KIND == "silent":
        sys.stdin.read()
        sys.exit(0)
    if KIND == "dead":
        print("Traceback\nOSError: no space left on device", file=sys.stderr, flush=True)
        sys.exit(3)
    if KIND == "missing":
        sys.exit(127)
    if KIND == "noisy":
        print("Welcome to this host!\n\nLast login: never", flush=True)
    if KIND == "grumbling":
        print("rehash: the lock is taken", file=sys.stderr, flush=True)
    if KIND == "banner":
        print("This account is \x1b[31mclosed", flush=True)
        sys.exit(0)
    if KIND == "chatter":
        for _ in range(500):
            print("blah", flush=True)


def after_hello() -> None:
    """What goes wrong once all is well."""
    if KIND == "garbage":
        sys.stdin.readline()
        print("\x1b]0;owned\x07 not json", flush=True)
    elif KIND == "impostor":
        sys.stdin.readline()
        print(json.dumps({"node": "good-1", "op": "edge"}), flush=True)
    elif KIND == "endless":
        sys.stdin.readline()
        for _ in range(MAX_LINE_BYTES // 65536 + 2):
            sys.stdout.write("x" * 65536)
        sys.stdout.flush()
    elif KIND in ("dying", "grumbling"):
        for line in sys.stdin:
            if json.loads(line)["op"] != "ping":
                say(op="half", id=1)
                os.kill(os.getpid(), signal.SIGKILL)
    elif KIND == "deaf":
        time.sleep(60)
    elif KIND == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    for line in sys.stdin:
        message = json.loads(line)
        if message["op"] == "ping":
            say(op="pong", id=message["id"], unix_s=time.time() + (3600 if KIND == "skewed" else 0))
        elif message["op"] != "alive":
            say(op="echo", id=message.get("id"), seen=sorted(message), to=message.get("to"))


before_hello()
hello(7 if KIND == "old" else PROTOCOL)
after_hello()
