"""The Content-Security-Policy of pages and pictures: only what relkit itself wrote may run.

All text is escaped where it is put in. Should one piece of it ever not be, the browser still runs
no script but the one whose hash the page names, and loads nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence

_OPENING = re.compile(r"^<svg\b[^>]*>", re.MULTILINE)


def policy(*, styles: Sequence[str] = (), scripts: Sequence[str] = ()) -> str:
    """The policy of one document.

    Args:
        styles, scripts: the exact text inside each <style> and each <script> of the document.

    Returns:
        The value for `http-equiv="Content-Security-Policy"`, without double quotes. Style
        attributes are allowed: pages and pictures give lengths and places in them.
    """
    return "; ".join(
        (
            "default-src 'none'",
            # Heatmaps are pictures in the page itself.
            "img-src data:",
            f"script-src {_hashes(scripts)}",
            f"style-src-elem {_hashes(styles)}",
            "style-src-attr 'unsafe-inline'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def picture_block(value: str) -> str:
    """The policy as the first element of an SVG document.

    A browser heeds a <meta> only inside a <head>, and that in any document; programs that draw SVG
    pass over both. HTML must not contain it: there a <head> would end the picture.
    """
    return (
        '<defs><head xmlns="http://www.w3.org/1999/xhtml">'
        f'<meta http-equiv="Content-Security-Policy" content="{value}"/></head></defs>\n'
    )


def add_to_picture(svg: str) -> str:
    """A foreign SVG document without styles and scripts, such as Graphviz's, with a policy."""
    return _OPENING.sub(lambda match: f"{match[0]}\n{picture_block(policy())}", svg, count=1)


def _hashes(texts: Sequence[str]) -> str:
    # A browser hashes an element's text after the parser has made every line end "\n".
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or (
        "'none'"
    )
