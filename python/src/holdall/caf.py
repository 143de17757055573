"""Reads CAF archives by their own index: contents, then a JSON index, then its length in four bytes.

    "NAME": {"start_byte": S, "end_byte": E, "blake3": "…"}

docs/caf.md says what is accepted, and when an end is a file's last byte.
"""

from __future__ import annotations

import re
from typing import Any

from .digests import check_index, digest_of
from .errors import DamagedError, UnsupportedError
from .jsontext import MAX_DEPTH, decode, too_deep, without_trailing_commas
from .listing import RAW, Extent, File, Listing
from .objects import Object

FOOTER = 4
PROBE = 64 << 10
MAX_INDEX = 1 << 30

Span = tuple[int, int]


def index_at(tail: bytes, size: int) -> Span | None:
    """Return the offset and length of the index, from the end of the archive; None if it is not a CAF."""
    if size < FOOTER:
        return None
    length = int.from_bytes(tail[-FOOTER:], "little")
    if not 0 < length <= size - FOOTER:
        return None
    return size - FOOTER - length, length


def is_one(tail: bytes, size: int) -> bool:
    """Return whether an object that ends like this looks like a CAF."""
    where = index_at(tail, size)
    if where is None:
        return False
    text = tail[-min(len(tail), where[1] + FOOTER) : -FOOTER].strip(b" \t\r\n")
    return text.endswith(b"}") and (where[1] + FOOTER > len(tail) or text.startswith(b"{"))


def read(obj: Object, tail: bytes, verify: bool | None) -> Listing:
    """Return the files of an archive. tail is the end of it, which has been read already."""
    where = index_at(tail, obj.size)
    if where is None:
        raise DamagedError(obj.name, "it does not end as a CAF does: its last 4 bytes say how long its index is")
    offset, length = where
    if length > MAX_INDEX:
        raise UnsupportedError(obj.name, f"its index has {length} bytes, over the limit of {MAX_INDEX}")
    text = tail[-length - FOOTER : -FOOTER] if length + FOOTER <= len(tail) else obj.read(offset, length)
    return parse(obj.name, text, offset, verify)


def parse(archive: str, text: bytes, data_len: int, verify: bool | None = None) -> Listing:
    """Return the files in the text of an index that follows data_len bytes of contents."""
    top, loose = _parse(archive, text)
    if top.get("index_digest") == "blake3" or "index_blake3" in top:
        check_index(archive, "its index", text[: max(text.rfind(b'"index_blake3"'), 0)], str(top.get("index_blake3")), verify)
    rows: dict[bytes, Span | str] = {}
    digests: dict[bytes, bytes] = {}
    for name, row in top["files"].items():
        key = name.encode("utf-8", "surrogateescape")
        rows[key] = _span(archive, name, row)
        if type(row) is dict:
            digests[key] = digest_of(row.get("blake3"))
    inclusive = _inclusive([r for r in rows.values() if isinstance(r, tuple)], data_len, loose)
    files: dict[bytes, File] = {}
    for key, span in rows.items():
        fault = span if isinstance(span, str) else _fault(*span, inclusive, data_len)
        if fault or isinstance(span, str):
            files[key] = File(0, fault=fault)
            continue
        size = span[1] - span[0] + bool(inclusive)
        files[key] = File(size, (Extent(0, size, 0, span[0], size, 0, RAW),) if size else (), digests.get(key, b""))
    return Listing(archive, files, "blake3")


def _parse(archive: str, text: bytes) -> tuple[dict[str, Any], bool]:
    """Return the top level of an index, and whether it has trailing commas."""
    loose = False
    try:
        try:
            top = decode(text, merge="files")
        except ValueError:
            strict = without_trailing_commas(text)
            if not (loose := strict != text):
                raise
            top = decode(strict, merge="files")
    except ValueError as err:
        raise DamagedError(archive, f"its index is no JSON: {err}") from err
    if type(top) is not dict or type(top.get("files")) is not dict:
        raise DamagedError(archive, 'its index has no "files"')
    if any(too_deep(v, MAX_DEPTH - 1) for k, v in top.items() if k != "files"):
        raise DamagedError(archive, f"its index has more than {MAX_DEPTH} levels")
    version = top.get("format_version")
    if type(version) is not str or not re.fullmatch(r"1\.[0-9]+", version):
        raise UnsupportedError(archive, f"format_version {version!r} is not 1.x")
    return top, loose


def _span(archive: str, name: str, row: Any) -> Span | str:
    """Return the place of a file from its row, or why the row has none."""
    if type(row) is not dict:
        return "an offset is not a plain integer"
    if len(row) > 2 and any(too_deep(v, MAX_DEPTH - 3) for v in row.values() if type(v) in (dict, list)):
        raise DamagedError(archive, f"its index has more than {MAX_DEPTH} levels")
    start, end = row.get("start_byte", ""), row.get("end_byte", "")
    if type(start) is int and type(end) is int:
        if -(1 << 63) <= start < 1 << 63 and -(1 << 63) <= end < 1 << 63:
            return start, end
        return "an offset is beyond what 63 bits hold"
    for key, v in (("start_byte", start), ("end_byte", end)):
        if key in row and type(v) is str:
            raise DamagedError(archive, "its index has an offset that is not a number", name)
        if key not in row:
            return f"there is no {key}"
    return "an offset is not a plain integer"


def _inclusive(spans: list[Span], data_len: int, loose: bool) -> bool | None:
    """Return whether ends are the last bytes of files; None if that cannot be determined. docs/caf.md has the rule."""
    inside = [s for s in spans if s[0] >= 0 and s[0] - 1 <= s[1] <= data_len]
    if not inside or max(end for _, end in inside) != data_len - 1:
        return False
    at = 0
    for start, end in sorted(inside):
        if start != at:
            return None
        at = end + 1
    full = sum(end >= start for start, end in inside)
    return True if at == data_len and (full != 1 or loose) else None


def _fault(start: int, end: int, inclusive: bool | None, data_len: int) -> str:
    """Return why a file cannot be read, or ""."""
    if inclusive is None:
        return f"end_byte {end} may be meant inclusive or exclusive"
    end += inclusive
    if start < 0 or end < start:
        return f"bytes {start} to {end} are no range"
    if end > data_len:
        return f"bytes {start} to {end}, but the data ends at {data_len}"
    return ""
