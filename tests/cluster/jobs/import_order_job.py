"""Does before its imports what changes them, and prints what they gave; the first attempt fails.

Beside it, in the folder that is given, stands another networkx than the one that is installed.
"""

import json
import os
import sys
from os import environ as env

env["OMP_NUM_THREADS"] = "2"


class Hook:
    """As an import profiler or a licence guard."""

    seen = 0

    def find_spec(self, name: str, *_more: object) -> None:
        """Asked for all modules."""
        if name.partition(".")[0] == "torch":
            Hook.seen += 1


sys.meta_path.insert(0, Hook())
BEFORE = "torch" in sys.modules
import torch  # noqa: E402

sys.path.insert(0, sys.argv[1])
import networkx  # type: ignore[import-untyped]  # noqa: E402

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    print("first", end=" ")
facts = (BEFORE, torch.get_num_threads(), Hook.seen, networkx.__version__)
print("facts", json.dumps(facts), flush=True)
sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
