"""Remembering the tokens of words: a tokenizer's rules often let a text be cut before any tokens.

GPT-2's byte-level rule never lets a token reach over the place where white space follows something
else, and looks back at nothing. So a text may be cut at these places, and, as far as it is ASCII,
exactly as the rule cuts it. Words repeat: each distinct one goes through the library once, and the
text's tokens are their concatenation. The result is the library's own, several times sooner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# White space of the rule's \s (Unicode White_Space), which Python's \s is not.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHUNK = re.compile(f"[{_SPACE}]*[^{_SPACE}]+|[{_SPACE}]+")
_STRADDLES = re.compile(f"[^{_SPACE}][{_SPACE}]")
# GPT-2's own rule, as it is for ASCII.
_ASCII_WORD = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)

MAX_WORDS = 1 << 18
MAX_WORD_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class WordsRule:
    """How texts may be cut.

    Args:
        added: texts that are cut out before the rule is applied; the shortest ones, so that a text
            with none of them has no longer one either.
    """

    added: tuple[str, ...]

    def is_plain(self, text: str) -> bool:
        """Whether the text can be cut into words, not only where white space begins."""
        return text.isascii() and not any(token in text for token in self.added)

    def cut(self, text: str) -> list[str]:
        """The text in pieces that can be encoded one by one."""
        return (_ASCII_WORD if self.is_plain(text) else _CHUNK).findall(text)


def words_rule(tokenizer: dict[str, Any]) -> WordsRule | None:
    """How a tokenizer's texts may be cut without changing a token; None: not at all.

    Args:
        tokenizer: the tokenizer.json of the `tokenizers` library.
    """
    model, before = tokenizer["model"], tokenizer["pre_tokenizer"] or {}
    normalizer, after = tokenizer["normalizer"] or {}, tokenizer["post_processor"] or {}
    is_byte_level = (
        before.get("type") == "ByteLevel"
        and before.get("use_regex", True)
        and not before.get("add_prefix_space", True)
    )
    # NFC changes nothing across such a place: white space composes with nothing before it.
    is_plain = normalizer.get("type") in (None, "NFC") and after.get("type") in (None, "ByteLevel")
    is_exact = model.get("type") == "BPE" and not model.get("dropout")
    added = tokenizer["added_tokens"]
    if not (is_byte_level and is_plain and is_exact and all(map(_stays_within, added))):
        return None
    texts = [token["content"] for token in added]
    return WordsRule(tuple(t for t in texts if not any(o != t and o in t for o in texts)))


def _stays_within(token: dict[str, Any]) -> bool:
    reaches_out = token.get("lstrip") or token.get("rstrip") or token.get("single_word")
    return not reaches_out and not _STRADDLES.search(token["content"])


class MemoisedWords:
    """Encodes texts word by word, and each distinct word once.

    Args:
        rule: how texts may be cut.
        encode: the tokens of each of several words.
    """

    def __init__(self, rule: WordsRule, encode: Callable[[Sequence[str]], list[bytes]]) -> None:
        self._rule = rule
        self._encode = encode
        self._known: dict[str, bytes] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[bytes]:
        """The tokens of each text."""
        known = self._known
        cut = [self._rule.cut(text) for text in texts]
        new: set[str] = set().union(*cut)
        new.difference_update(known)
        # Words of plain texts are cut already.
        self._learn(new, are_words=all(map(self._rule.is_plain, texts)))
        encoded = [b"".join(map(known.__getitem__, words)) for words in cut]
        if len(known) > MAX_WORDS:
            known.clear()
        # Long words hardly ever come again: a line of base64, a sentence of Chinese.
        for word in new:
            if len(word) > MAX_WORD_CHARACTERS:
                known.pop(word, None)
        return encoded

    def _learn(self, new: set[str], *, are_words: bool) -> None:
        known = self._known
        compound: dict[str, list[str]] = {}
        if not are_words:
            # A piece of a text that is not plain may itself be plain, and of several known words.
            compound = {piece: words for piece in new if len(words := self._rule.cut(piece)) > 1}
        single = set().union(new.difference(compound), *compound.values()).difference(known)
        wanted = list(single)
        known.update(zip(wanted, self._encode(wanted), strict=True))
        known.update(
            (piece, b"".join(map(known.__getitem__, words))) for piece, words in compound.items()
        )
