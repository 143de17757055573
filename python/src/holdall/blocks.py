"""A cache on a disk for objects of servers, which all processes of a machine share, also those of the command.

docs/cache.md describes its files and its locks. Only what has the lock of the table changes anything. Readers take no
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
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    from .objects import Far, Ranges

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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
_SEGMENT = re.compile("segment-([0-9a-f]{8})")


class _DamagedTable(OSError):
    pass


class Slot(NamedTuple):
    """Where a block is."""

    key: bytes
    offset: int
    segment: int
    length: int
    crc: int  # of the checksums of its pieces


class Head:
    """What the table says of itself: the header, which never changes, and the state."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        raw = raw.ljust(SLOTS_AT, b"\0")
        magic, *kind, self.buckets, self.segments, self.segment, self.limit, id_ = _HEADER.unpack(raw[:60])
        if not any(raw):
            raise _DamagedTable("its maker was killed")
        if magic != MAGIC or kind != [EDITION, BLOCK]:
            raise OSError(f"expected a table of cached blocks of edition {EDITION}, found another file: choose another folder")
        self.seed = crc32(id_)
        self.size = SLOTS_AT + BUCKET * self.buckets
        fits = self.buckets > 0 and self.segments > 1 and self.segment >= 2 * BLOCK and self.limit <= MOST
        if not fits or self.size + self.segment * self.segments > self.limit or len(self.raw) < SLOTS_AT or not self._sealed(raw[:RECORD]):
            raise _DamagedTable("its header is not what was written")
        self.current, self.next = _STATE.unpack(raw[RECORD:-4])
        self.sound = self._sealed(raw[RECORD:]) and self.segments <= self.current < 0xFFFFFFFF and self.next <= self.segment

    def _sealed(self, record: bytes) -> bool:
        return crc32(record[:-4], self.seed) == int.from_bytes(record[-4:], "little")

    def seal(self, record: bytes) -> bytes:
        """End a record with its checksum, which depends on the table that it is in."""
        return record + crc32(record, self.seed).to_bytes(4, "little")

    def live(self, segment: int) -> bool:
        """Return whether a segment is one of those that are kept."""
        return not self.sound or 0 <= self.current - segment < self.segments

    def places(self, key: bytes) -> list[int]:
        """Return where the two buckets begin in which a key may have its slot."""
        return [SLOTS_AT + BUCKET * (n % self.buckets) for n in struct.unpack("<2Q", key[:16])]

    def slot(self, record: bytes) -> Slot | None:
        """Parse a slot. None is empty or damaged, or its segment was removed."""
        s = Slot(*_SLOT.unpack(record[:60]))
        fits = s.length <= BLOCK and s.offset + s.length + sums_len(s.length) <= self.segment
        return s if fits and self._sealed(record) and self.live(s.segment) else None

    def choose(self, key: bytes, buckets: list[bytes]) -> tuple[int, int]:
        """Return where a slot is written: over that of its key, else in the emptier bucket, else over the oldest."""
        slots = [[self.slot(b[o : o + RECORD]) for o in range(0, BUCKET, RECORD)] for b in buckets]
        full = [(s.segment, s.offset, i, o) for i, some in enumerate(slots) for o, s in enumerate(some) if s]
        for i, some in enumerate(slots):
            for o, s in enumerate(some):
                if s and s.key == key:
                    return i, o * RECORD
        i = int(slots[1].count(None) > slots[0].count(None))
        if None in slots[i]:
            return i, RECORD * (len(slots[i]) - 1 - slots[i][::-1].index(None))
        return min(full)[2], RECORD * min(full)[3]


def new_table(limit: int, id_: bytes) -> bytes:
    """Return the first records of a table for that many bytes."""
    buckets = limit // (2 * BLOCK)
    left = limit - SLOTS_AT - BUCKET * buckets
    segments = min(max(left // (32 * BLOCK), 8), 64)
    header = _HEADER.pack(MAGIC, EDITION, BLOCK, buckets, segments, left // segments, limit, id_)
    # Segments of an earlier table had other numbers.
    state = _STATE.pack(int.from_bytes(id_[:4], "little") // 4 + segments, 0)
    return b"".join(r + crc32(r, crc32(id_)).to_bytes(4, "little") for r in (header, state))


def sums_len(length: int) -> int:
    return (length + PIECE - 1) // PIECE * 4


def sums_of(data: bytes) -> bytes:
    """Return the checksums of the pieces of a block."""
    if len(data) <= PIECE:
        return crc32(data).to_bytes(4, "little") if data else b""
    view = memoryview(data)
    return b"".join(crc32(view[at : at + PIECE]).to_bytes(4, "little") for at in range(0, len(data), PIECE))


def lock_of(key: bytes) -> int:
    """Return the byte of the lock file that is locked while a block is fetched."""
    return int.from_bytes(key[:8], "little") // 4 + 1


def _open_regular(path: str, how: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open or make a file. Others may have put something else in its place."""
    fd = os.open(path, how | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path}: expected a regular file")
    return fd


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


class Files:
    """The open files of a cache. A process has them once, and a forked one opens its own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.table = _open_regular(os.path.join(folder, "blocks.table"))
        _fds.add(self.table)
        weakref.finalize(self, _close, self.table).atexit = False
        self.lock = _open_regular(os.path.join(folder, "blocks.lock"))
        _fds.add(self.lock)
        weakref.finalize(self, _close, self.lock).atexit = False
        self.limit = 0  # as the header said last
        self._head: Head | None = None
        self._writing = threading.Lock()  # held with the lock of the table
        self._fetched: dict[int, threading.Event] = {}  # blocks that this process fetches, by their locks

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
            try:
                h = self.head()
                self.limit = h.limit
                if h.sound and most in (0, h.limit) and os.fstat(self.table).st_size == h.size:
                    return self._sweep(h.live)
            except _DamagedTable:
                pass
            self._make(most or self.limit or USUAL)

    def _make(self, limit: int) -> Head:
        """Empty the cache."""
        table = new_table(limit, os.urandom(16))
        self.limit = limit
        self._sweep(lambda segment: False)
        # Until the header is there, other processes see a damaged table.
        os.truncate(self.table, 0)
        os.truncate(self.table, Head(table).size)
        _write(self.table, table, 0)
        return self.head()

    def _sweep(self, keep: Callable[[int], bool]) -> None:
        """Remove the segments that are not wanted."""
        for name in os.listdir(self.folder):
            if (m := _SEGMENT.fullmatch(name)) and not keep(int(m[1], 16)):
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
                while 0 <= at <= BUCKET - RECORD and len(bucket) == BUCKET:
                    if at % RECORD == 0 and (slot := h.slot(bucket[at : at + RECORD])):
                        return slot
                    at = bucket.find(key, at + 1)
        return None

    def read(self, key: bytes, start: int, end: int, length: int) -> bytes | None:
        """Return the bytes [start, end) of a block, if they are there as they were written. Only the pieces that they
        are in are read and compared. Segments are opened for each read, so that a removed one takes no space.
        """
        s = self.find(key)
        if s is None or s.length != length:
            return None
        first, last, n = start // PIECE, (end + PIECE - 1) // PIECE, sums_len(length)
        try:
            fd = os.open(self._segment(s.segment), os.O_RDONLY | os.O_NONBLOCK)
            try:
                sums = os.pread(fd, n, s.offset)
                data = os.pread(fd, min(last * PIECE, length) - first * PIECE, s.offset + n + first * PIECE)
            finally:
                os.close(fd)
        except OSError:
            return None
        if crc32(sums) != s.crc or sums_of(data) != sums[4 * first : 4 * last]:
            return None
        return data[start - first * PIECE : end - first * PIECE]

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
            sums = sums_of(data)
            current, at = h.current, h.next
            if at + len(sums) + len(data) > h.segment:
                current, at = current + 1, 0
                self._remove(current - h.segments)
                self._remove(current)
            _write(self.table, h.seal(_STATE.pack(current, at + len(sums) + len(data))), RECORD)
            fd = _open_regular(self._segment(current))
            try:
                _write(fd, sums + data, at)
            finally:
                os.close(fd)
            h, places = self.head(), h.places(key)
            i, o = h.choose(key, [os.pread(self.table, BUCKET, place) for place in places])
            # Without its slot, a block is not found.
            _write(self.table, h.seal(_SLOT.pack(key, at, current, len(data), crc32(sums))), places[i] + o)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock of all that is changed."""
        with self._writing:
            if not self._await(0, TO_WRITE):
                raise OSError(f"{self.folder}: another process keeps it locked")
            try:
                yield
            finally:
                _lock(self.lock, 0, fcntl.F_UNLCK)

    def _await(self, at: int, patience: float) -> bool:
        """Wait for a lock, and return whether it is held."""
        pause = 0.001
        while not _lock(self.lock, at, fcntl.F_WRLCK):
            if patience <= 0:
                return False
            time.sleep(pause)
            patience, pause = patience - pause, min(2 * pause, 0.032)
        return True

    def hold(self, key: bytes, wait: bool) -> tuple[Callable[[], None] | None, bool]:
        """Take the lock of a block that is to be fetched. Return what releases it, and whether another reader had it.

        If wait is not set and another reader has it, nothing releases it.
        """
        at, done, waited, held = lock_of(key), threading.Event(), False, False
        while (other := self._fetched.setdefault(at, done)) is not done:
            if not wait:
                return None, False
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
        if not held and not wait:
            release()
            return None, False
        return release, waited


def _write(fd: int, data: bytes, at: int) -> None:
    if os.pwrite(fd, data, at) != len(data):
        raise OSError("the disk is full")


_fds: set[int] = set()
_opened: dict[str, Files] = {}
_opening = threading.Lock()
_warned: set[str] = set()


def _close(fd: int) -> None:
    if fd in _fds:
        _fds.discard(fd)
        os.close(fd)


def _forked() -> None:
    """Close what is shared with the parent: its locks would last as long as this process."""
    global _opening
    _opening = threading.Lock()
    _opened.clear()
    for fd in list(_fds):
        _close(fd)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Cache:
    """A folder on a disk with blocks of objects of servers. If the size is 0, it is that of the cache that is there."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder, self.size = os.path.realpath(folder), size
        self._usable = True

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
            raise OSError("this system has no locks of ranges that Python can take")
        if self.size and not LEAST <= self.size <= MOST:
            raise OSError(f"a cache of {self.size} bytes: expected at least {LEAST} and at most {MOST}")
        os.makedirs(self.folder, 0o700, exist_ok=True)  # contents of archives may be private
        files = _opened.get(self.folder)
        if files is not None and files.present():
            with suppress(OSError):
                if self.size in (0, files.head().limit):
                    return files
        else:
            files = Files(self.folder)
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
    m = re.fullmatch(r"\s*([0-9.e+]+)\s*(?:([kmgt])(ib|b|)|b|)\s*", text.lower())
    try:
        size = float(m[1]) * (1000 if m[3] == "b" else 1024) ** (" kmgt".index(m[2] or " ")) if m else -1.0
    except ValueError:
        size = -1.0
    if not 0 <= size < 1 << 63:
        raise ValueError(f"a cache of {text!r}: expected a size such as 4096, 30GB or 64MiB")
    return int(size)


T = TypeVar("T")
R = TypeVar("R")


def at_once(do: Callable[[T], R], what: list[T]) -> list[R]:
    """Call a function that sends requests, in threads if it is for several things."""
    if len(what) < 2:
        return list(map(do, what))
    with ThreadPoolExecutor(min(AT_ONCE, len(what))) as pool:
        return list(pool.map(do, what))


class Blocks:
    """The blocks of a version of an object."""

    def __init__(self, cache: Cache, obj: Far, version: str, identity: str) -> None:
        self._cache, self._size = cache, obj.size
        self._before = f"{version}\0{obj.size}\0".encode("latin-1", "surrogateescape")
        self._after = b"\0" + identity.encode("utf-8", "surrogateescape")

    def block(self, n: int) -> tuple[bytes, int, int]:
        """Return the key of a block, and where it begins and ends."""
        key = sha256(b"%s%d%s" % (self._before, n, self._after)).digest()
        return key, n * BLOCK, min((n + 1) * BLOCK, self._size)

    def read(self, obj: Far, offset: int, length: int) -> bytes:
        """Return bytes that the object has. What is missing is fetched."""
        files, end = self._cache.files(), offset + length
        if files is None:
            return obj.fetch(offset, length)
        parts = []
        while offset < end:
            parts.append(self._part(files, obj, offset, end))
            offset += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _part(self, files: Files, obj: Far, offset: int, end: int) -> bytes:
        """Return as many of the bytes [offset, end) as one block has, or one request gets."""
        key, begin, stop = self.block(offset // BLOCK)
        part = (key, offset - begin, min(end, stop) - begin, stop - begin)
        data = files.read(*part)
        if data is not None:
            return data
        with ExitStack() as held:
            release, waited = files.hold(key, True)
            assert release is not None
            held.callback(release)
            data = files.read(*part)  # another reader may have fetched it
            if data is None:
                if waited:
                    release()  # that reader failed, and so may this one: the others need not wait for it too
                data = self._fetched(files, obj, offset // BLOCK, end, held)[offset - begin : end - begin]
        return data

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

    def read_many(self, obj: Far, ranges: Ranges) -> list[bytes]:
        """Return several ranges. Missing ones in blocks that touch are requested together."""
        files = self._cache.files()
        if files is None:
            return obj.fetch_many(ranges)
        found = [self._kept(files, *r) for r in ranges]
        runs: list[list[int]] = []  # offset, end, and which ranges
        for (offset, length), i in sorted((r, i) for i, r in enumerate(ranges) if found[i] is None):
            end = offset + length
            if runs and offset // BLOCK <= (runs[-1][1] - 1) // BLOCK + 1 and (end - 1) // BLOCK - runs[-1][0] // BLOCK < RUN:
                runs[-1][1] = max(runs[-1][1], end)
                runs[-1].append(i)
            else:
                runs.append([offset, end, i])
        datas = at_once(lambda run: self.read(obj, run[0], run[1] - run[0]), runs)
        for run, data in zip(runs, datas, strict=True):
            for i in run[2:]:
                at = ranges[i][0] - run[0]
                found[i] = data[at : at + ranges[i][1]]
        return [data or b"" for data in found]

    def _kept(self, files: Files, offset: int, length: int) -> bytes | None:
        """Return a range if all its blocks are there."""
        parts, end = [], offset + length
        while offset < end:
            key, begin, stop = self.block(offset // BLOCK)
            data = files.read(key, offset - begin, min(end, stop) - begin, stop - begin)
            if data is None:
                return None
            parts.append(data)
            offset += len(data)
        return b"".join(parts)
