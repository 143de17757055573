"""Reads runs: immutable lists of what a catalogue records of files, sorted by name.

A name takes a page of a run. docs/bytes/catalog.md describes the bytes.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from base64 import b64decode
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple

from .errors import DamagedError, HoldallError, UnsupportedError, UntrustedError
from .jsontext import decode
from .listing import text
from .objects import Object
from .table import KINDS, Cursor, blake3, count, keep

END = b"holdrun1"
MAX_TEXT = 64 << 20  # of what is decompressed
MAX_TAIL = 64 << 20
MAX_PAGE = 64 << 20
MAX_NAME = 64 << 10
MAX_PARTS = 1 << 20  # pages of a node, blocks of a page, rows of a block, archives of a commit
MAX_COMMIT = (1 << 43) - 1
MAX_AHEAD = 1 << 20  # of pages that are read at once
KEPT = 32 << 20  # of pages
KEPT_PARTS = 4096  # blocks of rows and of filters
KEPT_NODES = 64
MAGIC, CRC, FOOTER = 14, 4, 24  # their lengths
FILTER, BITS = 4096, 8 * (4096 - CRC)  # bytes and bits of a block of a filter
DELETED, SEQ, IS_RAW, NEXT, DIGEST, TIME, NANOS, MD5, ETAG, HEADERS, FATE, NEWER = (16 << i for i in range(12))
OTHERS = TIME | NANOS | MD5 | ETAG | HEADERS


class About(NamedTuple):
    """An archive."""

    address: str  # beside the catalogue if it begins with ./
    format: str
    size: int
    version: str


class Row(NamedTuple):
    """A version of a file, or its deletion."""

    name: bytes
    seq: int
    archive: int  # number of the archive; -1 deletes what was there before
    handle: int
    about: About | None = None
    kind: str = ""
    offset: int = -1  # of the content in the archive; -1 if the archive must be asked
    size: int = 0
    algo: str = ""
    sum: bytes = b""


class Ref(NamedTuple):
    """Where a run is."""

    object: str
    off: int
    commit: int  # that has added it
    size: int
    tail: int
    rows: int
    base: int  # of that commit: what its pages have of archives is as it was then
    end: bytes = b""  # its last bytes, if they came with a head or a commit
    sum: str = ""  # BLAKE3 of these, in hex


class Part(NamedTuple):
    """Where a page or a node is."""

    first: bytes
    off: int
    size: int
    again: bool  # whether the name before is also the first one
    number: int  # among all pages, or among all nodes


FIRST = itemgetter(0)


def find(parts: list[Part], name: bytes) -> int:
    """Return the first part that can have a name."""
    i = max(bisect_right(parts, name, key=FIRST) - 1, 0)
    while i > 0 and parts[i].again and parts[i].first == name:
        i -= 1
    return i


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """Convert errors of parsing to errors of this package."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error, zlib.error) as err:
        if isinstance(err, HoldallError):
            raise
        reason = str(err) if type(err) is ValueError else f"its bytes mean nothing: {err!r}"
        raise DamagedError(name, f"{reason}; 'holdall catalog rebuild' makes a new catalogue of the archives") from err


class Page:
    """A page of rows, of which only the tables are parsed."""

    def __init__(self, stored: bytes, commit: int, handle: int) -> None:
        data = unsealed(stored)
        n = int.from_bytes(data[-4:], "little")
        rest = len(data) - 4 - 4 * n
        if not 0 < n <= MAX_PARTS or rest < 0:
            raise ValueError("a page without blocks")
        self.data, self.commit, self.handle = data[:rest], commit, handle
        self.ends = array("Q", [*struct.unpack(f"<{n}I", data[rest:-4]), rest])
        c = Cursor(self.data)
        self.archives: list[tuple[int, About | None]] = []
        for _ in range(below(c.uvar(), rest)):
            of, ordinal = below(c.uvar(), MAX_COMMIT) or commit, below(c.uvar(), MAX_PARTS - 1)
            about = About(text(c.text()), text(c.text()), c.uvar(), text(c.text())) if c.number(1) else None
            self.archives.append((of * MAX_PARTS + ordinal, about))
        self.algos = [(text(c.text()), c.number(1)) for _ in range(below(c.uvar(), rest))]
        self.headers = below(c.uvar(), rest)
        for _ in range(self.headers):
            c.text()
        if c.at != self.ends[0]:
            raise ValueError("a page whose blocks begin elsewhere")

    def find(self, name: bytes) -> int:
        """Return the block from which on a name is looked for."""
        return max(bisect_left(range(len(self.ends) - 1), name, key=self._first) - 1, 0)

    def _first(self, block: int) -> bytes:
        c = Cursor(self.data, self.ends[block])
        c.uvar(), c.uvar()
        return c.text()

    def rows(self, block: int) -> list[Row]:
        """Return the rows of a block."""
        rows: list[Row] = []
        c = Cursor(self.data[: self.ends[block + 1]], self.ends[block])
        if c.at >= len(c.b):
            raise ValueError("a block without rows")
        name, before, end = b"", -1, 0
        while c.at < len(c.b):
            bits = c.uvar()
            if bits >= NEWER:
                raise UnsupportedError("the catalogue", "it has a row of a newer version of holdall")
            name = c.name(name)
            seq = (c.uvar() if bits & SEQ else 0) or self.commit
            handle = (self.handle | block) << 20 | below(len(rows), MAX_PARTS - 1)
            kind = KINDS[bits & 15]
            if len(name) > MAX_NAME:
                raise ValueError(f"a name of {len(name)} bytes")
            if bits & DELETED:
                rows.append(Row(name, seq, -1, handle))
                continue
            if bits & FATE:  # what became of an original, which readers need not know
                c.uvar()
                below(c.number(1), 4)
                continue
            which, size = c.uvar(), c.uvar()
            archive, about = self.archives[which]
            raw = bits & IS_RAW
            offset = (end if bits & NEXT else c.uvar()) if raw else 0
            algo, length = self.algos[c.uvar()] if bits & DIGEST else ("", 0)
            sum_ = c.take(length)
            if bits & OTHERS:
                self._pass(c, bits)
            if offset + size >= 1 << 63 or raw and bits & NEXT and before != which:
                raise ValueError("a content that lies nowhere")
            before, end = which, offset + size
            rows.append(Row(name, seq, archive, handle, about, kind, offset if raw else -1, size, algo, sum_))
        return rows

    def _pass(self, c: Cursor, bits: int) -> None:
        """Pass over parts of a row that readers of contents do not need."""
        if bits & TIME:
            c.uvar()
        if bits & NANOS:
            below(c.uvar(), 999_999_999)
        if bits & MD5:
            c.take(16)
        elif bits & ETAG:
            c.text()
        if bits & HEADERS:
            below(c.uvar(), self.headers - 1)


class Kept:
    """The pages of all runs that were used last."""

    def __init__(self) -> None:
        self.pages: dict[int, Page] = {}
        self.rows: dict[int, list[Row]] = {}
        self._held = 0

    def add(self, page: Page) -> None:
        """Keep a page, and drop the oldest ones."""
        self.pages[page.handle] = page
        self._held += len(page.data)
        while self._held > KEPT and len(self.pages) > 1:
            old = self.pages.pop(next(iter(self.pages)), None)
            self._held -= len(old.data) if old else 0


class Run:
    """A run. Its rows have handles, from which they are found again."""

    def __init__(self, folder: Object, ref: Ref, number: int, kept: Kept, signed: bool) -> None:
        self.name, self._signed = f"{folder.name}/{ref.object}", signed
        self._folder, self._ref, self._number, self._kept = folder, ref, number, kept
        self._obj: Object | None = None
        self._nodes: dict[int, list[Part]] = {}
        self._filters: dict[int, bytes] = {}
        self._sums: dict[int, bytes] = {}
        with parsing(self.name):
            self._open(ref.end or self._read(ref.size - ref.tail, ref.tail))

    def _read(self, off: int, n: int) -> bytes:
        if not 0 <= off <= self._ref.size - n:
            raise ValueError(f"{n} bytes at {off} of {self._ref.size}")
        if self._obj is None:
            self._obj = self._folder.beside("/" + self._ref.object)
        return self._obj.read(self._ref.off + off, n)

    def _compared(self, data: bytes, sum_: bytes) -> bytes:
        if blake3(data) != sum_:
            raise UntrustedError(self.name, "a part of it is not what was signed")
        return data

    def _page(self, data: bytes, number: int) -> bytes:
        """Return a page that is compared with its digest, if the run is signed."""
        if not self._signed:
            return data
        sums = self._root["sums"]
        per = count(sums["per"])
        block, at = divmod(number, per)
        if block not in self._sums:
            start = count(sums["at"]) + 32 * per * block
            stored = self._read(start, max(min(32 * per, self._filter - start), 0))
            keep(self._sums, block, self._compared(stored, b64decode(sums["blocks"][block])), KEPT_NODES)
        return self._compared(data, self._sums[block][32 * at : 32 * at + 32])

    def _open(self, tail: bytes) -> None:
        if self._signed:
            self._compared(tail, bytes.fromhex(self._ref.sum))
        start, length, crc, magic = struct.unpack("<QII8s", tail[-FOOTER:])
        before = self._ref.size - len(tail)
        body = tail[max(start - before, 0) : -FOOTER]
        if magic != END or not before <= start <= self._ref.size - FOOTER or length > len(body) or zlib.crc32(body) != crc:
            raise ValueError("its end is not that of a run")
        root = self._root = decode(body[len(body) - length :])
        self._filter, self._blocks = map(count, root["filter"])
        self._near, self._levels = tail[: start - before], root["levels"]
        after = self._filter + FILTER * self._blocks
        if self._levels not in (1, 2) or root["rows"] != self._ref.rows or self._filter < MAGIC or after > start:
            raise ValueError("its root cannot be")
        if self._near and (self._levels, self._filter, after) != (1, before, start):
            raise ValueError("its filter is not there")
        c = Cursor(body[: len(body) - length])
        index = Cursor(unpacked(c.text()))
        self._top = _parts(index, 0, MAGIC, self._filter) if self._levels == 1 else _parts(index, 0, after, start)
        self._last = index.text()
        if c.at != len(c.b) or index.at != len(index.b):
            raise ValueError("its index has another length")

    def may_have(self, name: bytes, far: bool) -> bool:
        """Return whether it can have a name. Only if far, a part of the filter is read for that."""
        if not self._top or not self._top[0].first <= name <= self._last:
            return False
        if not self._blocks or not self._near and (self._signed or not far):  # a far filter has no digest
            return True
        h = hash_of(name)
        k = h * self._blocks >> 64
        bits = self._filters.get(k)
        if bits is None:
            with parsing(self.name):
                at = FILTER * k
                bits = unsealed(self._near[at : at + FILTER] if self._near else self._read(self._filter + at, FILTER))
            keep(self._filters, k, bits, KEPT_PARTS)
        at, step = (h & 0xFFFFFFFF) % BITS, (h >> 32) % BITS | 1
        return all(bits[bit >> 3] >> (bit & 7) & 1 for bit in ((at + i * step) % BITS for i in range(7)))

    def rows(self, name: bytes) -> Iterator[Row]:
        """Yield the rows from a name on."""
        if not self._top or name > self._last:
            return
        ahead, start = 1, -1
        for node in [0] if self._levels == 1 else range(find(self._top, name), len(self._top)):
            parts = self._node(node)
            k = find(parts, name)
            while k < len(parts):
                pages = self._pages(node, parts, k, ahead)
                for page in pages:
                    with parsing(self.name):
                        start = page.find(name) if start < 0 else 0
                    for block in range(start, len(page.ends) - 1):
                        yield from (row for row in self._rows(page, block) if row.name >= name)
                k, ahead = k + len(pages), min(2 * ahead, 64)

    def row(self, handle: int) -> Row:
        """Return a row by its handle."""
        node, k, block, i = (handle >> shift & MAX_PARTS - 1 for shift in (60, 40, 20, 0))
        return self._rows(self._pages(node, self._node(node), k, 1)[0], block)[i]

    def _rows(self, page: Page, block: int) -> list[Row]:
        key = page.handle | block
        rows = self._kept.rows.get(key)
        if rows is None:
            with parsing(self.name):
                rows = page.rows(block)
            keep(self._kept.rows, key, rows, KEPT_PARTS)
        return rows

    def _node(self, k: int) -> list[Part]:
        node = self._top if self._levels == 1 else self._nodes.get(k)
        if node is None:
            with parsing(self.name):
                part = self._top[k]
                data, first = self._read(part.off, part.size), 0
                if self._signed:
                    self._compared(data, b64decode(self._root["sums"]["nodes"][k]))
                    first = k * count(self._root["sums"]["each"])
                c = Cursor(unpacked(unsealed(data)))
                node = _parts(c, first, MAGIC, self._filter)
                if not node or c.at != len(c.b):
                    raise ValueError(f"its node {k} is none")
            keep(self._nodes, k, node, KEPT_NODES)
        return node

    def _pages(self, node: int, parts: list[Part], k: int, most: int) -> list[Page]:
        """Return some pages from one on, which are read at once."""
        above = (self._number << 20 | node) << 20
        if page := self._kept.pages.get((above | k) << 20):
            return [page]
        n, size = 1, parts[k].size
        while n < most and k + n < len(parts) and size + parts[k + n].size <= MAX_AHEAD:
            size += parts[k + n].size
            n += 1
        pages = []
        with parsing(self.name):
            data = self._read(parts[k].off, size)
            for i, part in enumerate(parts[k : k + n], k):
                at = part.off - parts[k].off
                pages.append(Page(self._page(data[at : at + part.size], part.number), self._ref.commit, (above | i) << 20))
                self._kept.add(pages[-1])
        return pages

    def close(self) -> None:
        """Close the run."""
        if self._obj:
            self._obj.close()


def _parts(c: Cursor, number: int, start: int, end: int) -> list[Part]:
    """Parse where pages or nodes are, all of them in [start, end), from one with a number on."""
    parts: list[Part] = []
    n = below(c.uvar(), min(len(c.b) - c.at, MAX_PARTS))
    off, name = c.uvar() if n else start, b""
    for i in range(n):
        size, first = c.uvar(), c.name(name)
        if off < start or size >> 1 > min(end - off, MAX_PAGE) or first < name or len(first) > MAX_NAME:
            raise ValueError("its index leads elsewhere")
        parts.append(Part(first, off, size >> 1, size & 1 > 0, number + i))
        off, name = off + (size >> 1), first
    return parts


def hash_of(name: bytes) -> int:
    """Return the hash of a name in filters: FNV-1a, mixed once more."""
    h, mask = 14695981039346656037, (1 << 64) - 1
    for byte in name:
        h = (h ^ byte) * 1099511628211 & mask
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & mask
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & mask
    return h ^ h >> 33


def unsealed(stored: bytes) -> bytes:
    """Return bytes that end in their checksum without it."""
    if len(stored) < CRC or zlib.crc32(stored[:-CRC]) != int.from_bytes(stored[-CRC:], "little"):
        raise ValueError("the checksum does not match")
    return stored[:-CRC]


def unpacked(packed: bytes) -> bytes:
    """Return what was compressed, if it is not too long."""
    d = zlib.decompressobj()
    data = d.decompress(packed, MAX_TEXT + 1)
    if not d.eof or len(data) > MAX_TEXT:
        raise ValueError("a compressed text that has no end, or is too long")
    return data


def below(n: int, most: int) -> int:
    """Return a number that is at most so large."""
    if n > most:
        raise ValueError(f"{n}, expected at most {most}")
    return n
