"""Stands in for kubectl in tests: a list of pods from a file, and exec as a child of ours.

It knows what relkit uses of kubectl and refuses everything else; it is no Kubernetes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

words = sys.argv[1:]
with Path(os.environ["STANDIN_LOG"]).open("a", encoding="utf-8") as log:
    log.write(" ".join(words) + "\n")
if words[:2] == ["get", "pods"]:
    if "-l" in words and words[-4:] != ["-l", "app=trainer", "-o", "json"]:
        print('{"items": []}')
        sys.exit(0)
    print(Path(os.environ["STANDIN_PODS"]).read_text(encoding="utf-8"))
    sys.exit(0)
if words[:2] == ["exec", "-i"] and "--" in words:
    cut = words.index("--")
    pod, command = words[cut - 1], words[cut + 1 :]
    if pod == "trainer-lost":
        print('Error from server (NotFound): pods "trainer-lost" not found', file=sys.stderr)
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606
print(f"error: unknown command {words}", file=sys.stderr)
sys.exit(1)
