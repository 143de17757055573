"""A cache on a disk for objects of servers, which all processes of a machine share, also those of the command.

docs/bytes/cache.md describes its files and its locks. Only what has the lock of the table changes anything. Readers take no
lock: checksums show whether a slot and its block are whole. So whatever happens to the files, a block is right or
missing. If something fails, objects are read as without a cache.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet
from zlib import crc32

if TYPE_CHECKING:
    from .objects import Far, Ranges

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
R = TypeVar("R")

MAGIC, EDITION = b"HOLDBLK\n", 1
BLOCK = 256 << 10  # bytes of an object in one block
PIECE = 4 << 10  # bytes of a block with one checksum
RECORD, BUCKET, SLOTS_AT = 64, 8 * 64, 2 * 64
LEAST, MOST, USUAL = 16 << 20, 1 << 50, 10 << 30  # bytes of all files
RUN = 17  # blocks that are fetched by one request: 4 MiB anywhere
AT_ONCE = 16  # requests
# A process that was stopped, not killed, keeps its locks. Others then do without, after these seconds.
TO_WRITE, TO_FETCH = 2.0, 30.0

_HEADER, _STATE, _SLOT = struct.Struct("<8s4I2Q16s4x"), struct.Struct("<I4xQ44x"), struct.Struct("<32sQ3I8x")
Slot = tuple[bytes, int, int, int, int]  # key, offset, segment, length, CRC-32 of the checksums


class _DamagedTable(OSError):
    pass


class Head:
    """What the table says of itself: the header, which never changes, and the state."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        magic, *kind, self.buckets, self.segments, self.segment, self.limit, id_ = _HEADER.unpack(raw.ljust(RECORD, b"\0")[:60])
        self.size, self.seed = SLOTS_AT + BUCKET * self.buckets, crc32(id_)
        if any(raw) and (magic != MAGIC or kind != [EDITION, BLOCK]):
            raise OSError(f"expected a table of cached blocks of edition {EDITION}, found another file: choose another folder")
        fits = self.buckets > 0 and self.segments > 1 and self.segment >= 2 * BLOCK and self.limit <= MOST
        if len(raw) < SLOTS_AT or not fits or self.size + self.segment * self.segments > self.limit or not self._sealed(raw[:RECORD]):
            raise _DamagedTable("its table is damaged")
        self.current, self.next = _STATE.unpack(raw[RECORD:-4])
        self.sound = self._sealed(raw[RECORD:]) and self.segments <= self.current < 0xFFFFFFFF and self.next <= self.segment

    def _sealed(self, record: bytes) -> bool:
        return crc32(record[:-4], self.seed) == int.from_bytes(record[-4:], "little")

    def live(self, segment: int) -> bool:
        """Return whether a segment is one of those that are kept."""
        return not self.sound or 0 <= self.current - segment < self.segments

    def places(self, key: bytes) -> list[int]:
        """Return where the two buckets begin in which a key may have its slot."""
        return [SLOTS_AT + BUCKET * (n % self.buckets) for n in struct.unpack("<2Q", key[:16])]

    def slot(self, record: bytes) -> Slot | None:
        """Parse a slot. None is empty or damaged, or its segment was removed."""
        slot: Slot = _SLOT.unpack(record[:60])
        _, offset, segment, length, _ = slot
        fits = length <= BLOCK and offset + length + sums_len(length) <= self.segment
        return slot if fits and self._sealed(record) and self.live(segment) else None

    def choose(self, key: bytes, buckets: list[bytes]) -> tuple[int, int]:
        """Return where a slot is written: over that of its key, else in the emptier bucket, else over the oldest."""
        free: list[list[int]] = [[], []]
        full = []
        for i, bucket in enumerate(buckets):
            for at in range(0, BUCKET, RECORD):
                slot = self.slot(bucket[at : at + RECORD])
                if slot is None:
                    free[i].append(at)
                elif slot[0] == key:
                    return i, at
                else:
                    full.append((slot[2], slot[1], i, at))
        i = int(len(free[1]) > len(free[0]))
        return (i, free[i][-1]) if free[i] else min(full)[2:]


def seal(record: bytes, seed: int) -> bytes:
    """End a record with its checksum, which depends on the table that it is in."""
    return record + crc32(record, seed).to_bytes(4, "little")


def new_table(limit: int, id_: bytes) -> bytes:
    """Return the first records of a table for that many bytes."""
    buckets = limit // (2 * BLOCK)
    left = limit - SLOTS_AT - BUCKET * buckets
    segments = min(max(left // (32 * BLOCK), 8), 64)
    header = _HEADER.pack(MAGIC, EDITION, BLOCK, buckets, segments, left // segments, limit, id_)
    # Segments of an earlier table had other numbers.
    state = _STATE.pack(int.from_bytes(id_[:4], "little") // 4 + segments, 0)
    return seal(header, crc32(id_)) + seal(state, crc32(id_))


def sums_len(length: int) -> int:
    return (length + PIECE - 1) // PIECE * 4


def sums_of(data: bytes) -> bytes:
    """Return the checksums of the pieces of a block."""
    view = memoryview(data)
    return b"".join([crc32(view[at : at + PIECE]).to_bytes(4, "little") for at in range(0, len(data), PIECE)])


def lock_of(key: bytes) -> int:
    """Return the byte of the lock file that is locked while a block is fetched."""
    return int.from_bytes(key[:8], "little") // 4 + 1


def _lock(fd: int, at: int, kind: int) -> bool:
    """Take or give up the lock of a byte, and return whether that was possible."""
    try:
        if sys.platform == "linux":  # a lock is of an opening of the file, elsewhere of the process
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, at, 1, 0))
        else:
            fcntl.lockf(fd, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _open_regular(path: str) -> int:
    """Open or make a file. Others may have put something else in its place."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path}: expected a regular file")
    return fd


def _write(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError("the disk is full")


class Files:
    """The open files of a cache. A process has them once, and a forked one opens its own."""

    table = lock = -1

    def __init__(self, folder: str) -> None:
        self.folder, self.limit = folder, 0  # the limit is what the header said last
        self._head: Head | None = None
        self._writing = threading.Lock()  # held with the lock of the table
        self._fetched: dict[int, threading.Event] = {}  # blocks that this process fetches, by their locks
        _all.add(self)
        self.table = _open_regular(os.path.join(folder, "blocks.table"))
        self.lock = _open_regular(os.path.join(folder, "blocks.lock"))

    def close(self) -> None:
        fds, self.table, self.lock = (self.table, self.lock), -1, -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    __del__ = close

    def present(self) -> bool:
        """Return whether the folder still has the table."""
        try:
            return os.path.samestat(os.stat(os.path.join(self.folder, "blocks.table")), os.fstat(self.table))
        except OSError:
            return False

    def head(self) -> Head:
        """Read the head of the table."""
        raw, head = os.pread(self.table, SLOTS_AT, 0), self._head
        if head is None or head.raw != raw:
            head = self._head = Head(raw)
        return head

    def prepare(self, most: int) -> None:
        """Make the table, if there is none that can be used, and remove what killed processes left."""
        with self._changing():
            with suppress(_DamagedTable):
                h = self.head()
                self.limit = h.limit
                if h.sound and most in (0, h.limit) and os.fstat(self.table).st_size == h.size:
                    return self._sweep(h.live)
            self._make(most or self.limit or USUAL)

    def _make(self, limit: int) -> Head:
        """Empty the cache."""
        table, self.limit = new_table(limit, os.urandom(16)), limit
        self._sweep(lambda segment: False)
        # Until the header is there, other processes see a damaged table.
        os.truncate(self.table, 0)
        os.truncate(self.table, Head(table).size)
        _write(self.table, table, 0)
        return self.head()

    def _sweep(self, keep: Callable[[int], bool]) -> None:
        """Remove the segments that are not wanted."""
        for name in os.listdir(self.folder):
            if (m := re.fullmatch("segment-([0-9a-f]{8})", name)) and not keep(int(m[1], 16)):
                self._remove(int(m[1], 16))

    def _segment(self, n: int) -> str:
        return f"{self.folder}/segment-{n:08x}"

    def _remove(self, n: int) -> None:
        with suppress(FileNotFoundError):
            os.remove(self._segment(n))

    def find(self, key: bytes) -> Slot | None:
        """Return the slot of a block."""
        with suppress(OSError):
            h = self.head()
            for place in h.places(key):
                bucket = os.pread(self.table, BUCKET, place)
                at = bucket.find(key)
                while 0 <= at and len(bucket) == BUCKET:
                    if at % RECORD == 0 and (slot := h.slot(bucket[at : at + RECORD])):
                        return slot
                    at = bucket.find(key, at + 1)
        return None

    def read(self, key: bytes, length: int, parts: list[tuple[int, int]]) -> list[bytes | None]:
        """Return ranges [start, end) of a block, those that are there as they were written. Only the pieces that they are
        in are read and compared. Segments are opened for each call, so that a removed one takes no space.
        """
        found: list[bytes | None] = [None] * len(parts)
        slot = self.find(key)
        if slot is None or slot[3] != length:
            return found
        _, at, segment, _, crc = slot
        n = sums_len(length)
        with suppress(OSError):
            fd = os.open(self._segment(segment), os.O_RDONLY | os.O_NONBLOCK)
            try:
                sums = os.pread(fd, n, at)
                for i, (start, end) in enumerate(parts) if crc32(sums) == crc else ():
                    first, last = start // PIECE, (end + PIECE - 1) // PIECE
                    data = os.pread(fd, min(last * PIECE, length) - first * PIECE, at + n + first * PIECE)
                    if sums_of(data) == sums[4 * first : 4 * last]:
                        found[i] = data[start - first * PIECE : end - first * PIECE]
            finally:
                os.close(fd)
        return found

    def write(self, key: bytes, data: bytes) -> None:
        """Keep a block, or do not if that is not possible. Room is reserved first: a killed process leaves a hole,
        which goes with its segment.
        """
        with suppress(OSError), self._changing():
            if not self.present():
                return
            try:
                h = self.head()
            except _DamagedTable:
                h = self._make(self.limit)
            if not h.sound:
                h = self._make(self.limit)
            sums, current, at = sums_of(data), h.current, h.next
            if at + len(sums) + len(data) > h.segment:
                current, at = current + 1, 0
                self._remove(current - h.segments)
                self._remove(current)
            _write(self.table, seal(_STATE.pack(current, at + len(sums) + len(data)), h.seed), RECORD)
            fd = _open_regular(self._segment(current))
            try:
                _write(fd, sums + data, at)
            finally:
                os.close(fd)
            places = h.places(key)
            i, o = self.head().choose(key, [os.pread(self.table, BUCKET, place) for place in places])
            # Without its slot, a block is not found.
            _write(self.table, seal(_SLOT.pack(key, at, current, len(data), crc32(sums)), h.seed), places[i] + o)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of all that is changed."""
        with self._writing:
            if not self._await(0, TO_WRITE):
                raise OSError("another process keeps it locked")
            try:
                yield
            finally:
                _lock(self.lock, 0, fcntl.F_UNLCK)

    def _await(self, at: int, patience: float) -> bool:
        """Wait for a lock, and return whether it is held."""
        pause = 0.001
        while not (held := _lock(self.lock, at, fcntl.F_WRLCK)) and patience > 0:
            time.sleep(pause)
            patience, pause = patience - pause, min(2 * pause, 0.032)
        return held

    def hold(self, key: bytes, wait: bool) -> tuple[Callable[[], None] | None, bool]:
        """Take the lock of a block that is to be fetched. Return what releases it, and whether another reader had it.

        If wait is not set and another reader has it, nothing releases it.
        """
        at, done, waited, held = lock_of(key), threading.Event(), False, False
        while (other := self._fetched.setdefault(at, done)) is not done:
            if not wait:
                return None, True
            waited = True
            other.wait()

        def release() -> None:
            if not done.is_set():
                if held:
                    _lock(self.lock, at, fcntl.F_UNLCK)
                del self._fetched[at]
                done.set()

        try:
            with suppress(OSError):  # without a lock, the block is fetched nevertheless
                held = self._await(at, 0)
                if not held and wait:
                    waited = True
                    held = self._await(at, TO_FETCH)
        except BaseException:
            release()
            raise
        if held or wait:
            return release, waited
        release()
        return None, True


_all: WeakSet[Files] = WeakSet()
_opened: dict[str, Files] = {}
_opening = threading.Lock()
_looking = threading.Lock()
_warned: set[str] = set()


def _forked() -> None:
    """Close what is shared with the parent: its locks would last as long as this process."""
    global _opening, _looking
    _opening, _looking = threading.Lock(), threading.Lock()
    _opened.clear()
    for files in list(_all):
        files.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Cache:
    """A folder on a disk with blocks of objects of servers. If the size is 0, it is that of the cache that is there."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder, self.size, self._usable = os.path.realpath(folder), size, True

    def files(self, check: bool = False) -> Files | None:
        """Return the open files, or None if they cannot be used."""
        files = _opened.get(self.folder)
        if self._usable and (files is None or check):
            try:
                with _opening:
                    files = self._open()
            except OSError as err:
                self._usable = False
                if self.folder not in _warned:
                    warnings.warn(f"the cache {self.folder} is not used: {err}", RuntimeWarning, stacklevel=2)
                    _warned.add(self.folder)
        return files if self._usable else None

    def _open(self) -> Files:
        if fcntl is None:
            raise OSError("Python takes no locks of ranges on this system")
        if self.size and not LEAST <= self.size <= MOST:
            raise OSError(f"a cache of {self.size} bytes: expected at least {LEAST} and at most {MOST}")
        os.makedirs(self.folder, 0o700, exist_ok=True)  # contents of archives may be private
        files = _opened.get(self.folder)
        if files is None or not files.present():
            files = Files(self.folder)
        with suppress(OSError):
            if files.limit and self.size in (0, files.head().limit):
                return files
        files.prepare(self.size)
        _opened[self.folder] = files
        return files


def named(folder: Any, size: int | str | None) -> Cache | None:
    """Return the cache that a program or the environment names, or None."""
    folder = os.environ.get("HOLDALL_CACHE_DIR") if folder is None else folder
    size = os.environ.get("HOLDALL_CACHE_SIZE") or 0 if size is None else size
    most = size if isinstance(size, int) else _bytes(size)
    return Cache(os.fspath(folder), most) if folder else None


def _bytes(text: str) -> int:
    """Parse a size: 4096, 30GB (decimal), 64MiB (binary)."""
    m = re.fullmatch(r"\s*(\d+\.?\d*(?:e\d\d?)?)\s*(?:([kmgt])(ib|b|)|b|)\s*", text.lower())
    size = float(m[1]) * (1000 if m[3] == "b" else 1024) ** (" kmgt".index(m[2] or " ")) if m else -1
    if not 0 <= size < 1 << 63:
        raise ValueError(f"a cache of {text!r}: expected a size such as 4096, 30GB or 64MiB")
    return int(size)


def at_once(do: Callable[[T], R], what: list[T]) -> list[R]:
    """Call a function that sends requests, in threads if it is for several things."""
    if len(what) < 2:
        return list(map(do, what))
    with ThreadPoolExecutor(min(AT_ONCE, len(what))) as pool:
        return list(pool.map(do, what))


class Blocks:
    """The blocks of a version of an object."""

    def __init__(self, cache: Cache, size: int, version: str, identity: str) -> None:
        self._cache, self._size = cache, size
        self._before = f"{version}\0{size}\0".encode("latin-1", "replace")
        self._after = b"\0" + identity.encode("utf-8", "surrogateescape")

    def block(self, n: int) -> tuple[bytes, int, int]:
        """Return the key of a block, and where it begins and ends."""
        key = sha256(b"%s%d%s" % (self._before, n, self._after)).digest()
        return key, n * BLOCK, min((n + 1) * BLOCK, self._size)

    def read(self, obj: Far, offset: int, length: int) -> bytes:
        """Return bytes that the object has. What is missing is fetched."""
        files = self._cache.files()
        return self._read(files, offset, offset + length, obj) or b"" if files else obj.fetch(offset, length)

    def read_many(self, obj: Far, ranges: Ranges) -> list[bytes]:
        """Return several ranges. Missing ones in blocks that touch are requested together."""
        files = self._cache.files()
        if files is None:
            return obj.fetch_many(ranges)
        found: list[bytes | None] = [None] * len(ranges)
        inside: dict[int, list[int]] = {}  # ranges by their block
        with _looking:  # threads that look at once only take turns in the interpreter, which takes longer
            for i, (offset, length) in enumerate(ranges):
                if offset // BLOCK == (offset + length - 1) // BLOCK:
                    inside.setdefault(offset // BLOCK, []).append(i)
                else:
                    found[i] = self._read(files, offset, offset + length)
            for n, some in inside.items():
                key, begin, stop = self.block(n)
                parts = [(ranges[i][0] - begin, sum(ranges[i]) - begin) for i in some]
                for i, data in zip(some, files.read(key, stop - begin, parts), strict=True):
                    found[i] = data
        runs: list[list[int]] = []  # offset, end, and which ranges
        for (offset, length), i in sorted((r, i) for i, r in enumerate(ranges) if found[i] is None):
            end, run = offset + length, runs[-1] if runs else [0, 0]
            if run[1] and offset // BLOCK <= (run[1] - 1) // BLOCK + 1 and (end - 1) // BLOCK - run[0] // BLOCK < RUN:
                run[1] = max(run[1], end)
                run.append(i)
            else:
                runs.append([offset, end, i])
        for run, whole in zip(runs, at_once(lambda run: self.read(obj, run[0], run[1] - run[0]), runs), strict=True):
            for i in run[2:]:
                at = ranges[i][0] - run[0]
                found[i] = whole[at : at + ranges[i][1]]
        return [data or b"" for data in found]

    def _read(self, files: Files, offset: int, end: int, obj: Far | None = None) -> bytes | None:
        """Return the bytes [offset, end). If some are missing, they are fetched, or there is no object to do that."""
        parts = []
        while offset < end:
            n = offset // BLOCK
            key, begin, stop = self.block(n)
            part = (key, stop - begin, [(offset - begin, min(end, stop) - begin)])
            (data,) = files.read(*part)
            if data is None:
                if obj is None:
                    return None
                with ExitStack() as held:
                    release, waited = files.hold(key, True)
                    assert release is not None
                    held.callback(release)
                    (data,) = files.read(*part)  # another reader may have fetched it
                    if data is None:
                        if waited:
                            release()  # that reader failed, and so may this one: the others need not wait for it too
                        data = self._fetched(files, obj, n, end, held)[offset - begin : end - begin]
            parts.append(data)
            offset += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fetched(self, files: Files, obj: Far, n: int, end: int, held: ExitStack) -> bytes:
        """Fetch a block, and those after it that are needed up to an offset and that nobody has or fetches. This waits
        for none of them, so readers cannot wait for each other.
        """
        key, begin, stop = self.block(n)
        keys = [key]
        while stop < end and len(keys) < RUN:
            key, _, after = self.block(n + len(keys))
            release, _ = files.hold(key, False)
            if release is None:
                break
            held.callback(release)
            if files.find(key):
                break
            keys.append(key)
            stop = after
        data = obj.fetch(begin, stop - begin)
        if obj.unchanged():
            for i, key in enumerate(keys):
                files.write(key, data[i * BLOCK : (i + 1) * BLOCK])
        return data
