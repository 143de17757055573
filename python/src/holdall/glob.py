"""Patterns of names."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]/]*\]|.", re.S)


def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that reports whether a name matches a pattern.

    ``*`` and ``?`` stand for characters except the slash, ``[a-c]`` and ``[!a-c]`` for one of them. ``**`` as a whole
    part stands for any number of folders, and at the end for everything below.
    """
    return re.compile("".join(map(_piece, _parts(pattern))), re.S).fullmatch


def _parts(pattern: str) -> list[str]:
    """Split a pattern; ``**`` is special only as a whole part."""
    pieces: list[str] = []
    at = 0
    while at < len(pattern):
        starts = at == 0 or pattern[at - 1] == "/"
        if starts and pattern.startswith("**/", at):
            piece = "**/"
        elif starts and pattern[at:] == "**":
            piece = "**"
        elif pattern.startswith("**", at):
            piece = "*"
        else:
            found = _TOKEN.match(pattern, at)
            assert found is not None
            piece = found[0]
            if piece == "/**":
                piece = "/"
        pieces.append(piece)
        at += len(piece)
    return pieces


def _piece(piece: str) -> str:
    match piece:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
    if len(piece) > 2 and piece[0] == "[":
        inside = piece[1:-1]
        no = inside[0] in "!^"
        inside = re.sub(r"([\\\[\]&~|^])", r"\\\1", inside[no:])
        return f"(?!/)[{'^' if no else ''}{inside}]" if inside else re.escape(piece)
    return re.escape(piece)
