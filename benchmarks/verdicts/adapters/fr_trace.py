"""torch's own analyzer of flight-recorder dumps."""

from __future__ import annotations

import io
import logging
import tempfile
from pathlib import Path

from torch.distributed.flight_recorder import fr_trace

from benchmarks.hangs.flight_recorder_peers import first_mismatch
from benchmarks.verdicts.adapters.model import Said
from benchmarks.verdicts.adapters.whole_dumps import dumps_in, members, write


class FrTrace:
    """`python -m torch.distributed.flight_recorder.fr_trace FOLDER`, of torch.

    It is given what makes it answer: copies of the dumps that can be unpickled, with names that it
    reads; with the members of groups filled in where gloo leaves them out (else it ends in a
    KeyError); and --allow-incomplete-ranks where a dump is missing. It prints a list of mismatches:
    the ranks of the first count, missing ones and culprits alike. That it prints none, or cannot
    decide, counts as nobody.
    """

    name = "fr_trace"
    tells_cause = False
    names_ranks = True

    def reads(self, evidence: frozenset[str]) -> bool:
        """Dumps."""
        return "dumps" in evidence

    def judge(self, folder: Path) -> Said:
        """Its answer."""
        dumps = dumps_in(folder)
        text = io.StringIO()
        logging.getLogger("Flight Recorder").addHandler(logging.StreamHandler(text))
        with tempfile.TemporaryDirectory() as copies:
            write(dumps, Path(copies), "rank_")
            known = {rank for dump in dumps.values() for rank in members(dump)}
            options = ["--allow-incomplete-ranks"] if known > set(dumps) else []
            fr_trace.main([copies, *options])
        named, kind = first_mismatch(text.getvalue())
        return Said(tuple(named), "", kind)
