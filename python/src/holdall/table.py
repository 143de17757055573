"""The rows of an index: names, places and digests.

docs/bytes/index.md describes the bytes. A local index is mapped into memory; pages of a remote one are fetched when they
are first used. A page is compared with its checksum before it is used. Rows are decoded in blocks of 64, and some
blocks are kept. Threads and forks may lose or repeat what is kept without harm.
"""

from __future__ import annotations

import json
import mmap
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, compress, islice
from operator import add, itemgetter, le
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from . import digests
from .errors import DamagedError, UnsupportedError, UntrustedError
from .listing import INLINE, RAW, Extent, Proof, Rows, order_of, text
from .objects import LocalFile, Object

MAGIC = b"holdall index 3\n"
END = b"holdall3"
OLD_END = b"holdall2"
TAIL = 18 << 10  # of an index, read first
MAX_PAGE = 16 << 20
MAX_NODES = 256 << 20
ROWS = 64  # in a block
MAX_BLOCKS = 8192  # that are kept, and twice as many pages
FETCH = 64 << 10  # bytes of pages of a remote index that are fetched together
MANY = 64  # number of fetches after which all the rest is fetched
MAX_FETCH = 8 << 20
DIGEST = 32
MAX_SUMS = 1024  # pages of digests that are kept

KINDS = ("file", "dir", "symlink", "hardlink", "fifo", "property")
CONTENT = ("file", "property")  # kinds with content
SHARED, REST, HOW, SIZE, OFF, STORED, SKIP, UNIT, SEC, NANO, RANK, FIRST, RARE = range(13)
ZERO = "zero"
K = TypeVar("K")
V = TypeVar("V")
_LIMIT = 1 << 63
_MASK = (1 << 64) - 1
_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class How(NamedTuple):
    """What many rows have in common."""

    kind: str
    file: bool
    volume: int  # -1: it is not one run
    codec: int
    algo: str  # of the digest
    length: int  # of the digest
    ask: bool
    fault: bool
    proven: bool  # the digest is that of the only piece
    content: bool  # of a kind that has content


class Ref(NamedTuple):
    """Where a page or a node is."""

    first: bytes  # no key in it is less
    start: int  # number of its first item
    items: int
    offset: int
    stored: int
    length: int
    crc: int
    blake3: bytes = b""  # if the index is sealed


class Cursor:
    """Parses bytes. Reading beyond the end raises an IndexError."""

    def __init__(self, b: bytes, at: int = 0) -> None:
        self.b = b
        self.at = at

    def uvar(self) -> int:
        at, v, shift = self.at, 0, 0
        while (c := self.b[at]) >= 0x80:
            v |= (c & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if shift > 63:
                raise IndexError
        self.at = at + 1
        return v | c << shift

    def varint(self) -> int:
        v = self.uvar()
        return v >> 1 ^ -(v & 1)

    def take(self, n: int) -> bytes:
        """Return the next n bytes."""
        end = self.at + n
        if end > len(self.b):
            raise IndexError
        data = self.b[self.at : end]
        self.at = end
        return data

    def number(self, n: int) -> int:
        """Return the next number of n bytes."""
        return int.from_bytes(self.take(n), "little")

    def text(self) -> bytes:
        return self.take(self.uvar())

    def name(self, before: bytes) -> bytes:
        """Return the next name, of which only what it does not share with the one before is there."""
        shared = self.uvar()
        if shared > len(before):
            raise IndexError
        return before[:shared] + self.text()


class Page(NamedTuple):
    """A page of rows."""

    start: int
    items: int
    data: bytes
    hows: list[How]
    ends: list[int]  # where blocks begin, and where the last one ends
    firsts: list[bytes]  # keys of the first rows of blocks


class Block(NamedTuple):
    """The rows of a block."""

    page: Page
    start: int
    names: list[bytes]
    files: dict[bytes, int]  # position by name
    hows: list[How]
    cols: list[Any]  # the values of each column
    offs: Any
    sums: Any  # where digests begin in the page, and where the last one ends
    rares: bytes


def blake3(data: bytes) -> bytes:
    return digests.find("blake3")(data)


def read_head(obj: Object, signed: str = "") -> dict[str, Any]:
    """Return the root of an index. If a root was signed, it must be that."""
    tail = obj.tail(TAIL)
    size = obj.size
    if tail[-8:] == OLD_END:
        raise UnsupportedError(obj.name, "it was made by an older holdall: make it again by `holdall index`")
    if len(tail) < 32 or tail[-8:] != END:
        raise DamagedError(obj.name, "it does not end as an index does")
    offset, stored, length, crc, check = struct.unpack("<QIIII", tail[-32:-8])
    if crc32(tail[-32:-12]) != check:
        raise DamagedError(obj.name, "its end is damaged: the CRC-32 is another")
    if stored != length or length > MAX_PAGE or offset + length > size - 32:
        raise DamagedError(obj.name, f"a root of {length} bytes at {offset}")
    at = offset - (size - len(tail))
    raw = tail[at : at + length] if at >= 0 else obj.read(offset, length)
    if crc32(raw) != crc:
        raise DamagedError(obj.name, "its root is damaged: the CRC-32 is another")
    if signed and blake3(raw.split(b"\n", 1)[0]).hex() != signed:
        raise UntrustedError(obj.name, "the index is not the one that was signed")
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in raw.split(b"\n", 1)]  # what copies have in common, and what not
        if not all(type(line) is dict for line in lines):
            raise ValueError("expected an object")
        return lines[0] | lines[-1]
    except (ValueError, RecursionError) as err:
        raise DamagedError(obj.name, f"its root is no JSON: {err}") from err


def counted(head: dict[str, Any]) -> tuple[int, int, bool]:
    """Return how many files an index has, their size, and whether they are stored in the order of their numbers."""
    return count(head["files"], 1 << 32), count(head["bytes"]), not (head.get("order") or {}).get("depth")


class Table(Rows):
    """The rows of an index."""

    def __init__(self, obj: Object, head: dict[str, Any], archive: str, trusted: bool = False) -> None:
        self._obj = obj
        self.trusted = trusted
        self.archive = archive
        self.codecs: list[str] = []
        try:
            self._trees = {name: _tree(head.get(name)) for name in ("rows", "proofs")}
            self.rows = count(self._trees["rows"][1].items, 1 << 32)
            self.files = count(head["files"], self.rows + 1)
            self.total = count(head["bytes"])
            self.chunk = count(head.get("chunk", 0), 1 << 32)
            self.sealed = bool(head.get("sealed"))
            self.volumes = [(str(v["name"]), bool(v.get("external", False))) for v in head.get("volumes") or []]
            for name, external in self.volumes:
                if not external and name and (name[0] != "/" or not all(p not in ("", ".", "..") for p in name[1:].split("/"))):
                    raise ValueError(f"a volume {name!r}, which is not in the archive")
            self.algos = ("blake3",) if self.chunk else tuple(str(a) for a in head.get("digests") or [])
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise self._bad(f"its root is none: {err!r}") from err
        self.numbers: array[int] | None = None
        self.map: Any = b""
        if isinstance(obj, LocalFile):
            try:
                self.map = mmap.mmap(obj.fd, 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as err:
                raise UnsupportedError(obj.name, f"it cannot be mapped into memory: {err}") from err
            if len(self.map) < obj.size:
                raise self._bad("it became shorter while it was read")
        self._pages: dict[int, Page] = {}
        self._blocks: dict[int, Block] = {}
        self._fetched: dict[int, bytes] = {}
        self._fetches = 0
        self._on_disk = False  # whether all pages were read
        self._sums: dict[int, bytes] = {}

    # Pages

    def _leaves(self, name: str) -> list[Ref]:
        """Return all pages of a tree. Nodes of one level are adjacent."""
        depth, top = self._trees[name]
        refs = [top] if depth else []
        for _ in range(depth):
            begin, end = refs[0].offset, refs[-1].offset + refs[-1].stored
            if end - begin > MAX_NODES or not 0 <= begin <= end <= self._obj.size:
                raise self._bad(f"nodes of {end - begin} bytes")
            data = self._bytes(begin, end - begin)
            below: list[Ref] = []
            for r in refs:
                below += self._node(r, self._checked(r, data[r.offset - begin : r.offset - begin + r.stored]))
            refs = below
        return refs

    def _node(self, ref: Ref, data: bytes) -> list[Ref]:
        c = Cursor(data)
        refs: list[Ref] = []
        key = b""
        try:
            start, offset = c.uvar(), c.uvar()
            while c.at < len(data):
                last, key = key, c.name(key)
                items, stored, length = c.uvar(), c.uvar(), c.uvar()
                crc = c.number(4)
                digest = c.take(DIGEST if self.sealed else 0)
                if not items or max(stored, length) > MAX_PAGE or key < last or offset + stored > self._obj.size:
                    raise IndexError
                refs.append(Ref(key, start, items, offset, stored, length or stored, crc, digest))
                start, offset = start + items, offset + stored
        except IndexError:
            raise self._bad(f"a node at {ref.offset} that is none") from None
        if not refs or refs[0].start != ref.start or start != ref.start + ref.items:
            raise self._bad(f"a node at {ref.offset} that leads elsewhere")
        return refs

    def _bytes(self, offset: int, length: int) -> bytes:
        return self.map[offset : offset + length] if self.map else self._obj.read(offset, length)

    def _checked(self, ref: Ref, data: bytes) -> bytes:
        if ref.stored != ref.length or len(data) != ref.stored or crc32(data) != ref.crc:
            raise self._bad(f"its page at {ref.offset} is damaged: the CRC-32 is another")
        if self.trusted and blake3(data) != ref.blake3:
            raise UntrustedError(self._obj.name, f"its page at {ref.offset} is not what was signed")
        return data

    @cached_property
    def _refs(self) -> list[Ref]:
        """Where the pages of rows are."""
        return self._leaves("rows")

    @cached_property
    def _firsts(self) -> list[bytes]:
        return [r.first for r in self._refs]

    @cached_property
    def _starts(self) -> list[int]:
        return [r.start for r in self._refs]

    @cached_property
    def _proofs(self) -> list[Ref]:
        """Where the pages of digests are."""
        return self._leaves("proofs")

    def _page(self, k: int) -> Page:
        """Return a page of rows."""
        page = self._pages.get(k)
        return page if page is not None else keep(self._pages, k, self._parsed(k), 2 * MAX_BLOCKS)

    def _stored(self, ref: Ref) -> bytes:
        return self._checked(ref, self._bytes(ref.offset, ref.stored))

    def _fetch(self, k: int) -> bytes:
        """Fetch pages of a remote index: some around one, or all after many fetches."""
        if k not in self._fetched:
            refs = self._refs
            self._fetches += 1
            all_ = self._fetches > MANY or refs[-1].offset + refs[-1].stored - refs[0].offset <= MANY * FETCH // 4
            if self._obj.blocks:  # a disk keeps them
                if all_ and not self._on_disk:
                    self._on_disk = True
                    end = refs[-1].offset + refs[-1].stored
                    for at in range(refs[0].offset, end, MAX_FETCH):
                        self._obj.read(at, min(MAX_FETCH, end - at))
                return self._stored(refs[k])
            last = 0 if all_ else k
            while all_ and last < len(refs) or last == k:
                first, begin = last, refs[last].offset
                end = begin
                while last < len(refs) and refs[last].offset == end and end - begin < (MAX_FETCH if all_ else FETCH):
                    end += refs[last].stored
                    last += 1
                if any(i not in self._fetched for i in range(first, last)):
                    data = self._obj.read(begin, end - begin)
                    for i, r in enumerate(refs[first:last], first):
                        self._fetched[i] = self._checked(r, data[r.offset - begin : r.offset - begin + r.stored])
        return self._fetched[k]

    def _parsed(self, k: int) -> Page:
        """Read a page, and parse what it begins with."""
        ref = self._refs[k]
        data = self._stored(ref) if self.map else self._fetch(k)
        c = Cursor(data)
        try:
            rows, hows = c.uvar(), c.uvar()
            if rows != ref.items or not 0 < rows <= 2048 or hows > 2048:
                raise IndexError
            common = [self._how(c) for _ in range(hows)]
            blocks = (rows + ROWS - 1) // ROWS
            ends = [0, *struct.unpack(f"<{blocks}I", c.take(4 * blocks))]
            if c.at + ends[-1] > len(data) or not all(a < b for a, b in zip(ends, ends[1:], strict=False)):
                raise IndexError
            ends = [e + c.at for e in ends]
            firsts = [_key(Cursor(data, at + 1).text(), data[at] != 0) for at in ends[:-1]]
        except (IndexError, UnicodeDecodeError):
            raise self._bad(f"a page at {ref.offset} that is none") from None
        return Page(ref.start, ref.items, data, common, ends, firsts)

    def _how(self, c: Cursor) -> How:
        bits = c.number(2)
        c.uvar()
        c.text(), c.text()
        algo, length, volume, codec = c.text().decode(), c.number(1), c.uvar(), c.text().decode()
        kind = KINDS[bits & 7]
        placed = bits & 0x20 != 0
        if placed and volume >= len(self.volumes):
            raise IndexError
        number = self._codec(codec) if bits & 0x200 else RAW
        content = kind in CONTENT or kind == "hardlink"
        return How(kind, kind in CONTENT and not bits & 8, volume if placed else -1, number, algo, length,
                   bits & 0x100 != 0, bits & 0x800 != 0, bits & 0x1000 != 0, content and not bits & 8)  # fmt: skip

    def _codec(self, codec: str) -> int:
        if codec and codec not in self.codecs:
            self.codecs.append(codec)
        return self.codecs.index(codec) if codec else RAW

    # Blocks

    def _block(self, row: int) -> tuple[Block, int]:
        """Return the block of a row, and the position in it."""
        if not 0 <= row < self.rows:
            raise self._bad(f"it leads to row {row} of {self.rows}")
        k = bisect_right(self._starts, row) - 1
        i = row - self._starts[k]
        block = self._blocks.get(k << 5 | i >> 6)
        return block if block is not None else self._decoded(k, i >> 6), i & 63

    def _decoded(self, k: int, j: int) -> Block:
        """Decode block j of page k, and keep it."""
        return keep(self._blocks, k << 5 | j, self._decode(self._page(k), j), MAX_BLOCKS)

    def _decode(self, page: Page, j: int) -> Block:
        try:
            return self._rows_of(page, j)
        except (IndexError, struct.error):
            raise self._bad(f"a block of the page at row {page.start} that is none") from None

    def _rows_of(self, page: Page, j: int) -> Block:
        n = min(ROWS, page.items - j * ROWS)
        data = page.data[page.ends[j] : page.ends[j + 1]]
        c = Cursor(data, 1)
        name = c.text()
        sums, long, mask = c.uvar(), c.uvar(), c.number(2)
        heads: list[tuple[int, int, int, int | None]] = []
        for i in range(13):
            if mask >> i & 1:
                head, least = c.number(1), c.varint()
                if head & 15 > 8 or head > 31:
                    raise IndexError
                heads.append((i, head & 15, least, c.varint() if head & 16 else None))
        zeros = [0] * n
        cols: list[Any] = [zeros] * 13
        starts: dict[int, int] = {}
        for i, width, least, start in heads:
            raw = c.take(width * n)
            numbers = zeros
            if width in _FORMATS:
                numbers = struct.unpack(f"<{n}{_FORMATS[width]}", raw)  # type: ignore[assignment]
            elif width:
                numbers = [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]
            cols[i] = numbers if not least and i != HOW else [v + least & _MASK for v in numbers]
            if start is not None:
                starts[i] = start
        texts = c.take(long)
        names = [name]
        at = 0
        for shared, rest in zip(cols[SHARED][1:], cols[REST][1:], strict=True):
            if shared > len(name):
                raise IndexError
            name = name[:shared] + texts[at : at + rest]
            at += rest
            names.append(name)
        if at != long:
            raise IndexError
        hows = [page.hows[i] for i in cols[HOW]]
        if SKIP in starts:
            cols[SKIP] = _chained(cols[SKIP], starts[SKIP], cols[SIZE], [h.volume >= 0 and h.codec != RAW for h in hows])
        if OFF in starts:
            steps = [s if h.codec == RAW else t for s, t, h in zip(cols[SIZE], cols[STORED], hows, strict=True)]
            cols[OFF] = _chained(cols[OFF], starts[OFF], steps, [h.volume >= 0 for h in hows])
        if FIRST in starts and self.chunk:
            pieces = [(s - 1) // self.chunk + 1 if s and h.content and not h.fault and not h.proven else 0 for s, h in zip(cols[SIZE], hows, strict=True)]
            cols[FIRST] = _chained(cols[FIRST], starts[FIRST], pieces, [p > 0 for p in pieces])
        files = {name: i for i, (name, h) in enumerate(zip(names, hows, strict=True)) if h.file}
        begin, same = page.ends[-1] + sums, hows[0].length if hows.count(hows[0]) == n else 0
        ends: Any = range(begin, begin + same * n + 1, same) if same else list(accumulate([begin] + [h.length for h in hows]))
        rares = data[c.at :]
        if ends[-1] > len(page.data) or max(cols[SIZE]) >= _LIMIT or sum(cols[RARE]) > len(rares):
            raise IndexError
        return Block(page, page.start + j * ROWS, names, files, hows, cols, cols[OFF], ends, rares)

    # Names

    def find(self, name: bytes) -> int:
        if not self._firsts:
            return -1
        folder, base, whole = order_of(name)
        key = _joined(name, folder, base, whole)
        k = max(bisect_right(self._firsts, key) - 1, 0)
        page = self._pages.get(k) or self._page(k)
        j = bisect_right(page.firsts, key) - 1
        if j < 0:
            return -1
        block = self._blocks.get(k << 5 | j) or self._decoded(k, j)
        i = block.files.get(name, -1)
        return block.start + i if i >= 0 else -1

    def name(self, row: int) -> bytes:
        block, i = self._block(row)
        return block.names[i]

    def _all(self, mixed: bool = False) -> Iterator[Block]:
        """Return all blocks, or those of pages that may have other rows than files. They are not kept."""
        for k in range(len(self._refs)):
            page = self._pages.get(k) or self._parsed(k)
            if mixed and all(h.file for h in page.hows):
                continue
            for j in range(len(page.ends) - 1):
                yield self._blocks.get(k << 5 | j) or self._decode(page, j)

    def names(self) -> Iterator[bytes]:
        for block in self._all():
            yield from block.files if len(block.files) == len(block.names) else compress(block.names, [h.file for h in block.hows])

    # Rows and numbers

    def row(self, number: int) -> int:
        return number if self.files == self.rows else self._file_rows()[number]

    def number(self, row: int) -> int:
        return row if self.files == self.rows else bisect_left(self._file_rows(), row)

    def _file_rows(self) -> array[int]:
        """Return the rows of all files, by number."""
        if self.numbers is None:
            numbers = array("I")
            others = [block.start + i for block in self._all(True) for i, h in enumerate(block.hows) if not h.file]
            for before, row in zip([-1, *others], [*others, self.rows], strict=True):
                numbers.extend(range(before + 1, row))
            if len(numbers) != self.files:
                raise self._bad(f"it has {len(numbers)} files, expected {self.files}")
            self.numbers = numbers
        return self.numbers

    def stored(self) -> range | array[int]:
        keys: list[tuple[int, int, int]] = []
        for block in self._all():
            cols = block.cols
            keys += [(h.volume, at, s) if h.codec != RAW else (h.volume, at, 0)
                     for h, at, s in zip(block.hows, block.offs, cols[SKIP], strict=True) if h.file]  # fmt: skip
        if len(keys) != self.files:
            raise self._bad(f"it has {len(keys)} files, expected {self.files}")
        if all(map(le, keys, islice(keys, 1, None))):
            return range(self.files)
        return array("I", sorted(range(self.files), key=keys.__getitem__))

    # Places

    def runs(self, rows: list[int]) -> list[tuple[int, int, int] | None]:
        return list(map(self.run, rows))

    def run(self, row: int) -> tuple[int, int, int] | None:
        """Return volume, offset and length of a file that is one uncompressed run; None for others."""
        block, i = self._block(row)
        how = block.hows[i]
        if how.volume < 0 or how.codec != RAW or how.fault or not how.file:
            return None
        return how.volume, block.offs[i], block.cols[SIZE][i]

    def kind(self, row: int) -> str:
        block, i = self._block(row)
        return block.hows[i].kind

    def size(self, row: int) -> int:
        block, i = self._block(row)
        size: int = block.cols[SIZE][i]
        return size

    def extents(self, row: int) -> list[Extent]:
        block, i = self._block(row)
        how = block.hows[i]
        size, offset = block.cols[SIZE][i], block.offs[i]
        if how.fault:
            raise DamagedError(self.archive, "it could not be read when the index was made", text(block.names[i]))
        if how.ask:
            raise UnsupportedError(self.archive, "the index does not say where it lies; holdall cat reads it", text(block.names[i]))
        if how.volume < 0:
            return self._rare_extents(block, i, size)
        if how.codec == RAW:
            stored, skip = size, 0
        else:
            stored, skip = block.cols[STORED][i], block.cols[SKIP][i]
            if self.codecs[how.codec] == ZERO:
                return []
        if max(offset, stored, skip) >= 1 << 62:
            raise self._bad(f"a content of {stored} bytes at {offset}")
        return [Extent(0, size, how.volume, offset, stored, skip, how.codec)]

    def _rare_extents(self, block: Block, i: int, size: int) -> list[Extent]:
        """Return the extents among the rare properties of a row."""
        lengths = block.cols[RARE]
        at = sum(lengths[:i])
        try:
            return self._extents(Cursor(block.rares[at : at + lengths[i]]), size) if lengths[i] else []
        except (IndexError, UnicodeDecodeError):
            raise self._bad(f"extents of {text(block.names[i])!r} that are none") from None

    def _extents(self, c: Cursor, size: int) -> list[Extent]:
        bits = c.number(1)
        if bits & 4:
            raise IndexError  # what is at fault has no extents
        if bits & 1:
            c.text()
        for _ in range(c.uvar() if bits & 2 else 0):
            c.text(), c.text()
        extents: list[Extent] = []
        at = end = 0
        codec = ""
        while bits & 0x10 and c.at < len(c.b):
            has = c.number(1)
            volume, offset, length = c.uvar(), end + c.varint(), c.uvar()
            before, at = at, at + (c.varint() if has & 1 else 0)
            stored = c.uvar() if has & 2 else length
            skip = c.uvar() if has & 4 else 0
            if has & 8:
                c.uvar()
            if has & 0x20:
                codec = c.text().decode()
            data = c.text()[skip : skip + length] if has & 0x10 else b""
            if at < before or at + length > size or not 0 <= offset < 1 << 62 or max(stored, skip) >= 1 << 62 or volume >= len(self.volumes):
                raise IndexError
            if len(data) != length if has & 0x10 else not codec and stored != length:
                raise IndexError
            if has & 0x10:
                extents.append(Extent(at, length, INLINE, 0, length, 0, RAW, data))
            elif codec != ZERO:
                extents.append(Extent(at, length, volume, offset, stored, skip, self._codec(codec)))
            at, end = at + length, offset + stored
        return extents

    # Digests

    def proof(self, row: int) -> Proof | None:
        block, i = self._block(row)
        how = block.hows[i]
        digest = block.page.data[block.sums[i] : block.sums[i + 1]]
        if self.chunk:
            size = block.cols[SIZE][i]
            if not (how.file and size) or how.fault:
                return None
            if how.proven:
                if size > self.chunk or len(digest) != DIGEST:
                    raise self._bad(f"a digest of {size} bytes that is said to be of one piece")
                return Proof("blake3", b"", self.chunk, (digest,))
            return Proof("blake3", b"", self.chunk, self._pieces(block.cols[FIRST][i], (size - 1) // self.chunk + 1))
        return Proof(how.algo, digest) if how.algo else None

    def _pieces(self, first: int, n: int) -> tuple[bytes, ...]:
        """Return the digests of n pieces."""
        refs, sums = self._proofs, b""
        while len(sums) < n * DIGEST:
            at = first + len(sums) // DIGEST
            k = bisect_right(refs, at, key=itemgetter(1)) - 1
            ref = refs[k] if k >= 0 else None
            if ref is None or at >= ref.start + ref.items or ref.length != ref.items * DIGEST:
                raise self._bad(f"digest {at}, which is not there")
            page = self._sums.get(k) or keep(self._sums, k, self._stored(ref), MAX_SUMS)
            begin = (at - ref.start) * DIGEST
            sums += page[begin : begin + n * DIGEST - len(sums)]
        return tuple(sums[i : i + DIGEST] for i in range(0, n * DIGEST, DIGEST))

    def _bad(self, reason: str) -> DamagedError:
        return DamagedError(self._obj.name, reason)

    def close(self) -> None:
        # The map ends with its last user.
        self._obj.close()


def _key(name: bytes, whole: bool) -> bytes:
    """Return the key of the row with a name."""
    at = -1 if whole else name.rfind(b"/", 0, max(len(name) - 1, 0))
    return _joined(name, name[: max(at, 0)], name[at + 1 :], whole)


def _joined(name: bytes, folder: bytes, base: bytes, whole: bool) -> bytes:
    if b"\0" in name:
        folder, base = folder.replace(b"\0", b"\0\xff"), base.replace(b"\0", b"\0\xff")
    return b"%b\0\1%b\0\1%c" % (folder, base, whole)


def _tree(tree: Any) -> tuple[int, Ref]:
    """Return how many nodes are above a page of a tree, and the top."""
    if not tree:
        return 0, Ref(b"", 0, 0, 0, 0, 0, 0)
    items, *rest = (count(tree["top"][k], 1 << 48) for k in ("items", "offset", "stored", "length", "crc32"))
    offset, stored, length, crc = rest
    depth = count(tree["depth"], 9)
    if (depth > 0) != (items > 0):
        raise ValueError("a tree that is none")
    return depth, Ref(b"", 0, items, offset, stored, length, crc, bytes.fromhex(tree["top"].get("blake3", "")))


def _chained(numbers: Any, start: int, steps: Any, has: list[bool]) -> list[int]:
    """Return the values of a chained column. Rows that have no value do not count."""
    if all(has):
        return [v & _MASK for v in accumulate(map(add, numbers, [start, *steps[:-1]]))]
    values = [0] * len(has)
    for i, (v, step) in enumerate(zip(numbers, steps, strict=True)):
        if has[i]:
            values[i] = start = start + v & _MASK
            start += step
    return values


def count(n: Any, below: int = _LIMIT) -> int:
    """Return a number of JSON if it is less than a limit; None stands for 0."""
    if n is None:
        return 0
    if type(n) is not int or not 0 <= n < below:
        raise ValueError(f"a number that cannot be: {n!r}")
    return n


def keep(kept: dict[K, V], key: K, value: V, most: int) -> V:
    """Keep a value, and drop the oldest one if there are too many."""
    kept[key] = value
    if len(kept) > most:
        kept.pop(next(iter(kept)), None)
    return value
