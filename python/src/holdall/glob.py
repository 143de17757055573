"""Patterns of names."""

from __future__ import annotations

import re
from collections.abc import Callable

# "**" is special only as a whole part of the name.
_TOKEN = re.compile(r"((?<![^/])\*\*(?:/|\Z))|\*+|\[[!^]?\]?[^\]/]*\]|.", re.S)


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that reports whether a name matches a pattern.

    ``*`` and ``?`` stand for characters except the slash, ``[a-c]`` and ``[!a-c]`` for one of them. ``**`` as a whole
    part stands for any number of folders, and at the end for everything below.
    """
    return re.compile(_TOKEN.sub(_piece, pattern), re.S).fullmatch


def _piece(found: re.Match[str]) -> str:
    piece = found[0]
    if found[1]:
        return ".*" if piece == "**" else "(?:.*/)?"
    if piece[0] in "*?":
        return "[^/]*" if piece[0] == "*" else "[^/]"
    if len(piece) > 2 and piece[0] == "[":
        inside = piece[1:-1]
        no = inside[0] in "!^"
        inside = re.sub(r"([\\\[\]&~|^])", r"\\\1", inside[no:])
        return f"(?!/)[{'^' if no else ''}{inside}]" if inside else re.escape(piece)
    return re.escape(piece)
