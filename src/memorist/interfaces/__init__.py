"""The interfaces: command line, REST, MCP and web page. They parse, call one verb, and render."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"  # parts of emoji and of Indic scripts


def plain(text: str) -> str:
    """Return a text on one line, without control characters that a terminal would obey.

    >>> plain("tea\\n\\x1b[31mand\\u202e milk")
    'tea [31mand milk'
    """
    line = " ".join(text.split())
    return "".join(
        c for c in line if c in _JOINERS or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    )
