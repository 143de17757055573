"""The digests of pieces of contents, in the pages of an index.

A page is compressed with zstd. Nodes refer to pages by the numbers of their items. docs/index.md describes the bytes.
"""

from __future__ import annotations

import io
import json
from typing import NamedTuple

from . import codecs
from .digests import crc32c
from .errors import DamagedError
from .listing import Proof
from .objects import Object

MAX_PAGE = 16 << 20
MAX_KEPT = 1024  # pages
DIGEST = 32


class _Ref(NamedTuple):
    """Where a page or a node is."""

    first: int  # number of its first item
    items: int
    offset: int
    stored: int
    length: int
    crc: int


class Pages:
    """The digests of pieces of contents in an index."""

    def __init__(self, obj: Object, rows: int, chunk: int) -> None:
        self._obj = obj
        self._rows = rows
        self._chunk = chunk
        self._tree: tuple[int, _Ref] | None = None
        self._nodes: dict[int, list[_Ref]] = {}
        self._sums: dict[int, bytes] = {}  # by the number of the first one in a page

    def proof(self, first: int, size: int) -> Proof:
        """Return what a content of a given size is compared with; its first digest has the given number."""
        sums: list[bytes] = []
        n = (size - 1) // self._chunk + 1
        while len(sums) < n:
            at = first + len(sums)
            leaf = self._leaf(at)
            if leaf.length != leaf.items * DIGEST:
                raise self._bad(leaf.offset, "a page of digests that is none")
            data = self._sums.get(leaf.first)
            if data is None:
                data = self._sums[leaf.first] = self._page(leaf)
                if len(self._sums) > MAX_KEPT:
                    self._sums.pop(next(iter(self._sums)), None)
            begin = (at - leaf.first) * DIGEST
            part = data[begin : begin + (n - len(sums)) * DIGEST]
            sums += [part[i : i + DIGEST] for i in range(0, len(part), DIGEST)]
        return Proof("blake3", b"", self._chunk, tuple(sums))

    # Nodes

    def _leaf(self, item: int) -> _Ref:
        """Return the page that contains an item."""
        if self._tree is None:
            self._tree = self._read_root()
        depth, ref = self._tree
        if not 0 <= item < ref.items:
            raise self._bad(ref.offset, f"digest {item} of {ref.items}")
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

    def _read_root(self) -> tuple[int, _Ref]:
        end = self._obj.tail(32)
        if crc32c(end[:20]) != int.from_bytes(end[20:24], "little"):
            raise self._bad(self._obj.size - 32, "its end is damaged: the CRC-32C is another")
        offset, stored, length, crc = (int.from_bytes(end[a:b], "little") for a, b in ((0, 8), (8, 12), (12, 16), (16, 20)))
        try:
            root = json.loads(self._page(_Ref(0, 1, offset, stored, length, crc)))
            tree = root["proofs"]
            numbers = [tree["depth"], *(tree["top"][k] for k in ("items", "offset", "stored", "length", "crc32c"))]
            if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers) or numbers[0] > 8 or not numbers[0] and numbers[1]:
                raise ValueError("a tree that is none")
            if root["rows"]["top"]["items"] != self._rows or root["chunk"] != self._chunk:
                raise ValueError("it is not of the table")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            raise self._bad(offset, f"its root is none: {err}") from err
        return numbers[0], _Ref(0, *numbers[1:])

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
        """Return a decompressed page."""
        if max(ref.stored, ref.length) > MAX_PAGE or ref.offset + ref.stored > self._obj.size:
            raise self._bad(ref.offset, f"a page of {ref.stored} bytes")
        stored = self._obj.read(ref.offset, ref.stored)
        if crc32c(stored) != ref.crc:
            raise self._bad(ref.offset, "a page is damaged: the CRC-32C is another")
        try:
            data = codecs.fill(codecs.stream("zstd", io.BytesIO(stored)), ref.length + 1)
        except Exception as err:  # each decoder has its own errors
            raise self._bad(ref.offset, f"a page cannot be decoded: {err}") from err
        if len(data) != ref.length:
            raise self._bad(ref.offset, f"a page of {len(data)} bytes, expected {ref.length}")
        return data

    def _bad(self, offset: int, reason: str) -> DamagedError:
        return DamagedError(self._obj.name, f"at {offset}: {reason}")


class _Cursor:
    """Parses bytes. Reading beyond the end raises an IndexError."""

    def __init__(self, b: bytes) -> None:
        self.b = b
        self.at = 0

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

    def take(self, n: int) -> bytes:
        end = self.at + n
        if end > len(self.b):
            raise IndexError
        data = self.b[self.at : end]
        self.at = end
        return data

    def text(self) -> bytes:
        return self.take(self.uvar())
