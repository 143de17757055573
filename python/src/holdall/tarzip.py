"""Reads plain tar and zip archives that have no index.

Only what nobody reads in two ways is read here. For anything unusual, such as sparse files, split or encrypted archives,
damage, and names in odd character sets, `holdall index` makes an index.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NoReturn

from .errors import DamagedError, UnsupportedError
from .listing import RAW, Extent, File, Listing, is_path, text
from .objects import Object

BLOCK = 512
NEAR, FAR = 64 << 10, 1 << 20  # bytes of headers that are read at once
MAX_TEXT = 1 << 20  # of a header of headers
MAX_DIRECTORY = 1 << 30
FILES, OTHERS = b"0\x007", b"123456"  # types of members; of others, hard links have content, but not here
END, END64, LOCATOR, ROW, HEADER = b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4"
STORED, DEFLATED = 0, 8
CODECS = ["deflate"]


def is_tar(head: bytes) -> bool:
    """Return whether an archive begins as a tar does."""
    return len(head) >= BLOCK and head[257:262] == b"ustar" and _sum(head[:BLOCK]) is not None


def is_zip(tail: bytes) -> bool:
    """Return whether an archive ends as a zip without a comment does."""
    return tail[-22:-18] == END and tail[-2:] == b"\0\0"


class _Window:
    """Reads an object front to back, some at a time."""

    def __init__(self, obj: Object) -> None:
        self._obj, self._at, self._data = obj, 0, b""

    def read(self, at: int, n: int) -> bytes:
        """Return n bytes; fewer at the end."""
        start = at - self._at
        if not 0 <= start <= start + n <= len(self._data):
            most = max(n, NEAR if self._obj.near else FAR)
            self._at, self._data = at, self._obj.read(at, max(0, min(most, self._obj.size - at)))
            start = 0
        return self._data[start : start + n]


def read_tar(obj: Object) -> Listing:
    """Return the files of a tar."""
    files: dict[bytes, File] = {}
    for name, at, size in _members(obj):
        if not _is_new(name, files):
            _unusual(obj, f"the name {text(name)!r} is there twice, or none")
        files[name] = File(size, (Extent(0, size, 0, at, size, 0, RAW),) if size else ())
    return Listing(obj.name, files, "")


def _members(obj: Object) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, offset and size of each file of a tar."""
    window, at = _Window(obj), 0
    given: dict[bytes, bytes] = {}  # what headers before a header say of it
    while True:
        b = window.read(at, BLOCK)
        if len(b) == BLOCK and not any(b) and not any(window.read(at + BLOCK, BLOCK)) and not given:
            return
        if len(b) < BLOCK or _sum(b) is None or b[257:262] != b"ustar":
            _unusual(obj, f"there is no header at {at}")
        kind, size = b[156:157], _number(b[124:136])
        if size is None:
            _unusual(obj, f"the header at {at} has no size")
        at += BLOCK
        if kind in (b"x", b"L"):
            if size > MAX_TEXT:
                _unusual(obj, f"a header of {size} bytes at {at}")
            data = window.read(at, size)
            if kind == b"L":
                given[b"path"] = data.rstrip(b"\0")
            elif not _records(data, given):
                _unusual(obj, f"records at {at}")
        else:
            if kind not in OTHERS and kind not in FILES:
                _unusual(obj, f"a member of type {text(kind)!r} at {at}")
            name = given.get(b"path") or _name(b)
            if b"size" in given:
                size = int(given[b"size"])
            if kind in OTHERS:
                size = 0
            if size > obj.size - at:
                _unusual(obj, f"{text(name)!r} ends after the archive")
            if kind in FILES:
                yield _plain(obj, name), at, size
            given = {}
        at += -(-size // BLOCK) * BLOCK


def _plain(obj: Object, name: bytes) -> bytes:
    while name.startswith(b"./"):
        name = name[2:]
    if name and not _is_text(name):
        _unusual(obj, f"the name {text(name)!r} is not UTF-8")
    return name


def _is_new(name: bytes, files: dict[bytes, File]) -> bool:
    return name not in files and is_path(name) and name != b"."


def _sum(b: bytes) -> int | None:
    """Return the checksum of a header, or None if it is wrong."""
    said = _number(b[148:156])
    return said if said == sum(b) - sum(b[148:156]) + 256 else None


def _number(b: bytes) -> int | None:
    if b[0] == 0x80:
        n = int.from_bytes(b[1:], "big")
        return n if n < 1 << 62 else None
    digits = b.rstrip(b" \0").lstrip(b" ")
    return int(digits, 8) if digits and digits.isdigit() and not set(digits) & set(b"89") else None


def _name(b: bytes) -> bytes:
    name, prefix = b[:100].partition(b"\0")[0], b[345:500].partition(b"\0")[0]
    return prefix + b"/" + name if prefix and b[257:263] == b"ustar\0" else name


def _records(data: bytes, given: dict[bytes, bytes]) -> bool:
    """Add the records of a pax header that matter. Return False if there is something unusual."""
    at = 0
    while at < len(data):
        length, space, _ = data[at : at + 20].partition(b" ")
        if not space or not length.isdigit() or int(length) <= len(length) + 2 or data[at + int(length) - 1 : at + int(length)] != b"\n":
            return False
        key, found, value = data[at + len(length) + 1 : at + int(length) - 1].partition(b"=")
        if not found or key.startswith(b"GNU.sparse") or key == b"hdrcharset" or key == b"size" and not value.isdigit() or b"\0" in value and key == b"path":
            return False
        if key in (b"path", b"size"):
            given[key] = value
        at += int(length)
    return True


class Zip(Listing):
    """The files of a zip. Where a content begins is in the header before it, which is read when the content is."""

    def __init__(self, obj: Object, files: dict[bytes, File], headers: dict[bytes, tuple[int, int, int]]) -> None:
        super().__init__(obj.name, files, "crc32")
        self._obj, self._headers = obj, headers
        self._places: dict[int, list[Extent]] = {}

    def extents(self, row: int) -> list[Extent]:
        found = self._places.get(row)
        if found is None:
            name, size = self._names[row], self.size(row)
            at, stored, method = self._headers[name]
            head = self._obj.read(at, 30 + len(name))
            if head[:4] != HEADER or head[30:] != name or struct.unpack_from("<H", head, 8)[0] != method:
                raise DamagedError(self.archive, f"the header at {at} is another one", text(name))
            begin = at + 30 + sum(struct.unpack_from("<HH", head, 26))
            if begin + stored > self._obj.size:
                raise DamagedError(self.archive, f"{stored} bytes at {begin}, where the archive ends", text(name))
            codec = RAW if method == STORED else 0
            found = self._places[row] = [Extent(0, size, 0, begin, stored, 0, codec)] if size else []
        return found


def read_zip(obj: Object, tail: bytes) -> Zip:
    """Return the files of a zip that has no comment."""
    disk, at_disk, here, rows, length, offset = struct.unpack("<HHHHII", tail[-18:-2])
    end = obj.size - 22
    if LOCATOR == tail[-42:-38]:
        end = struct.unpack_from("<Q", tail, len(tail) - 34)[0]
        if end > obj.size - 98 or (b := obj.read(end, 56))[:4] != END64:
            _unusual(obj, "its end is none")
        disk, at_disk, here, rows, length, offset = struct.unpack("<IIQQQQ", b[16:])
    if disk or at_disk or here != rows or length > MAX_DIRECTORY or offset + length != end or rows > length // 46:
        _unusual(obj, f"a directory of {rows} files at {offset}")
    data = obj.read(offset, length)
    files: dict[bytes, File] = {}
    headers: dict[bytes, tuple[int, int, int]] = {}
    at = 0
    for _ in range(rows):
        if data[at : at + 4] != ROW or at + 46 > length:
            _unusual(obj, f"there is no row at {offset + at}")
        flags, method, crc, stored, size, n, more, said, part, place = struct.unpack_from("<HH4xIIIHHHH6xI", data, at + 8)
        name = data[at + 46 : at + 46 + n]
        extra = data[at + 46 + n : at + 46 + n + more]
        made, mode = data[at + 5], int.from_bytes(data[at + 40 : at + 42], "little")
        at += 46 + n + more + said
        size, stored, place = _wide(obj, extra, size, stored, place)
        if name.endswith(b"/") and not size:
            continue
        if made == 3 and mode & 0xF000 not in (0, 0x8000):
            continue  # a link
        unusual = flags & 0x2041 or method not in (STORED, DEFLATED) or part or method == STORED and size != stored or place > offset
        if unusual or at > length or b"\\" in name or not _is_new(name, files) or not (name.isascii() or flags & 0x800 and _is_text(name)):
            _unusual(obj, f"{text(name)!r}")
        files[name] = File(size, (), crc.to_bytes(4, "big"))
        headers[name] = (place, stored, method)
    if at != length:
        _unusual(obj, f"its directory has {length - at} bytes more")
    return Zip(obj, files, headers)


def _wide(obj: Object, extra: bytes, *numbers: int) -> list[int]:
    """Return numbers of a row, of which those that are too large are in its extra field."""
    wanted = [i for i, n in enumerate(numbers) if n == 0xFFFFFFFF]
    found, at = list(numbers), 0
    while wanted and at + 4 <= len(extra):
        kind, n = struct.unpack_from("<HH", extra, at)
        if kind == 1 and 8 * len(wanted) <= n and at + 4 + n <= len(extra):
            for i, value in zip(wanted, struct.unpack_from(f"<{len(wanted)}Q", extra, at + 4), strict=True):
                found[i] = value
            return found
        at += 4 + n
    if wanted:
        _unusual(obj, "a size that is not there")
    return found


def _is_text(name: bytes) -> bool:
    try:
        return bool(name.decode())
    except UnicodeDecodeError:
        return False


def _unusual(obj: Object, what: str) -> NoReturn:
    raise UnsupportedError(obj.name, f"{what}: it needs an index, which `holdall index` makes")
