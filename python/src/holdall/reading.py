"""Reads contents: from the places in a list of files, through decoders, compared with digests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from operator import index as as_number
from typing import Any, cast

from . import codecs, digests, outside
from .digests import Digest
from .errors import DamagedError, HoldallError, NotFoundError, StaleIndexError, UnsupportedError, UntrustedError
from .listing import INLINE, RAW, Closed, Extent, Proof, Rows, text
from .objects import FAR_GAP, NEAR_GAP, Object, Ranges

NEAR_JOINED = 256 << 10  # of ranges that are read as one: the size of a processor's cache
FAR_JOINED = 8 << 20
MAX_STORED = 32 << 20  # size of a unit that is kept in memory; longer ones are read as streams
MAX_MADE = 16 << 20  # size of a decoded unit that is kept for adjacent files
MAX_KEPT = 64 << 20  # size of everything that is kept
MAX_OPEN = 256  # open objects; others are opened for each read
AT_ONCE = 1 << 20  # of a longer unit
MAX_ZEROS = 1 << 30  # zeros that are stored nowhere, in one read

Unit = tuple[int, int, int]  # volume, offset, codec


class Reader:
    """Reads the files of an archive."""

    _depth = 5  # how many frames a warning is below the program's

    def __init__(self, found: Any) -> None:
        self.rows: Rows = found.rows
        self.find: Callable[[bytes], int] = found.rows.find
        self.archive: Object = found.archive
        self.volumes: list[tuple[str, bool]] = found.volumes
        self.codecs: list[str] = found.codecs
        self._external: bool | None = found.external
        self._objects: dict[int, Object] = {}
        self._units: dict[Unit, bytes] = {}
        self._digests, self.unverified = _digests(found)
        self.verifies = not self.unverified
        self.copied: bool = found.copied
        if found.verify and self.unverified:
            raise UnsupportedError(self.archive.name, f"contents cannot be compared with digests: {self.unverified}")
        if found.verify is None and self.unverified and found.rows.algos:
            _warn(self.archive.name, self.unverified, self._depth)

    def close(self) -> None:
        """Close the reader."""
        for obj in [*self._objects.values(), self.archive]:
            obj.close()
        self._units = {}
        self.rows = cast(Rows, Closed(self.archive.name))

    def row(self, which: str | int) -> int:
        """Return the row of a name or a number."""
        if isinstance(which, str):
            try:
                row = self.find(which.encode("utf-8", "surrogateescape"))
            except UnicodeEncodeError:  # such names do not exist
                row = -1
            if row < 0:
                raise NotFoundError(self.archive.name, "there is no such file", which)
            return row
        i, n = as_number(which), self.rows.files
        if not -n <= i < n:
            raise NotFoundError(self.archive.name, f"there is no file {i} of {n}")
        return self.rows.row(i % n)

    def read(self, which: str | int) -> bytes:
        """Return the content of a file, by its name or number."""
        return self.get(self.row(which))

    def get(self, row: int) -> bytes:
        """Return the whole content."""
        size = self.rows.size(row)
        data = self._content(row, 0, size)
        if self.verifies:
            self._compare(row, data, 0, size)
        return data

    def part(self, row: int, start: int = 0, end: int | None = None) -> bytes:
        """Return a part of a content. It is compared if there are digests of parts, or if the whole content is short.
        """
        size = self.rows.size(row)
        start, end, _ = slice(start, end).indices(size)
        if start >= end:
            self.rows.extents(row)  # this raises the error
            return b""
        proof = self.rows.proof(row) if self.verifies else None
        span = proof.compared(size, start, end) if proof else None
        if span is None:
            if self.copied:
                raise self._doubtful(row)
            return self._content(row, start, end)
        data = self._content(row, *span)
        self._compare(row, data, span[0], size)
        return data[start - span[0] : end - span[0]]

    def many(self, rows: list[int]) -> list[bytes]:
        """Return the contents of several files."""
        contents: list[bytes] = [b""] * len(rows)
        runs: dict[int, list[tuple[int, int, int]]] = {}  # for each volume: offset, length, which file
        others: list[tuple[int, Extent]] = []
        for i, run in enumerate(self.rows.runs(rows)):
            if run is not None:
                runs.setdefault(run[0], []).append((run[1], run[2], i))
            else:
                others += [(i, e) for e in self.rows.extents(rows[i])]
        for volume, ours in runs.items():
            for (_, length, i), data, at in _joined(self.object(volume), ours):
                contents[i] = data[at : at + length]
        if others or len(contents) > sum(map(len, runs.values())):
            parts: dict[int, list[tuple[int, bytes]]] = {}
            for i, at, data in self._fetch(others):
                parts.setdefault(i, []).append((at, data))
            plain = {i for ours in runs.values() for _, _, i in ours}
            for i, row in enumerate(rows):
                if i not in plain:
                    contents[i] = self._assembled(row, parts.get(i, []), 0, self.rows.size(row))
        if self.verifies:
            for row, data in zip(rows, contents, strict=True):
                self._compare(row, data, 0, len(data))
        return contents

    # Reading bytes

    def object(self, volume: int) -> Object:
        """Return the object of a volume."""
        obj = self._objects.get(volume)
        if obj is None:
            obj = self._opened(volume)
            if obj is not self.archive and len(self._objects) < MAX_OPEN:
                obj = self._objects.setdefault(volume, obj)
        return obj

    def _opened(self, volume: int) -> Object:
        name, external = self.volumes[volume]
        if external:
            return outside.find(self.archive, name, self._external)
        return self.archive.beside(name) if name else self.archive

    def _content(self, row: int, start: int, end: int) -> bytes:
        """Return the bytes [start, end) of a content."""
        extents = self.rows.extents(row)
        if len(extents) == 1:
            e = extents[0]
            if e.codec == RAW and e.volume != INLINE and start >= e.at and end <= e.at + e.length:
                return self.object(e.volume).read(e.offset + start - e.at, end - start)
        parts = []
        for e in extents:
            first, last = max(start - e.at, 0), min(end - e.at, e.length)
            if first < last:
                parts.append((e.at + first, self._piece(row, e, first, last)))
        return self._assembled(row, parts, start, end)

    def _assembled(self, row: int, parts: list[tuple[int, bytes]], start: int, end: int) -> bytes:
        """Return the bytes [start, end) from their parts. The rest is zeros."""
        zeros = end - start - sum(len(data) for _, data in parts)
        if zeros > MAX_ZEROS:
            raise HoldallError(self.archive.name, f"{zeros} bytes of zeros in one read, over the limit of {MAX_ZEROS}: read it in parts", self._name(row))
        if len(parts) == 1 and not zeros:
            return parts[0][1]
        pieces = []
        for at, data in sorted(parts):
            pieces += [bytes(max(at - start, 0)), data]
            start = at + len(data)
        return b"".join([*pieces, bytes(end - start)])

    def _piece(self, row: int, e: Extent, first: int, last: int) -> bytes:
        """Return the bytes [first, last) of an extent."""
        if e.volume == INLINE:
            return e.data[first:last]
        obj = self.object(e.volume)
        if e.codec == RAW:
            return obj.read(e.offset + e.skip + first, last - first)
        if (made := self._kept(e, last)) is None:
            if _is_long(e):
                return self._streamed(row, e, first, last)
            made = self._decoded(row, e, obj.read(e.offset, self._stored(obj, e)), last)
        return made[e.skip + first : e.skip + last]

    def _kept(self, e: Extent, last: int) -> bytes | None:
        """Return the unit of an extent, if it was kept and reaches so far."""
        made = self._units.get((e.volume, e.offset, e.codec))
        return made if made is not None and len(made) >= e.skip + last else None

    def _stored(self, obj: Object, e: Extent) -> int:
        """Return how many bytes of a unit to read. A record's end is not stored, so its length may be too large."""
        return max(min(e.stored, obj.size - e.offset), 0) if self.codecs[e.codec].endswith("-record") else e.stored

    def _decoded(self, row: int, e: Extent, stored: bytes, last: int) -> bytes:
        """Decode a unit: at least up to last, and usually all of it."""
        need = e.skip + last
        most = max(need, MAX_MADE)
        made = self._undo(row, e, lambda: codecs.whole(self.codecs[e.codec], stored, most))
        if len(made) < need:
            raise self._damaged(row, f"a unit at {e.offset} becomes {len(made)} bytes, expected {need}")
        if len(made) != e.length:  # it contains other files too
            self._keep((e.volume, e.offset, e.codec), made)
        return made

    def _keep(self, unit: Unit, made: bytes) -> None:
        """Keep a decoded unit, and drop the oldest ones."""
        units = self._units
        units.pop(unit, None)
        units[unit] = made
        kept = [(u, len(m)) for u, m in list(units.items())]
        total = sum(n for _, n in kept)
        while total > MAX_KEPT and len(kept) > 1:
            u, n = kept.pop(0)
            units.pop(u, None)
            total -= n

    def _streamed(self, row: int, e: Extent, first: int, last: int) -> bytes:
        """Return a part of a unit that is too long for memory."""

        def read() -> bytes:
            obj, end = self.object(e.volume), e.offset + e.stored
            stored = codecs.Parts(obj.read(at, min(AT_ONCE, end - at)) for at in range(e.offset, end, AT_ONCE))
            file = codecs.stream(self.codecs[e.codec], stored)
            left = e.skip + first
            while left > 0:
                passed = len(file.read(min(left, AT_ONCE)))
                if not passed:
                    return b""
                left -= passed
            return codecs.fill(file, last - first)

        data = self._undo(row, e, read)
        if len(data) != last - first:
            raise self._damaged(row, f"a unit at {e.offset} becomes fewer than {e.skip + last} bytes")
        return data

    def _undo(self, row: int, e: Extent, decode: Callable[[], bytes]) -> bytes:
        try:
            return decode()
        except HoldallError:
            raise
        except codecs.MissingDecoder as err:
            raise UnsupportedError(self.archive.name, str(err), self._name(row)) from err
        except Exception as err:  # each decoder has its own errors
            raise self._damaged(row, f"a unit at {e.offset} cannot be decoded: {err or type(err).__name__}") from err

    def _fetch(self, wanted: list[tuple[int, Extent]]) -> Iterator[tuple[int, int, bytes]]:
        """Yield extents with their bytes: the file, the offset in it, and the bytes. Each unit is decoded once."""
        units: dict[int, dict[tuple[int, int], list[tuple[int, Extent]]]] = {}
        for i, e in wanted:
            if e.volume == INLINE or e.codec != RAW and (self._kept(e, e.length) or _is_long(e)):
                yield i, e.at, self._piece(-1, e, 0, e.length)
            else:
                units.setdefault(e.volume, {}).setdefault((e.offset + (e.skip if e.codec == RAW else 0), e.codec), []).append((i, e))
        for volume, ours in units.items():
            obj = self.object(volume)
            reads = [(key[0], max(e.stored if e.codec == RAW else self._stored(obj, e) for _, e in group), key[1]) for key, group in ours.items()]
            for (offset, _, codec), data, at in _joined(obj, reads):
                group = ours[offset, codec]
                if codec != RAW:
                    last = max(group, key=lambda w: w[1].skip + w[1].length)[1]
                    made = self._decoded(-1, last, data[at : at + last.stored], last.length)
                for i, e in group:
                    yield i, e.at, data[at : at + e.length] if codec == RAW else made[e.skip : e.skip + e.length]

    # Comparing bytes

    def _compare(self, row: int, data: bytes, first: int, size: int) -> None:
        """Compare the bytes of a content from first with its digests."""
        proof = self.rows.proof(row)
        if proof is None or not proof.chunk and proof.algo not in self._digests:
            if self.copied and size:
                raise self._doubtful(row)
            return
        if not proof.chunk:
            if self._digests[proof.algo](data) != proof.sum:
                raise self._damaged(row, f"its {proof.algo} is not what it should be")
            return
        for at in range(first, first + len(data), proof.chunk):
            piece = data[at - first : at - first + proof.chunk]
            expected = proof.sums[at // proof.chunk]
            if expected == bytes(32):
                raise self._damaged(row, f"nothing proves the piece at {at}: it was damaged when the index was made")
            if self._digests["blake3"](piece) != expected:
                raise self._damaged(row, f"the BLAKE3 of the piece at {at} is not what it should be")

    def _name(self, row: int) -> str | None:
        return text(self.rows.name(row)) if row >= 0 else None

    def _doubtful(self, row: int) -> HoldallError:
        if getattr(self.rows, "trusted", False):
            return UntrustedError(self.archive.name, "nothing proves what is read", self._name(row))
        reason = "its index was made before the archive was copied, and nothing proves what is read; make the index again"
        return StaleIndexError(self.archive.name, reason, self._name(row))

    def _damaged(self, row: int, reason: str) -> DamagedError:
        return DamagedError(self.archive.name, reason, self._name(row))


def _is_long(e: Extent) -> bool:
    """Return whether an extent is in a unit that is not kept in memory."""
    return max(e.stored, e.skip + e.length) > MAX_STORED


def _joined(obj: Object, runs: list[tuple[int, int, int]]) -> Iterator[tuple[tuple[int, int, int], bytes, int]]:
    """Yield runs of stored bytes in their order, each with bytes that contain it, and where it begins there.

    Runs that are close together are read as one.
    """
    runs.sort()
    gap, most = (NEAR_GAP, NEAR_JOINED) if obj.near or obj.blocks else (FAR_GAP, FAR_JOINED)  # a cache joins what is missing
    ranges: Ranges = []
    groups: list[list[tuple[int, int, int]]] = []
    start = end = -gap - 1
    for run in runs:
        last = run[0] + run[1]
        if run[0] <= end + gap and (last <= end or last - start <= most):
            end = max(end, last)
            groups[-1].append(run)
            ranges[-1] = start, end - start
        else:
            start, end = run[0], last
            groups.append([run])
            ranges.append((start, end - start))
    datas = map(obj.read, *zip(*ranges, strict=True)) if obj.near else obj.read_many(ranges)
    for (start, _), group, data in zip(ranges, groups, datas, strict=True):
        for run in group:
            yield run, data, run[0] - start


def unverified(found: Any) -> str:
    """Return why contents are not compared with digests, or ""."""
    return _digests(found)[1]


def _digests(found: Any) -> tuple[dict[str, Digest], str]:
    """Return what computes the digests to compare contents with, or why there is nothing."""
    made: dict[str, Digest] = {}
    why = "verify is False" if found.verify is False else "" if found.rows.algos else "the archive has no digests"
    for a in () if why else found.rows.algos:
        try:
            made[a] = digests.find(a)
        except ImportError as err:
            why = f"the package {err.name} is not installed" if err.name else str(err)
    return made, "" if made else why


_warned: set[str] = set()


def _warn(archive: str, why: str, depth: int) -> None:
    """Warn once that contents are not compared although the archive has digests."""
    if why not in _warned:
        message = f"{archive}: contents are not compared with their digests: {why}; verify=True refuses this, verify=False allows it without a warning"
        warnings.warn(message, RuntimeWarning, stacklevel=depth)
        _warned.add(why)  # a warning that is an error comes again
