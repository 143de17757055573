"""JSON as in archives: strict, with the exceptions of each function."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 256

# An escaped half of a surrogate pair means U+FFFD; a whole pair stays. Other escapes are skipped.
_ESCAPES = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.", re.S)
_LOOSE = re.compile(rb'"(?:[^"\\]|\\.)*"|,(?=[ \t\r\n]*[}\]])', re.S)


def decode(text: bytes, *, nan: bool = False, merge: str = "") -> Any:
    """Return the value of a text. Bytes that are not UTF-8 become surrogates, as in names.

    With nan, NaN and Infinity are values, as in Python's json. Objects that occur several times under the key merge are
    merged into one. Raises ValueError if the text is not JSON.
    """
    if b"\\ud" in text or b"\\uD" in text:
        text = _ESCAPES.sub(lambda m: b"\\ufffd" if len(m[0]) == 6 else m[0], text)
    hook = _merging(merge) if merge and text.count(b'"' + merge.encode() + b'"') > 1 else None
    options: dict[str, Any] = {"object_pairs_hook": hook} if nan else {"object_pairs_hook": hook, "parse_constant": _no_constant}
    decoded = text.decode("utf-8", "surrogateescape")
    try:
        try:
            return json.loads(decoded, **options)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer of thousands of digits
            return json.loads(decoded, parse_int=_huge, **options)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} levels deep") from None


def without_trailing_commas(text: bytes) -> bytes:
    """Return the text without commas before closing brackets."""
    return _LOOSE.sub(lambda m: b"" if m[0] == b"," else m[0], text)


def too_deep(value: Any, levels: int) -> bool:
    """Return whether a value has more levels than that."""
    now = [value]
    while now and levels >= 0:
        now = [v for x in now if isinstance(x, dict | list) for v in (x.values() if isinstance(x, dict) else x)]
        levels -= 1
    return bool(now)


def _no_constant(word: str) -> Any:
    raise json.JSONDecodeError(f"{word} is no value", word, 0)


def _huge(digits: str) -> int:
    return int(digits) if len(digits) < 24 else (-1 if digits[0] == "-" else 1) << 64


def _merging(key: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            both = [v for k, v in pairs if k == key]
            if len(both) > 1 and all(isinstance(v, dict) for v in both):
                made[key] = {k: v for one in both for k, v in one.items()}
        return made

    return hook
