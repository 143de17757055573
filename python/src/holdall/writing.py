"""Writes CAF, tar and zip archives, with the bytes that the command writes; docs/python.md says where they differ.

The archive has a temporary name until it is complete: that of Go's store/local, so its next writer removes what a killed
one has left. A lock says that the writer is still there.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn, Protocol, TypeAlias

from . import command, tarzip
from .errors import HoldallError, UnsupportedError
from .listing import is_path
from .objects import failed

PIECE = 1 << 20  # how much of a file is read at once
HELD = 1 << 20  # the longest content that is in memory before its header is written
MAX_FOLDERS = 2048  # as of the command
MAX_INDEX = (1 << 32) - 1
MAX_OCTAL = 1 << 33  # what a header of a tar cannot hold
MAX_32 = (1 << 32) - 1
NO_UTF8 = re.compile("[\udc80-\udcff]")  # what bytes that are not UTF-8 are in a name


class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> bytes: ...


Content: TypeAlias = bytes | bytearray | memoryview | Readable | Iterable[bytes]


def create(path: str | os.PathLike[str], *, format: str | None = None, index: bool = False, force: bool = False) -> Writer:
    """Return a mapping to write an archive into, in a with block.

        with holdall.create("x.caf") as w:
            w["a/b"] = b"…"

    path: where the archive appears when the block ends without an exception.
    format: "caf", "tar" or "zip"; by default the extension of path.
    index: make an index beside it, by the command. If that fails, the archive is there without one.
    force: replace what is at path.
    """
    path = os.fspath(path)
    kind = format or os.path.splitext(path)[1][1:].lower()
    if kind not in _WRITERS or "://" in path or path.startswith("age:") or not format and path.lower().endswith(".lindi.tar"):
        raise UnsupportedError(path, "only .caf, .tar and .zip on a disk are written by create: holdall.pack writes the others")
    return _WRITERS[kind](path, index, force)


class Writer:
    """A mapping to write an archive into, in a with block. It is for one thread at a time."""

    def __init__(self, path: str, index: bool, force: bool) -> None:
        self.path = path
        self._index, self._force = index, force
        self._names: set[str] = set()
        self._at = 0
        self._ready = self._broken = False

    def __enter__(self) -> Writer:
        if self._index:
            command.find()
        self._target = os.path.realpath(self.path)
        if os.path.lexists(self._target):
            if not self._force:
                self._exists()
            if not os.path.isfile(self._target):
                raise HoldallError(self.path, "it is not a file, so it is not replaced")
        try:
            self._out = self._open()
        except OSError as err:
            raise failed(self.path, err) from err
        self._ready = True
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._ready = False
        try:
            if kind is None:
                if self._broken:
                    raise HoldallError(self.path, "it could not be written, as an earlier error says")
                self._end()
                self._appear()
        except OSError as err:
            raise failed(self.path, err) from err
        finally:
            self._out.raw.close()  # what is left in the buffer belongs to no archive
            if os.path.lexists(self._temporary):
                os.unlink(self._temporary)
        if kind is None and self._index:
            command.index(self.path)

    def __setitem__(self, name: str, content: Content) -> None:
        self.write(name, content)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def update(self, files: Mapping[str, Content] | Iterable[tuple[str, Content]]) -> None:
        """Write several files, such as those that a generator yields."""
        for name, content in files.items() if isinstance(files, Mapping) else files:
            self.write(name, content)

    def write(self, name: str, content: Content) -> None:
        """Write a file: bytes, what a file that is open for reading still has, or the pieces of an iterable.

        If that fails, nothing of the file is in the archive, and other files can follow.
        """
        if not self._ready:
            raise ValueError(f"{self.path}: files are written one after the other, in a with block")
        key, start = self._key(name), self._at
        self._ready = False
        try:
            self._add(name, key, _pieces(content))
            self._names.add(name)
        except Exception:
            try:
                self._out.seek(start)
                self._out.truncate()
                self._at = start
            except OSError:
                self._broken = True
            raise
        except BaseException:  # an interrupt may come between any two steps
            self._broken = True
            raise
        finally:
            self._ready = True

    def _add(self, name: str, key: bytes, pieces: Iterator[bytes]) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _key(self, name: str) -> bytes:
        """Return the bytes of a name, or refuse it by the rules of the command (format/kit/naming)."""
        if not isinstance(name, str):
            raise TypeError(f"a name is a str, not {type(name).__name__}")
        try:
            key = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            self._refuse(name, "it is not text")
        for wrong, why in (
            (key in (b"", b"."), "it is empty"),
            (b"\0" in key, "it contains a NUL byte"),
            (b".." in key.replace(b"\\", b"/").split(b"/"), "it contains .."),
            (key[:1] == b"/", "it is absolute"),
            (not is_path(key), "it has empty or . elements"),
            (key.count(b"/") >= MAX_FOLDERS, f"in more than {MAX_FOLDERS} folders, which no file system allows"),
            (name in self._names, "the archive already has a file with this name"),
        ):
            if wrong:
                self._refuse(name, why)
        return key

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise HoldallError(self.path, why, name)

    def _put(self, data: bytes) -> None:
        try:
            self._out.write(data)
        except OSError as err:
            raise failed(self.path, err) from err
        self._at += len(data)

    def _put_before(self, at: int, room: int, head: bytes) -> None:
        """Write the header of a content that is there already. Only that of a huge one is longer than its room."""
        out, end, more = self._out, self._at, len(head) - room
        try:
            while more and end > at + room:
                begin = max(end - PIECE, at + room)
                out.seek(begin)
                data = out.read(end - begin)
                out.seek(begin + more)
                out.write(data)
                end = begin
            out.seek(at)
            out.write(head)
            out.seek(self._at + more)
        except OSError as err:
            raise failed(self.path, err) from err
        self._at += more

    def _open(self) -> io.BufferedRandom:
        """Create the temporary file, and remove those of killed writers of the same name."""
        folder, name = os.path.split(self._target)
        stem = os.fsdecode(b"." + os.fsencode(name)[:222].decode("utf-8", "ignore").encode() + b".holdall-")
        _remove_dead(folder, stem)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        while True:
            self._temporary = os.path.join(folder, f"{stem}{secrets.token_hex(8)}.tmp")
            fd = os.open(self._temporary, flags, 0o666)
            _lock(fd, True)
            if os.path.lexists(self._temporary):  # who removes what killed writers left may have had the lock first
                if os.path.lexists(self._target):
                    os.chmod(self._temporary, os.stat(self._target).st_mode & 0o7777)
                return io.BufferedRandom(io.FileIO(fd, "r+b"), PIECE)
            os.close(fd)

    def _appear(self) -> None:
        """Give the archive its name."""
        self._out.flush()
        os.fsync(self._out.fileno())
        if os.name == "nt":
            self._out.close()
        appear = os.replace if self._force else os.rename if os.name == "nt" else os.link  # of these, only the first replaces
        try:
            appear(self._temporary, self._target)
        except FileExistsError:
            self._exists()
        except OSError:
            if appear is not os.link or os.path.lexists(self._target):
                raise
            os.rename(self._temporary, self._target)  # there are no links here
        if os.name != "nt":
            folder = os.open(os.path.dirname(self._target), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _exists(self) -> NoReturn:
        raise HoldallError(self.path, "it exists already: force=True replaces it")


class _Caf(Writer):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        try:
            from blake3 import blake3
        except ImportError:
            raise UnsupportedError(self.path, "writing CAF needs the package blake3") from None
        self._hash = blake3
        self._rows: list[bytes] = []
        self._length = 200  # of the index, without the rows, and some more
        self._replaced: set[str] = set()  # names that are not UTF-8, as other readers see them

    def _add(self, name: str, key: bytes, pieces: Iterator[bytes]) -> None:
        seen = NO_UTF8.sub("\ufffd", name)
        if seen in self._replaced or seen != name and seen in self._names:
            self._refuse(name, "other readers replace invalid UTF-8, and then this name equals that of another file in the archive")
        start, digest = self._at, self._hash()
        for piece in pieces:
            digest.update(piece)
            self._put(piece)
        quoted = re.sub(rb'["\\\x00-\x1f]', lambda m: b"\\" + m[0] if m[0] in b'"\\' else b"\\u%04x" % m[0][0], key)
        row = b'"%b":{"start_byte":%d,"end_byte":%d,"blake3":"%b"}' % (quoted, start, self._at, digest.hexdigest().encode())
        if self._length + len(row) + 1 > MAX_INDEX:
            self._refuse(name, "the index would exceed the 4 GiB limit of caf")
        self._rows.append(row)
        self._length += len(row) + 1
        if seen != name:
            self._replaced.add(seen)

    def _end(self) -> None:
        start, digest = self._at, self._hash()

        def put(part: bytes) -> None:
            digest.update(part)
            self._put(part)

        put(b'{"format_version":"1.0","writer":"holdall","index_digest":"blake3","files":{')
        for n, row in enumerate(self._rows):
            put(b"," + row if n else row)
        put(b"},")
        self._put(b'"index_blake3":"%b"}' % digest.hexdigest().encode())
        self._put(struct.pack("<I", self._at - start))


class _Members(Writer):
    """A format with a header before each content. Headers of contents up to 1 MiB are written first."""

    def _key(self, name: str) -> bytes:
        key = super()._key(name)
        at = name.rfind("/")
        while at >= 0:
            if name[:at] in self._names:
                self._refuse(name, f"{name[:at]!r} is not a directory")
            at = name.rfind("/", 0, at)
        return key


class _Tar(_Members):
    def _add(self, name: str, key: bytes, pieces: Iterator[bytes]) -> None:
        start = self._at
        held, rest = _hold(pieces)
        head = _tar_head(key, 0 if rest else len(held))
        self._put(head)
        self._put(held)
        for piece in rest or ():
            self._put(piece)
        size = self._at - start - len(head)
        if rest:
            self._put_before(start, len(head), _tar_head(key, size))
        self._put(bytes(-size % tarzip.BLOCK))

    def _end(self) -> None:
        self._put(bytes(2 * tarzip.BLOCK))


def _tar_head(name: bytes, size: int) -> bytes:
    """Return a header as of Go's archive/tar for a file of no owner, mode 0644, and 1970."""
    cut = name.rfind(b"/", 0, 156) if len(name) > 100 else -1
    ustar = name.isascii() and size < MAX_OCTAL
    if ustar and len(name) <= 100:
        return _tar_block(name, b"0", size)
    if ustar and cut > 0 and len(name) - cut - 1 <= 100:
        return _tar_block(name[cut + 1 :], b"0", size, name[:cut])
    records = _record(b"path", name) if len(name) > 100 or not name.isascii() else b""
    if size >= MAX_OCTAL:
        records += _record(b"size", b"%d" % size)
    folder, slash, file = name.rpartition(b"/")
    ascii, short = (bytes(c for c in s if c < 128) for s in (folder + slash + b"PaxHeaders.0/" + file, name))
    if len(short) > 100 and short[99:100] == b"/":  # some readers take it for a folder
        n = len(short[:99].rstrip(b"/"))
        short = short[:n] + b"\0" + short[n + 1 : 100]
    padded = records + bytes(-len(records) % tarzip.BLOCK)
    return _tar_block(ascii[:100].rstrip(b"/"), b"x", len(records)) + padded + _tar_block(short, b"0", size if size < MAX_OCTAL else 0)


def _tar_block(name: bytes, kind: bytes, size: int, prefix: bytes = b"") -> bytes:
    mode, device = (b"0000644", b"0000000") if kind == b"0" else (b"0000000", b"")
    numbers = mode, b"0000000", b"0000000", b"%011o" % size, b"%011o" % 0, b" " * 8
    b = struct.pack("100s8s8s8s12s12s8ss100s8s32s32s8s8s155s12x", name, *numbers, kind, b"", b"ustar\00000", b"", b"", device, device, prefix)
    return b[:148] + b"%06o\0 " % sum(b) + b[156:]


def _record(key: bytes, value: bytes) -> bytes:
    rest = b" %b=%b\n" % (key, value)
    n = len(rest)
    while len(b"%d" % n) + len(rest) != n:
        n = len(b"%d" % n) + len(rest)
    return b"%d" % n + rest


class _Zip(_Members):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows: list[bytes] = []

    def _add(self, name: str, key: bytes, pieces: Iterator[bytes]) -> None:
        if len(key) >= 0xFFFF:
            self._refuse(name, f"name of {len(key)} bytes: expected at most {0xFFFF - 1}")
        start, flags = self._at, 0 if NO_UTF8.search(name) else 0x800
        held, rest = _hold(pieces)
        size, crc, deflate = len(held), zlib.crc32(held), zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = deflate.compress(held)
        if not rest:
            packed += deflate.flush()
            method = tarzip.DEFLATED if len(packed) < size else tarzip.STORED
            packed = packed if method else held
            stored = len(packed)
            self._put(_zip_local(key, flags, method, crc, stored, size))
            self._put(packed)
        else:
            method = tarzip.DEFLATED
            head = _zip_local(key, flags, method, 0, 0, 0)
            self._put(head)
            self._put(packed)
            for piece in rest:
                size += len(piece)
                crc = zlib.crc32(piece, crc)
                self._put(deflate.compress(piece))
            self._put(deflate.flush())
            stored = self._at - start - len(head)
            self._put_before(start, len(head), _zip_local(key, flags, method, crc, stored, size))
        long = [n for n in (size, stored, start) if n >= MAX_32]
        extra = struct.pack(f"<HH{len(long)}Q", 1, 8 * len(long), *long) if long else b""
        version, short = 45 if long else 20, (min(n, MAX_32) for n in (stored, size))
        fields = 3 << 8 | version, version, flags, method, 0, 33, crc, *short, len(key), len(extra), 0, 0, 0, 0o100644 << 16, min(start, MAX_32)
        self._rows.append(tarzip.ROW + struct.pack("<6H3I5H2I", *fields) + key + extra)

    def _end(self) -> None:
        at, count = self._at, len(self._rows)
        for row in self._rows:
            self._put(row)
        length = self._at - at
        if count >= 0xFFFF or length >= MAX_32 or at >= MAX_32:
            self._put(tarzip.END64 + struct.pack("<QHHQ4Q", 44, 3 << 8 | 45, 45, 0, count, count, length, at))
            self._put(tarzip.LOCATOR + struct.pack("<IQI", 0, at + length, 1))
        count = min(count, 0xFFFF)
        self._put(tarzip.END + struct.pack("<IHHIIH", 0, count, count, min(length, MAX_32), min(at, MAX_32), 0))


def _zip_local(name: bytes, flags: int, method: int, crc: int, stored: int, size: int) -> bytes:
    version, extra = 20, b""
    if size >= MAX_32 or stored >= MAX_32:
        version, extra = 45, struct.pack("<HHQQ", 1, 16, size, stored)
        size = stored = MAX_32
    return tarzip.HEADER + struct.pack("<5H3I2H", version, flags, method, 0, 33, crc, stored, size, len(name), len(extra)) + name + extra


def _pieces(content: Content) -> Iterator[bytes]:
    """Yield a content in pieces."""
    parts: Any = [content] if isinstance(content, bytes | bytearray | memoryview) else content
    if hasattr(content, "read"):
        parts = iter(lambda: content.read(PIECE), b"")
    if isinstance(parts, str) or not isinstance(parts, Iterable):
        raise TypeError(f"a content is bytes, a file that is open for reading bytes, or an iterable of bytes, not {type(parts).__name__}")
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            raise TypeError(f"a content consists of bytes, not {type(part).__name__}")
        yield bytes(part)


def _hold(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes] | None]:
    """Return all of a short content, or the beginning of a long one and its rest."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > HELD:
            return b"".join(held), pieces
    return b"".join(held), None


def _lock(fd: int, wait: bool) -> bool:
    """Lock a file as the command does. The system ends the lock with its holder."""
    try:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ImportError, OSError):
        return False
    return True


def _remove_dead(folder: str, stem: str) -> None:
    """Remove what killed writers of a name have left. It may also stay."""
    try:
        for name in os.listdir(folder):
            if name.startswith(stem) and re.fullmatch(r"[0-9a-f]{16}\.tmp", name[len(stem) :]):
                path = os.path.join(folder, name)
                fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
                try:
                    if _lock(fd, False) and os.path.samestat(os.fstat(fd), os.lstat(path)):
                        os.unlink(path)
                finally:
                    os.close(fd)
    except OSError:
        pass


_WRITERS: dict[str, type[Writer]] = {"caf": _Caf, "tar": _Tar, "zip": _Zip}
