"""A worker of preprocessing, as a process of its own: chunks in at stdin, tokens out at stdout."""

from __future__ import annotations

import json
import os
import signal
import sys

from relkit.data.encode import Encoder
from relkit.data.frames import encoded_parts, error_part, read_frame, to_chunk, write_frame
from relkit.data.tokenizer import TokenizerSpec, load_tokenizer
from relkit.errors import RelkitError


def main() -> None:
    """Serve the parent until it closes the pipe."""
    # Ctrl-C reaches the whole terminal: the parent decides, and ends us by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever a library prints must not get among the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    try:
        settings = json.loads(read_frame(requests)[0])
        tokenizer = load_tokenizer(TokenizerSpec(**settings["tokenizer"]))
        wishes = {name: settings[name] for name in ("is_eod_appended", "is_repaired")}
        encoder = Encoder(tokenizer, settings["keys"], **wishes)
    except RelkitError as error:
        write_frame(answers, b"error", error_part(error))
        return
    write_frame(answers, b"ready", str(tokenizer.vocab_size).encode())
    while True:
        try:
            chunk = to_chunk(read_frame(requests))
        except EOFError:
            return
        try:
            encoded = encoder.encode(chunk)
        except RelkitError as error:
            write_frame(answers, b"error", error_part(error))
        else:
            write_frame(answers, b"encoded", *encoded_parts(encoded))


if __name__ == "__main__":
    main()
