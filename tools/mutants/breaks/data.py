"""Breaks of token data sets: written whole, read with every entry checked, sampled as Megatron."""

from __future__ import annotations

from tools.mutants.model import Break

_WRITTEN = ("tests/unit/data/test_indexed.py",)
_HOSTILE = ("tests/unit/data/test_indexed_hostile.py",)
_TOOLS = ("tests/unit/data/test_indexed_tools.py",)
_INDEX = ("tests/trainer/data/test_sample_index.py",)
_SAMPLES = ("tests/trainer/data/test_samples.py",)
_TEXTS = ("tests/preprocess/test_preprocess.py",)
_WORDS = ("tests/preprocess/test_preprocess_tokenizer.py",)

BREAKS = (
    # A .bin that is one byte short passes.
    Break(
        "relkit/data/index_file.py",
        "lengths * index.dtype.itemsize > bin_size_bytes\n",
        "lengths * index.dtype.itemsize > bin_size_bytes + 1\n",
        _HOSTILE,
    ),
    Break(
        "relkit/data/index_file.py",
        "lengths * index.dtype.itemsize > bin_size_bytes\n",
        "lengths > bin_size_bytes\n",
        _HOSTILE,
    ),
    Break("relkit/data/index_file.py", "(lengths < 0) | (starts < 0)", "(starts < 0)", _HOSTILE),
    Break("relkit/data/index_file.py", "(lengths < 0) | (starts < 0)", "(lengths < 0)", _HOSTILE),
    Break("relkit/data/index_file.py", " or bounds[0] != 0 or", " or", _HOSTILE),
    Break("relkit/data/index_file.py", " or bounds[-1] != sequences:", ":", _HOSTILE),
    Break(
        "relkit/data/index_file.py",
        "np.diff(bounds[piece.start : piece.stop + 1]) < 0",
        "np.diff(bounds[piece.start : piece.stop]) < 0",
        _HOSTILE,
    ),
    Break("relkit/data/index_file.py", "    if size < whole:\n", "    if False:\n", _HOSTILE),
    Break(
        "relkit/data/index_file.py",
        "    if size not in (whole, whole + sequences):\n",
        "    if size < whole:\n",
        _HOSTILE,
    ),
    Break(
        "relkit/data/index_file.py",
        "    if version != VERSION:\n",
        "    if version < VERSION:\n",
        _HOSTILE,
    ),
    Break("relkit/data/index_file.py", "vocab_size < 65500", "vocab_size < 65536", _WRITTEN),
    Break(
        "relkit/data/indexed.py",
        "if offset < 0 or count < 0 or offset + count > whole:",
        "if offset < 0 or count < 0:",
        _WRITTEN,
    ),
    Break("relkit/data/indexed.py", "if offset < 0 or count < 0 or", "if count < 0 or", _WRITTEN),
    Break(
        "relkit/data/indexed.py",
        "if not 0 <= number < len(self):",
        "if number >= len(self):",
        _WRITTEN,
    ),
    Break(
        "relkit/data/indexed.py",
        "+ offset * self.dtype.itemsize\n",
        "+ offset\n",
        _WRITTEN,
    ),
    # The pair: half of it under its name, or an old index beside new tokens.
    Break(
        "relkit/data/indexed_writer.py",
        "            self.finish()\n        else:\n            self.abandon()\n",
        "            self.finish()\n",
        _WRITTEN,
    ),
    Break(
        "relkit/data/indexed_writer.py",
        "            idx_path.unlink(missing_ok=True)\n",
        "",
        _WRITTEN,
    ),
    Break(
        "relkit/data/indexed_writer.py",
        "            self._temporary[0].replace(bin_path)\n"
        "            self._temporary[1].replace(idx_path)\n",
        "            self._temporary[1].replace(idx_path)\n"
        "            self._temporary[0].replace(bin_path)\n",
        _WRITTEN,
    ),
    Break("relkit/data/indexed_writer.py", "    os.fsync(stream.fileno())\n", "", _WRITTEN),
    Break(
        "relkit/data/indexed_writer.py",
        "                os.fsync(folder)\n",
        "                pass\n",
        _WRITTEN,
    ),
    Break(
        "relkit/data/indexed_writer.py", "        offsets *= self.dtype.itemsize\n", "", _WRITTEN
    ),
    Break(
        "relkit/data/indexed_writer.py",
        "        if len(data) != tokens * self.dtype.itemsize:\n",
        "        if False:\n",
        _WRITTEN,
    ),
    Break(
        "relkit/data/indexed_writer.py",
        "        if self._bounds[-1] != len(self._lengths):\n            self.end_document()\n",
        "",
        _WRITTEN,
    ),
    Break("relkit/data/merge.py", "    if output in prefixes:\n", "    if False:\n", _TOOLS),
    Break(
        "relkit/data/merge.py",
        "        if data_set.dtype != first.dtype:\n",
        "        if False:\n",
        _TOOLS,
    ),
    Break("relkit/data/merge.py", "            if is_packed\n", "            if True\n", _TOOLS),
    Break("relkit/data/verify.py", "largest >= vocab_size", "largest > vocab_size", _TOOLS),
    Break("relkit/data/verify.py", "    if smallest < 0:\n", "    if smallest < -1:\n", _TOOLS),
    Break(
        "relkit/data/verify.py",
        "    full = np.flatnonzero(np.diff(bounds))\n",
        "    full = range(len(bounds) - 1)\n",
        _TOOLS,
    ),
    Break(
        "relkit/data/documents.py",
        '        if not data.endswith(b"\\n"):\n            data += stream.readline()\n',
        "",
        _TEXTS,
    ),
    Break(
        "relkit/data/documents.py",
        'removeprefix(b"\\xef\\xbb\\xbf") if at == 0',
        'removeprefix(b"") if at == 0',
        _TEXTS,
    ),
    Break(
        "relkit/data/encode.py",
        "            if kept and self._eod:\n",
        "            if self._eod and count:\n",
        _TEXTS,
    ),
    Break(
        "relkit/data/encode.py",
        "                kept[-1] += self._eod\n",
        "                kept[0] += self._eod\n",
        _TEXTS,
    ),
    Break(
        "relkit/data/encode.py",
        " for encoded in tokens[at : at + count] if encoded]",
        " for encoded in tokens[at : at + count]]",
        _TEXTS,
    ),
    # The order of samples.
    Break(
        "relkit/trainer/data/sample_index.py",
        "_SEPARATE_BELOW = 0.80",
        "_SEPARATE_BELOW = 0.81",
        _INDEX,
    ),
    Break(
        "relkit/trainer/data/sample_index.py",
        "num_samples - before_final < int(",
        "num_samples - before_final <= int(",
        _INDEX,
    ),
    Break(
        "relkit/trainer/data/sample_index.py",
        "num_samples * seq_length + 1)",
        "num_samples * seq_length)",
        _INDEX,
    ),
    Break("relkit/trainer/data/sample_index.py", 'side="right"', 'side="left"', _INDEX),
    Break("relkit/trainer/data/sample_index.py", "    rows[0] = 0  #", "    #", _INDEX),
    Break(
        "relkit/trainer/data/sample_index.py",
        "        random.shuffle(shuffle[passes.before_final :])\n",
        "",
        _INDEX,
    ),
)
