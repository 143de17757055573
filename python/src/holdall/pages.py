"""The digests of an index, which are in its pages.

A page has up to 1,024 rows, each told apart from the one before, and is compressed by zstd; nodes lead to pages by the
numbers of their rows. docs/index.md has the bytes. Of a page that was decoded only its digests are kept.
"""

from __future__ import annotations

import io
import json
from array import array
from typing import NamedTuple

from . import codecs
from .digests import crc32c
from .errors import DamagedError
from .listing import Proof
from .objects import Object

MAX_PAGE = 16 << 20
PAGE_ROWS = 1024
MAX_KEPT = 256 << 20  # bytes of digests
DIGEST = 32

_FILE, _DIR, _PROPERTY = 0, 1, 5
_NEW_DIR, _KIND, _ONE_RUN, _IMPLIED, _RARE, _ASK = 0x07, 0x07, 0x08, 0x10, 0x40, 0x80


class _Ref(NamedTuple):
    """Where a page or a node is."""

    first: int  # the number of its first item
    items: int
    offset: int
    stored: int
    length: int
    crc: int


class _Proofs:
    """What the rows of a page are compared with, in little memory: rows mostly have digests of one kind."""

    def __init__(self) -> None:
        self._kinds: list[tuple[str, int]] = []
        self._kind = bytearray()  # of each row; 255 if it has no digest
        self._sums = bytearray()
        self._at = array("I")  # where each begins
        self._first = array("q")  # with pieces, the number of the first; -1 if there is none

    def add(self, kind: tuple[str, int] | None, digest: bytes, first: int) -> None:
        """Add a row."""
        number = 255
        if kind is not None:
            if kind not in self._kinds:
                self._kinds.append(kind)
            number = min(self._kinds.index(kind), 255)
        self._kind.append(number)
        self._at.append(len(self._sums))
        self._sums += digest
        self._first.append(first)

    def digest(self, i: int) -> Proof | None:
        """The digest of a row."""
        if self._kind[i] == 255:
            return None
        algo, length = self._kinds[self._kind[i]]
        return Proof(algo, bytes(self._sums[self._at[i] : self._at[i] + length]))

    def first(self, i: int) -> int:
        """The number of the first digest of a row's pieces."""
        return self._first[i]


class Pages:
    """The digests of an index's rows, and of their pieces."""

    def __init__(self, obj: Object, rows: int, chunk: int) -> None:
        self._obj = obj
        self._rows = rows
        self._chunk = chunk
        self._trees: dict[str, tuple[int, _Ref]] = {}
        self._nodes: dict[int, list[_Ref]] = {}
        self._proofs: dict[int, _Proofs] = {}  # by the first row of a page
        self._sums: dict[int, bytes] = {}  # of pieces, by the number of the first in a page

    def proof(self, row: int, size: int) -> Proof | None:
        """What the content of a row is compared with."""
        ref = self._leaf("rows", row)
        if ref.items > PAGE_ROWS:
            raise self._bad(ref.offset, f"a page of {ref.items} rows")
        page = self._proofs.get(ref.first)
        if page is None:
            page = self._proofs[ref.first] = self._decode(ref)
            if len(self._proofs) > MAX_KEPT // (PAGE_ROWS * DIGEST):
                self._proofs.pop(next(iter(self._proofs)), None)
        if not self._chunk:
            return page.digest(row - ref.first)
        found = page.first(row - ref.first)
        if not size or found < 0:
            return None
        sums: list[bytes] = []
        n = (size - 1) // self._chunk + 1
        while len(sums) < n:
            at = found + len(sums)
            leaf = self._leaf("proofs", at)
            if leaf.length != leaf.items * DIGEST:
                raise self._bad(leaf.offset, "a page of digests that is none")
            data = self._sums.get(leaf.first)
            if data is None:
                data = self._sums[leaf.first] = self._page(leaf)
                if len(self._sums) > 1024:
                    self._sums.pop(next(iter(self._sums)), None)
            begin = (at - leaf.first) * DIGEST
            part = data[begin : begin + (n - len(sums)) * DIGEST]
            sums += [part[i : i + DIGEST] for i in range(0, len(part), DIGEST)]
        return Proof("blake3", b"", self._chunk, tuple(sums))

    # Nodes

    def _leaf(self, tree: str, item: int) -> _Ref:
        """The page that has an item."""
        if not self._trees:
            self._read_root()
        depth, ref = self._trees[tree]
        if not 0 <= item < ref.items:
            raise self._bad(ref.offset, f"item {item} of {ref.items} in its {tree}")
        for _ in range(depth):
            node = self._nodes.get(ref.offset)
            if node is None:
                node = self._nodes[ref.offset] = self._node(ref)
            low, high = 0, len(node)
            while low < high:
                mid = (low + high) // 2
                if node[mid].first <= item:
                    low = mid + 1
                else:
                    high = mid
            ref = node[low - 1] if low else node[0]
            if not ref.first <= item < ref.first + ref.items:
                raise self._bad(ref.offset, "a node that leads elsewhere")
        return ref

    def _read_root(self) -> None:
        end = self._obj.tail(32)
        if crc32c(end[:20]) != int.from_bytes(end[20:24], "little"):
            raise self._bad(self._obj.size - 32, "its end is damaged: the CRC-32C is another")
        offset, stored, length, crc = (int.from_bytes(end[a:b], "little") for a, b in ((0, 8), (8, 12), (12, 16), (16, 20)))
        ref = _Ref(0, 1, offset, stored, length, crc)
        try:
            root = json.loads(self._page(ref))
            trees = {}
            for tree in ("rows", "proofs"):
                t = root.get(tree, {"depth": 0, "top": {"items": 0, "offset": 0, "stored": 0, "length": 0, "crc32c": 0}})
                top = t["top"]
                numbers = [t["depth"], top["items"], top["offset"], top["stored"], top["length"], top["crc32c"]]
                if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers) or numbers[0] > 8 or not numbers[0] and numbers[1]:
                    raise ValueError("a tree that is none")
                trees[tree] = (numbers[0], _Ref(0, *numbers[1:]))
            if trees["rows"][1].items != self._rows or root.get("chunk", 0) != self._chunk:
                raise ValueError("it is not of the table")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            raise self._bad(offset, f"its root is none: {err}") from err
        self._trees = trees

    def _node(self, ref: _Ref) -> list[_Ref]:
        c = _Cursor(self._page(ref))
        refs: list[_Ref] = []
        try:
            first, offset = c.uvar(), c.uvar()
            while c.at < len(c.b):
                c.uvar()
                c.text()
                items, stored, length = c.uvar(), c.uvar(), c.uvar()
                crc = int.from_bytes(c.take(4), "little")
                if not items or max(stored, length) > MAX_PAGE:
                    raise IndexError
                refs.append(_Ref(first, items, offset, stored, length, crc))
                first, offset = first + items, offset + stored
        except IndexError:
            raise self._bad(ref.offset, "a node that is none") from None
        if not refs or refs[0].first != ref.first or first != ref.first + ref.items:
            raise self._bad(ref.offset, "a node that is none")
        return refs

    def _page(self, ref: _Ref) -> bytes:
        """What a page is decompressed."""
        if max(ref.stored, ref.length) > MAX_PAGE or ref.offset + ref.stored > self._obj.size:
            raise self._bad(ref.offset, f"a page of {ref.stored} bytes")
        stored = self._obj.read(ref.offset, ref.stored)
        if crc32c(stored) != ref.crc:
            raise self._bad(ref.offset, "a page is damaged: the CRC-32C is another")
        try:
            data = codecs.fill(codecs.stream("zstd", io.BytesIO(stored)), ref.length + 1)
        except Exception as err:  # each decoder has errors of its own
            raise self._bad(ref.offset, f"a page cannot be decoded: {err}") from err
        if len(data) != ref.length:
            raise self._bad(ref.offset, f"a page of {len(data)} bytes, expected {ref.length}")
        return data

    # Rows

    def _decode(self, ref: _Ref) -> _Proofs:
        """The digests of a page's rows."""
        c = _Cursor(self._page(ref))
        chunk = self._chunk
        manners: list[tuple[bool, str, int]] = []
        proof = 0
        found = _Proofs()
        try:
            for _ in range(ref.items):
                flags = c.byte()
                while flags & _KIND == _NEW_DIR:
                    c.uvar()
                    c.text()
                    flags = c.byte()
                c.uvar()
                c.text()
                if flags & _IMPLIED:
                    found.add(None, b"", -1)
                    continue
                m = c.uvar()
                if m == len(manners):
                    bits = c.byte()
                    c.uvar()
                    c.text()
                    c.text()
                    manners.append((bits & 2 != 0, c.text().decode("ascii", "replace"), c.byte()))
                has_time, algo, length = manners[m]
                size = c.uvar()
                if has_time:
                    c.uvar()
                    c.uvar()
                digest = c.take(length)
                c.uvar()
                rare = c.byte() if flags & _RARE else 0
                fault = rare and c.rare(rare)
                first = -1
                if chunk and size and not fault and flags & _KIND in (_FILE, _PROPERTY):
                    first = proof + c.svar()
                    proof = first + (size - 1) // chunk + 1
                    if not 0 <= first < proof < 1 << 62:
                        raise IndexError
                if flags & _ONE_RUN:
                    c.uvar()
                elif not flags & _ASK:
                    c.text()
                found.add((algo, length) if algo and not chunk else None, b"" if chunk else digest, first)
            if c.at != len(c.b):
                raise IndexError
        except IndexError:
            raise self._bad(ref.offset, "a row that is none") from None
        return found

    def _bad(self, offset: int, reason: str) -> DamagedError:
        return DamagedError(self._obj.name, f"at {offset}: {reason}")


class _Cursor:
    """Takes bytes apart. What is not there is an IndexError."""

    def __init__(self, b: bytes) -> None:
        self.b = b
        self.at = 0

    def byte(self) -> int:
        c = self.b[self.at]
        self.at += 1
        return c

    def uvar(self) -> int:
        at = self.at
        c = self.b[at]
        if c < 0x80:
            self.at = at + 1
            return c
        v = c & 0x7F
        shift = 7
        while c >= 0x80:
            at += 1
            c = self.b[at]
            v |= (c & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise IndexError
        self.at = at + 1
        return v

    def svar(self) -> int:
        v = self.uvar()
        return v >> 1 ^ -(v & 1)

    def take(self, n: int) -> bytes:
        end = self.at + n
        if end > len(self.b):
            raise IndexError
        data = self.b[self.at : end]
        self.at = end
        return data

    def text(self) -> bytes:
        return self.take(self.uvar())

    def rare(self, bits: int) -> bool:
        """Pass over the rare things of a row, and say whether a fault is among them."""
        if bits & 1:
            self.text()
        if bits & 2:
            for _ in range(2 * self.uvar()):
                self.text()
        if bits & 4:
            self.text()
            self.text()
            self.byte()
            self.text()
            self.uvar()
            self.text()
            self.byte()
            self.text()
        return bits & 4 != 0
