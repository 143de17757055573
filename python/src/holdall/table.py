"""The flat part of an index: a table of names and places that is read in place.

docs/index.md describes the bytes. A local index is mapped into memory; blocks of a remote one are fetched when they are
first used. A block of 4096 bytes is compared with its checksum before it is used. Which blocks have been compared is
the only state. Threads and forks may lose or repeat it without harm.
"""

from __future__ import annotations

import json
import mmap
import struct
from array import array
from collections.abc import Callable, Iterator
from itertools import compress, islice
from operator import le
from typing import Any, NamedTuple
from zlib import crc32

from .errors import DamagedError, UnsupportedError
from .listing import INLINE, RAW, Extent, Proof, text
from .objects import LocalFile, Object

MAGIC = b"holdall index 2\n"
END = b"holdall2"
TABLE = b"holdtab1"
BLOCK = 4096
TAIL = 32 << 10  # of an index, read first
MAX_HEAD = 64 << 20
PLACE = 12  # size of a row
RUN = 24
MAX_RUN = 16 << 20  # size of a page's digests
MAX_FETCHED = 1024  # pages of digests of a remote index that are kept
FETCH = 16  # blocks of a remote index that are fetched together
MANY = 64  # number of fetches after which all the rest is fetched

_LOW48 = (1 << 48) - 1
_LOW63 = (1 << 63) - 1
_NONE32 = 0xFFFFFFFF
_two_u32 = struct.Struct("<II").unpack_from
_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from
_u16 = struct.Struct("<H").unpack_from
_names = struct.Struct("<32I").unpack_from
_run = struct.Struct("<QQI").unpack_from
_two_u64 = struct.Struct("<QQ").unpack_from
_place = struct.Struct("<QI").unpack_from
_record = struct.Struct("<QII").unpack_from
_extent = struct.Struct("<QQQQQII").unpack_from

CONTENT = ("file", "property")  # kinds with content


class How(NamedTuple):
    """What many rows have in common."""

    kind: str
    file: bool
    volume: int  # -1: stored nowhere
    codec: int
    digest: int  # -1: none
    whole: bool
    long: bool
    ask: bool
    fault: bool


class Head(NamedTuple):
    """The head of an index."""

    text: dict[str, Any]
    end: int  # of the flat part; the part of the index that is read first begins here or before


def read_head(obj: Object) -> dict[str, Any] | None:
    """Return the head of an index; None if it has no table."""
    tail = obj.tail(TAIL)
    size = obj.size
    if len(tail) < 32 or tail[-8:] != END:
        raise DamagedError(obj.name, "it does not end as an index does")
    if len(tail) < 48 or tail[-40:-32] != TABLE:
        return None
    length, crc = _two_u32(tail, len(tail) - 48)
    if length > MAX_HEAD or length > size - 48:
        raise DamagedError(obj.name, f"a head of {length} bytes")
    raw = tail[-48 - length : -48] if length + 48 <= len(tail) else obj.read(size - 48 - length, length)
    if crc32(raw) != crc:
        raise DamagedError(obj.name, "its head is damaged: the CRC-32 is another")
    try:
        head = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise DamagedError(obj.name, f"its head is no JSON: {err}") from err
    if type(head) is not dict:
        raise DamagedError(obj.name, "its head is no object")
    return head


class Table:
    """The rows of an index, from its flat part."""

    def __init__(self, obj: Object, head: dict[str, Any], archive: str) -> None:
        self._obj = obj
        self.archive = archive
        try:
            self._take(head)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise self._bad(f"its head is none: {err!r}") from err
        self.pages: Any = None  # digests of pieces
        self.numbers: array[int] | None = None
        self._map_blocks()

    def _take(self, head: dict[str, Any]) -> None:
        """Use a head if it is valid."""
        self.rows = _count(head["rows"], 1 << 32)
        self.files = _count(head["files"], self.rows + 1)
        self.total = _count(head["bytes"], 1 << 63)
        self.digests = [(str(d["algo"]), _count(d["len"], 256)) for d in head.get("digests") or []]
        self.pages_at = _count(head["pages"], self._obj.size)
        self.chunk = _count(head.get("chunk", 0), 1 << 32)
        bits = _count(head["bits"], 33)
        self.volumes = [(str(v["name"]), bool(v.get("external", False))) for v in head["volumes"] or []]
        self.codecs = [str(c) for c in head["codecs"] or []]
        for name, external in self.volumes:
            if not external and name and (name[0] != "/" or not all(p not in ("", ".", "..") for p in name[1:].split("/"))):
                raise ValueError(f"a volume {name!r}, which is not in the archive")
        start = _count(head["start"], self._obj.size)
        places: dict[str, tuple[int, int]] = {}
        at = start
        columns = {"stored": (4,), "skips": (4,), "times": (4, 8), "firsts": (4,)}
        for name in ("slots", "hashes", "places", *columns, "groups", "names", "longs", "sums", "runs", "checks"):
            if name in (*columns, "sums", "runs") and name not in head["sections"]:
                places[name] = (at, 0)
                continue
            off, n = (_count(head["sections"][name][k], 1 << 62) for k in ("off", "len"))
            if off != at or off % BLOCK:
                raise ValueError(f"section {name} lies at {off}, expected {at}")
            places[name] = (off, n)
            at = off + n + -n % BLOCK
        if places["checks"][0] + places["checks"][1] > self._obj.size:
            raise ValueError("it reaches beyond the end of the index")
        blocks = (places["checks"][0] - start) // BLOCK
        groups = 8 * ((self.rows + 15) // 16 + 1)
        expected = {"slots": (4 * ((1 << bits) + 1),), "hashes": (8 * self.rows,), "places": (PLACE * self.rows,),
                    "groups": (groups,), "sums": (0, groups), "checks": (4 * blocks,)}  # fmt: skip
        expected |= {name: (0, *(w * self.rows for w in widths)) for name, widths in columns.items()}
        for name, lengths in expected.items():
            if places[name][1] not in lengths:
                raise ValueError(f"section {name} of {places[name][1]} bytes, expected {lengths[-1]}")
        if places["runs"][1] % RUN or (places["runs"][1] > 0) != (places["sums"][1] > 0):
            raise ValueError(f"section runs of {places['runs'][1]} bytes")
        self.shift = 32 - bits
        self._start = start
        self._sections = places
        self._checks_crc = head["checks_crc32"]
        self._how = [self._how_of(h) for h in head["how"] or []]
        # Rows that are one uncompressed run, which are nearly all; and those that are one in the archive itself.
        self._raw = frozenset(i for i, h in enumerate(self._how)
                              if h.file and h.volume >= 0 and h.codec == RAW and not (h.long or h.ask or h.fault))  # fmt: skip
        self.algos = ("blake3",) if self.chunk else tuple(algo for algo, _ in self.digests) if places["sums"][1] else ()
        self._files = frozenset(i for i, h in enumerate(self._how) if h.file)
        self.simple = frozenset(i for i in self._raw if self.volumes[self._how[i].volume] == ("", False))

    def _how_of(self, h: dict[str, Any]) -> How:
        volume, codec = h.get("volume", -1), h.get("codec", RAW)
        if not (type(volume) is int and -1 <= volume < len(self.volumes) and type(codec) is int and -1 <= codec < len(self.codecs)):
            raise ValueError("a volume or a codec that is not there")
        digest = h.get("digest", -1)
        if type(digest) is not int or not -1 <= digest < len(self.digests):
            raise ValueError("a digest that is not there")
        said = [bool(h.get(k, False)) for k in ("whole", "long", "ask", "fault")]
        return How(h["kind"], h["kind"] in CONTENT and not h.get("implied", False), volume, codec, digest, *said)

    # Blocks

    def _map_blocks(self) -> None:
        """Map the flat part. Offsets in the map are relative to self._base."""
        obj = self._obj
        checks, n = self._sections["checks"]
        self._base = 0 if isinstance(obj, LocalFile) else self._start
        self.map: Any = b""
        if isinstance(obj, LocalFile):
            self._far = False
            try:
                self.map = mmap.mmap(obj.fd, 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as err:
                raise UnsupportedError(obj.name, f"it cannot be mapped into memory: {err}") from err
            if len(self.map) < checks + n:
                raise self._bad("it became shorter while it was read")
        else:
            self._far = True
            private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
            if checks > self._start:
                self.map = mmap.mmap(-1, checks - self._start, **private)
        sums = obj.read(checks, n)
        if crc32(sums) != self._checks_crc:
            raise self._bad("its checksums are damaged")
        self._sums = memoryview(sums).cast("B")
        at = {name: off - self._base for name, (off, _) in self._sections.items()}
        self.slots, self.hashes, self.places, self._stored, self._skips = at["slots"], at["hashes"], at["places"], at["stored"], at["skips"]
        self._sums_at, self._runs_at, self._firsts = at["sums"], at["runs"], at["firsts"]
        self._runs = self._sections["runs"][1] // RUN - 1  # the last one is only the end of the one before
        self._checked = bytearray(max(self._runs, 0))  # which runs were compared with their checksums
        self.groups, self.names_at, self._longs = at["groups"], at["names"], at["longs"]
        self.names_len, self._longs_len = self._sections["names"][1], self._sections["longs"][1]
        self._has_skips = self._sections["skips"][1] > 0
        self._first = (self._start - self._base) // BLOCK
        # For each block of the map, whether it was compared with its checksum.
        self.ok = bytearray((checks - self._base) // BLOCK + 1)
        self._fetches = 0
        self._fetched: dict[int, bytes] = {}  # digests of pages, by offset

    def _check(self, start: int, end: int) -> None:
        """Compare the blocks of the map that contain [start, end) with their checksums."""
        ok = self.ok
        first, last = start // BLOCK, (end - 1) // BLOCK
        if not (start >= self._first * BLOCK and last < len(ok) - 1):
            raise self._bad(f"it leads to bytes {start} to {end}, which are not in its table")
        block = ok.find(0, first, last + 1)
        while block >= 0:
            if self._far:
                self._fetch(block, last)
            else:
                self._compare(block, self.map[block * BLOCK : (block + 1) * BLOCK])
            block = ok.find(0, block, last + 1)

    def _compare(self, block: int, data: bytes) -> None:
        if crc32(data) != _u32(self._sums, 4 * (block - self._first))[0]:
            raise self._bad(f"its block at {block * BLOCK + self._base} is damaged: the CRC-32 is another")
        self.ok[block] = 1

    def _fetch(self, block: int, last: int) -> None:
        """Fetch blocks of a remote index: some around the first, or all after many fetches."""
        self._fetches += 1
        ok, end = self.ok, len(self.ok) - 1
        if self._fetches > MANY or end <= MANY * FETCH // 4:
            first, end = 0, end
        else:
            first = block - block % FETCH
            end = min(max(last + 1, first + FETCH), end)
        while first < end:
            n = min(end - first, (8 << 20) // BLOCK)
            if 0 in ok[first : first + n]:
                data = self._obj.read(self._base + first * BLOCK, n * BLOCK)
                for i in range(n):
                    piece = data[i * BLOCK : (i + 1) * BLOCK]
                    if not ok[first + i]:
                        self._compare(first + i, piece)
                        self.map[(first + i) * BLOCK : (first + i + 1) * BLOCK] = piece
            first += n

    # Names

    def find(self, name: bytes) -> int:
        """Return the row of the file with that name, or -1 if there is none."""
        m, ok = self.map, self.ok
        hashed = crc32(name)
        at = self.slots + 4 * (hashed >> self.shift)
        if not (ok[at >> 12] and ok[at + 7 >> 12]):
            self._check(at, at + 8)
        low, high = _two_u32(m, at)
        if low >= high:
            if low > high:
                raise self._bad("its slots go backwards")
            return -1
        if high > self.rows:
            raise self._bad(f"a slot leads to row {high} of {self.rows}")
        first, last = self.hashes + 8 * low, self.hashes + 8 * high
        if last - first > BLOCK or not (ok[first >> 12] and ok[last - 1 >> 12]):
            self._check(first, last)
        key = hashed.to_bytes(4, "little")
        at = m.find(key, first, last)
        while at >= 0:
            if not (at - first) & 7:
                row: int = _u32(m, at + 4)[0]
                if self.name(row) == name and self._how_of_row(row).file:
                    return row
            at = m.find(key, at + 1, last)
        return -1

    def finder(self, quick: Callable[[bytes], int]) -> Callable[[bytes], int]:
        """Return a function like find that uses a quicker one, which finds most rows of any kind."""
        ok, places, m, files, slow = self.ok, self.places, self.map, self._files, self.find

        def find(name: bytes) -> int:
            row = quick(name)
            if row < 0:
                return slow(name)
            at = places + PLACE * row
            return row if ok[at >> 12] and ok[at + 11 >> 12] and _u16(m, at + 6)[0] in files else slow(name)

        return find

    def _group(self, row: int) -> tuple[bytes, bytes | tuple[int, ...], int]:
        """Return the names of the group of 16 rows that contains a row: as stored, with their numbers, and where the
        texts begin.
        """
        if row >= self.rows:
            raise self._bad(f"it leads to row {row} of {self.rows}")
        ok = self.ok
        at = self.groups + 8 * (row >> 4)
        if not (ok[at >> 12] and ok[at + 15 >> 12]):
            self._check(at, at + 16)
        start, end = _two_u64(self.map, at)
        text = 128 if start >> 63 else 32
        start, end = start & _LOW63, end & _LOW63
        if not start + text <= end <= self.names_len:
            raise self._bad(f"names from {start} to {end} of {self.names_len}")
        start, end = start + self.names_at, end + self.names_at
        if end - start > BLOCK or not (ok[start >> 12] and ok[end - 1 >> 12]):
            self._check(start, end)
        group: bytes = self.map[start:end]
        numbers = group[:32] if text == 32 else _names(group)
        if numbers[0] or max(numbers[:16]) > numbers[16] or text + sum(numbers[16:]) != len(group):
            raise self._bad("a name that breaks off")
        return group, numbers, text

    def name(self, row: int) -> bytes:
        """Return the name of a row."""
        group, numbers, text = self._group(row)
        i = row & 15
        at = text + sum(numbers[16 : 16 + i])
        return group[text : text + numbers[i]] + group[at : at + numbers[16 + i]]

    def _names_of(self, row: int, count: int) -> Iterator[bytes]:
        """Return the names of the group that begins with a row."""
        group, numbers, at = self._group(row)
        first = group[at : at + numbers[16]]
        for shared, n in zip(numbers[:count], numbers[16:], strict=False):
            yield first[:shared] + group[at : at + n]
            at += n

    def names(self) -> Iterator[bytes]:
        """Return the names of all files."""
        flags = self._flags()
        for at in range(0, self.rows, 16):
            n = min(16, self.rows - at)
            all_ = self._names_of(at, n)
            yield from all_ if flags is None else compress(list(all_), flags[at : at + n])

    # Rows and numbers

    def row(self, number: int) -> int:
        """Return the row of the file with that number."""
        return number if self.files == self.rows else self._file_rows()[number]

    def number(self, row: int) -> int:
        """Return the number of the file in a row."""
        if self.files == self.rows:
            return row
        from bisect import bisect_left

        return bisect_left(self._file_rows(), row)

    def _file_rows(self) -> array[int]:
        """Return the rows of all files, by number."""
        if self.numbers is None:
            numbers = array("I", compress(range(self.rows), self._flags() or b""))
            if len(numbers) != self.files:
                raise self._bad(f"it has {len(numbers)} files, expected {self.files}")
            self.numbers = numbers
        return self.numbers

    def _flags(self) -> bytes | None:
        """Return a byte for each row that says whether it is a file; None if all are."""
        if self.files == self.rows:
            return None
        start, end = self.places, self.places + PLACE * self.rows
        self._check(start, end)
        m, hows = self.map, self._how
        low: bytes = m[start + 6 : end : PLACE]
        if len(hows) <= 256:
            if low and max(low) >= len(hows) or any(m[start + 7 : end : PLACE]):
                raise self._bad("a row that is like none")
            return low.translate(bytes(h.file for h in hows) + bytes(256 - len(hows)))
        both = zip(low, m[start + 7 : end : PLACE], strict=True)
        try:
            return bytes(hows[a | b << 8].file for a, b in both)
        except IndexError:
            raise self._bad("a row that is like none") from None

    def stored(self) -> range | array[int]:
        """Return the numbers of all files in stored order; a range if that is the order of numbers."""
        if not self.rows:
            return range(0)
        start, end = self.places, self.places + PLACE * self.rows
        self._check(start, end)
        flags = self._flags()
        words = bytearray(8 * self.rows)
        for i in range(8):
            words[i::8] = self.map[start + i : end : PLACE]
        places = array("Q")
        places.frombytes(words)
        if struct.pack("=H", 1) != b"\x01\x00":
            places.byteswap()
        if flags is not None:
            places = array("Q", compress(places, flags))
        if len(places) != self.files:
            raise self._bad(f"it has {len(places)} files, expected {self.files}")
        volumes = {h.volume for h in self._how if h.file and h.volume >= 0 and not h.long}
        if len(volumes) < 2 and not self._has_skips:
            at = [p & _LOW48 for p in places]
            if all(map(le, at, islice(at, 1, None))):
                return range(self.files)
            return array("I", sorted(range(self.files), key=at.__getitem__))
        keys = [(h.volume, p & _LOW48) for p in places for h in (self._how_at(p >> 48),)]
        if self._has_skips:
            self._check(self._skips, self._skips + 4 * self.rows)
            skips = [s for (s,) in struct.iter_unpack("<I", self.map[self._skips : self._skips + 4 * self.rows])]
            keys = [(*k, s) for k, s in zip(keys, skips if flags is None else compress(skips, flags), strict=True)]  # type: ignore[misc]
        if all(map(le, keys, islice(keys, 1, None))):
            return range(self.files)
        return array("I", sorted(range(self.files), key=keys.__getitem__))

    # Places

    def _how_at(self, number: int) -> How:
        try:
            return self._how[number]
        except IndexError:
            raise self._bad("a row that is like none") from None

    def _at(self, row: int) -> tuple[int, int]:
        """Return the place of a row: offset and how, length."""
        if row >= self.rows:
            raise self._bad(f"it leads to row {row} of {self.rows}")
        at = self.places + PLACE * row
        if not (self.ok[at >> 12] and self.ok[at + 11 >> 12]):
            self._check(at, at + PLACE)
        place: tuple[int, int] = _place(self.map, at)
        return place

    def _column(self, name: str, begin: int, row: int) -> int:
        """Return the value of a row in a section with four bytes for each row; 0 if there is no such section."""
        if not self._sections[name][1]:
            return 0
        at = begin + 4 * row
        self._check(at, at + 4)
        value: int = _u32(self.map, at)[0]
        return value

    def _how_of_row(self, row: int) -> How:
        return self._how_at(self._at(row)[0] >> 48)

    def runs(self, rows: list[int]) -> list[tuple[int, int, int] | None]:
        """Return volume, offset and length of files that are one uncompressed run, and None for others."""
        m, ok, places, hows, raw, n = self.map, self.ok, self.places, self._how, self._raw, self.rows
        runs: list[tuple[int, int, int] | None] = []
        for row in rows:
            at = places + PLACE * row
            if row >= n or not (ok[at >> 12] and ok[at + 11 >> 12]):
                self._at(row)
            where, length = _place(m, at)
            how = where >> 48
            runs.append((hows[how].volume, where & _LOW48, length) if how in raw else None)
        return runs

    def kind(self, row: int) -> str:
        """Return the kind of a row."""
        return self._how_of_row(row).kind

    def size(self, row: int) -> int:
        """Return the size of the content of a row."""
        where, length = self._at(row)
        how = self._how_at(where >> 48)
        return self._long(where & _LOW48)[0] if how.long else length

    def _long(self, at: int) -> tuple[int, int]:
        """Return the length and number of extents of the record at an offset in longs."""
        if at % 8 or at + 16 > self._longs_len:
            raise self._bad(f"a record at {at} of {self._longs_len} bytes")
        at += self._longs
        self._check(at, at + 16)
        length, n, _ = _record(self.map, at)
        if length >= 1 << 63:
            raise self._bad(f"a content of {length} bytes")
        return length, n

    def extents(self, row: int) -> list[Extent]:
        """Return where the content of a row is stored."""
        where, length = self._at(row)
        how = self._how_at(where >> 48)
        offset = where & _LOW48
        if how.fault:
            raise DamagedError(self.archive, "it could not be read when the index was made", self._text(row))
        if how.ask:
            raise UnsupportedError(self.archive, "the index does not say where it lies; holdall cat reads it", self._text(row))
        if how.long:
            return self._extents(offset)
        if how.volume < 0:
            if length:
                raise self._bad(f"row {row} has {length} bytes and no place")
            return []
        if how.codec == RAW:
            return [Extent(0, length, how.volume, offset, length, 0, RAW)]
        stored = self._column("stored", self._stored, row)
        skip = 0 if how.whole else self._column("skips", self._skips, row)
        return [Extent(0, length, how.volume, offset, stored, skip, how.codec)]

    def _extents(self, place: int) -> list[Extent]:
        """Return the extents of a record in longs."""
        size, n = self._long(place)
        place += 16
        if n > (self._longs_len - place) // 48:
            raise self._bad(f"a record of {n} extents at {place} of {self._longs_len} bytes")
        if not n:
            return []
        self._check(self._longs + place, self._longs + place + 48 * n)
        extents: list[Extent] = []
        end = 0
        for i in range(n):
            at, length, offset, stored, skip, volume, codec = _extent(self.map, self._longs + place + 48 * i)
            if at < end or at + length > size or max(offset, stored, skip) >= 1 << 62:
                raise self._bad(f"an extent of {length} bytes at {at} of a content of {size}")
            end = at + length
            data = b""
            if volume == _NONE32:
                if offset + length > self._longs_len:
                    raise self._bad(f"inline bytes from {offset} to {offset + length} of {self._longs_len}")
                if length:
                    self._check(self._longs + offset, self._longs + offset + length)
                    data = self.map[self._longs + offset : self._longs + offset + length]
                volume, codec = INLINE, RAW
            else:
                codec = RAW if codec == _NONE32 else codec
                if volume >= len(self.volumes) or codec >= len(self.codecs) or codec == RAW and stored != length:
                    raise self._bad("an extent in a volume or by a codec that is not there")
            extents.append(Extent(at, length, volume, offset, stored, skip, codec, data))
        return extents

    # Extents and digests

    def proof(self, row: int) -> Proof | None:
        """Return what the content of a row is compared with."""
        how = self._how_of_row(row)
        if self.chunk:
            size = self.size(row)
            if self.pages is None or not (how.file and size) or how.fault:
                return None
            proof: Proof = self.pages.proof(self._column("firsts", self._firsts, row), size)
            return proof
        if how.digest < 0 or self._runs < 0:
            return None
        algo, length = self.digests[how.digest]
        return Proof(algo, self._digest(row, length))

    def _digest(self, row: int, length: int) -> bytes:
        """Return the digest of a row, which is after the rows of a page."""
        if not length:
            return b""
        group = row >> 4
        place = self._sums_at + 8 * group
        self._check(place, place + 8)
        at: int = _u64(self.map, place)[0]
        for before in range(group << 4, row):
            kind = self._how_of_row(before).digest
            if kind >= 0:
                at += self.digests[kind][1]
        low, high = 0, self._runs
        while high - low > 1:
            mid = (low + high) // 2
            if self._run(mid)[0] <= at:
                low = mid
            else:
                high = mid
        begin, offset, crc = self._run(low)
        end = self._run(low + 1)[0] if self._runs else 0
        if not begin <= at <= end - length or end - begin > MAX_RUN:
            raise self._bad(f"a digest at {at} of {end}")
        start = self.pages_at + offset
        if start + end - begin > self._obj.size:
            raise self._bad("digests after its end")
        run = self.map[start : start + end - begin] if not self._far else self._far_run(start, end - begin)
        if not self._checked[low]:
            if crc32(run) != crc:
                raise self._bad(f"digests of a page at {start} are damaged: the CRC-32 is another")
            self._checked[low] = not self._far
        digest: bytes = run[at - begin : at - begin + length]
        return digest

    def _run(self, i: int) -> tuple[int, int, int]:
        """Return where the digests of a page begin if they are after the table, and their checksum."""
        at = self._runs_at + RUN * i
        self._check(at, at + RUN)
        run: tuple[int, int, int] = _run(self.map, at)
        return run

    def _far_run(self, start: int, length: int) -> bytes:
        """Return the digests of a page of a remote index, and keep them."""
        run = self._fetched.get(start)
        if run is None:
            run = self._fetched[start] = self._obj.read(start, length)
            if len(self._fetched) > MAX_FETCHED:
                self._fetched.pop(next(iter(self._fetched)), None)
        return run

    def _text(self, row: int) -> str:
        return text(self.name(row))

    def _bad(self, reason: str) -> DamagedError:
        return DamagedError(self._obj.name, reason)

    def close(self) -> None:
        """Close the index. The map ends with its last user."""
        self._obj.close()


def _count(n: Any, below: int) -> int:
    """Check that a number is not negative and less than a limit."""
    if type(n) is not int or not 0 <= n < below:
        raise ValueError(f"a number that cannot be: {n!r}")
    return n
