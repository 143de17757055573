"""Where the bytes of an archive are: files on a disk, files of fsspec, and open files.

Objects of servers are in :mod:`holdall.web`. An object is read only by ranges. Any number of threads and forked
processes may do that, because they share no position.
"""

from __future__ import annotations

import io
import os
import threading
from typing import Any

from .blocks import Blocks, Cache, at_once
from .errors import DamagedError, HoldallError, NotFoundError, UnsupportedError

Ranges = list[tuple[int, int]]  # offset, length

# Ranges with at most this gap between them are read by one request.
NEAR_GAP = 16 << 10
FAR_GAP = 64 << 10
CATALOG = ".catalog"  # ends the names of folders that are catalogues


class Object:
    """A run of stored bytes. ``size``, ``version`` and ``mtime_ns`` identify its version."""

    name: str  # for errors, without secrets
    near = True  # reading it takes no request
    size: int
    version = ""  # the store's own identifier
    mtime_ns: int | None = None
    cache: Cache | None = None  # for this object, and those that it leads to, if they are far
    blocks: Blocks | None = None  # of this object

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes."""
        raise UnsupportedError(self.name, "a folder, which has no bytes of its own")

    def read_many(self, ranges: Ranges) -> list[bytes]:
        """Return several ranges. The caller has joined ranges that are close together."""
        return [self.read(offset, length) for offset, length in ranges]

    def head(self, length: int) -> bytes:
        """Return the first bytes; fewer if the object is shorter."""
        return self.read(0, min(length, self.size))

    def tail(self, length: int) -> bytes:
        """Return the last bytes; fewer if the object is shorter."""
        length = min(length, self.size)
        return self.read(self.size - length, length)

    def beside(self, suffix: str) -> Object:
        """Return the object whose name is this object's plus a suffix."""
        raise NotFoundError(self.name, "nothing can lie beside an open file")

    def below(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder below it, or none if they cannot be listed."""
        return []

    def again(self) -> Any:
        """Return what :func:`open_object` needs to open this object in another process."""
        raise TypeError(f"{self.name}: an open file cannot be sent to another process; open the archive by its path")

    def close(self) -> None:
        """Close the object."""

    def short(self, offset: int, length: int, got: int) -> DamagedError:
        """Return the error for a read of too few bytes."""
        return DamagedError(self.name, f"it ends at {offset + got}, expected {length} bytes at {offset}")


class Far(Object):
    """An object of a server. Blocks of it are kept on a disk, if there is a cache, once its ETag is known."""

    near = False

    def fetch(self, offset: int, length: int) -> bytes:
        """Return exactly these bytes by a request."""
        return Object.read(self, offset, length)

    def fetch_many(self, ranges: Ranges) -> list[bytes]:
        """Return several ranges by requests."""
        return at_once(lambda r: self.fetch(*r) if r[1] else b"", ranges)

    def unchanged(self) -> bool:
        """Return whether what was fetched is of the version that was found first."""
        return True

    def heard(self, etag: str, identity: str) -> None:
        """Use the cache from now on, if the ETag is strong. The identity tells the object from all others."""
        if self.cache and etag.startswith('"') and self.cache.files(check=True):
            self.blocks = Blocks(self.cache, self.size, etag, identity)

    def read(self, offset: int, length: int) -> bytes:
        if length == 0:
            return b""
        if self.blocks is None or offset < 0 or length < 0 or offset + length > self.size:
            return self.fetch(offset, length)
        return self.blocks.read(self, offset, length)

    def read_many(self, ranges: Ranges) -> list[bytes]:
        if self.blocks is None:
            return self.fetch_many(ranges)
        if any(not 0 <= offset <= self.size - length for offset, length in ranges):
            return super().read_many(ranges)  # which raises the error
        return self.blocks.read_many(self, ranges)


def failed(name: str, err: OSError) -> HoldallError:
    """Convert an error of the system to one of this package."""
    reason = err.strerror or str(err)
    if isinstance(err, FileNotFoundError | NotADirectoryError):
        return NotFoundError(name, reason)
    return HoldallError(name, reason)


class LocalFile(Object):
    """A file on a disk."""

    def __init__(self, path: str) -> None:
        self.path = self.name = path
        self.fd = -1
        try:
            self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
            stat = os.fstat(self.fd)
        except OSError as err:
            raise failed(path, err) from err
        self.size = stat.st_size
        self.mtime_ns = stat.st_mtime_ns
        self._lock: Any = None if hasattr(os, "pread") else threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise self.short(offset, length, max(self.size - offset, 0))
        try:
            data = self._pread(length, offset)
            while len(data) < length:
                more = self._pread(length - len(data), offset + len(data))
                if not more:
                    raise self.short(offset, length, len(data))
                data += more
        except (OSError, OverflowError, MemoryError) as err:
            raise self._wrong(err) from err
        return data

    def _pread(self, length: int, offset: int) -> bytes:
        if self._lock is None:
            return os.pread(self.fd, length, offset)
        with self._lock:
            os.lseek(self.fd, offset, os.SEEK_SET)
            return os.read(self.fd, length)

    def _wrong(self, err: Exception) -> HoldallError:
        if self.fd < 0:
            return HoldallError(self.name, "the archive is closed")
        if isinstance(err, OSError):
            return failed(self.name, err)
        return DamagedError(self.name, f"a read that cannot be: {err}")

    def beside(self, suffix: str) -> Object:
        return LocalFile(self.path + suffix)

    def again(self) -> Any:
        return os.path.abspath(self.path)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            self.close()


class Folder(Object):
    """A folder on a disk, which contains the objects."""

    size = 0

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/" + os.sep) or path
        self.name = self.path

    def beside(self, suffix: str) -> Object:
        return LocalFile(self.path + suffix)

    def below(self, folder: str) -> list[str]:
        try:
            return os.listdir(os.path.join(self.path, folder))
        except OSError:
            return []

    def again(self) -> Any:
        return os.path.abspath(self.path)


class Stream(Object):
    """An open file that can seek. Threads wait for each other; forked processes have a lock of their own."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.name = str(getattr(file, "name", None) or type(file).__name__)
        self._renew()
        if hasattr(os, "register_at_fork"):
            import weakref

            me = weakref.WeakMethod(self._renew)
            os.register_at_fork(after_in_child=lambda: (renew := me()) and renew())
        try:
            self.size = file.seek(0, os.SEEK_END)
        except (OSError, ValueError) as err:
            raise HoldallError(self.name, str(err)) from err

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def read(self, offset: int, length: int) -> bytes:
        data = b""
        try:
            with self._lock:
                self.file.seek(offset)
                while len(data) < length:
                    more = self.file.read(length - len(data))
                    if not more:
                        raise self.short(offset, length, len(data))
                    data += more
        except (OSError, ValueError, OverflowError) as err:
            raise HoldallError(self.name, str(err)) from err
        return bytes(data)


class _Fsspec(Far):
    """A place in an fsspec filesystem."""

    def __init__(self, fs: Any, path: str, cache: Cache | None) -> None:
        self.fs, self.path, self.cache = fs, path, cache
        self.name = str(fs.unstrip_protocol(path)).split("?")[0]

    def beside(self, suffix: str) -> Object:
        return FsspecFile(self.fs, self.path + suffix, self.cache)

    def again(self) -> Any:
        from fsspec.core import OpenFile

        return OpenFile(self.fs, self.path)


class FsspecFolder(_Fsspec):
    """A folder of an fsspec filesystem. Nothing is asked about it."""

    size = 0

    def __init__(self, fs: Any, path: str, cache: Cache | None) -> None:
        super().__init__(fs, path.rstrip("/"), cache)

    def below(self, folder: str) -> list[str]:
        try:
            return [name.rpartition("/")[2] for name in self.fs.ls(f"{self.path}/{folder}", detail=False)]
        except Exception:  # each filesystem has its own errors
            return []


class FsspecFile(_Fsspec):
    """A file of an fsspec filesystem."""

    def __init__(self, fs: Any, path: str, cache: Cache | None) -> None:
        super().__init__(fs, path, cache)
        try:
            info = fs.info(path)
        except FileNotFoundError as err:
            raise NotFoundError(self.name, "there is no such object") from err
        except Exception as err:
            raise HoldallError(self.name, str(err)) from err
        size = info.get("size")
        if info.get("type") == "directory" or not isinstance(size, int):
            raise UnsupportedError(self.name, "a folder, or an object whose size nobody tells")
        self.size = size
        self.version = _etag(info)
        self.mtime_ns = _time_of(info)
        self.heard(self.version, _identity(fs, path))

    def _ask(self, what: Any, *args: Any, **more: Any) -> Any:
        try:
            return what(*args, **more)
        except Exception as err:
            raise HoldallError(self.name, str(err) or type(err).__name__) from err

    def fetch(self, offset: int, length: int) -> bytes:
        data: bytes = self._ask(self.fs.cat_file, self.path, start=offset, end=offset + length)
        if len(data) != length:
            raise self.short(offset, length, len(data))
        return bytes(data)

    def fetch_many(self, ranges: Ranges) -> list[bytes]:
        starts = [offset for offset, _ in ranges]
        ends = [offset + length for offset, length in ranges]
        all_: list[bytes] = self._ask(self.fs.cat_ranges, [self.path] * len(ranges), starts, ends, on_error="raise")
        for (offset, length), data in zip(ranges, all_, strict=True):
            if len(data) != length:
                raise self.short(offset, length, len(data))
        return [bytes(data) for data in all_]

    def unchanged(self) -> bool:
        """Ask for the version again: unlike web.py, fsspec does not compare it when it reads."""
        self.fs.invalidate_cache()
        return _etag(self._ask(self.fs.info, self.path)) == self.version


def _identity(fs: Any, path: str) -> str:
    """Return what tells a file from all others. Of S3, the command has the same: docs/bytes/cache.md."""
    address, options = fs.unstrip_protocol(path), fs.storage_options
    if not address.startswith("s3://"):
        return f"{address} {sorted(options.items())}"
    named = options.get("endpoint_url") or (options.get("client_kwargs") or {}).get("endpoint_url")
    endpoint = named or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return f"{address} {endpoint.rstrip('/')}" if endpoint else str(address)


def _etag(info: dict[str, Any]) -> str:
    return str(info.get("ETag") or info.get("etag") or "")


def _time_of(info: dict[str, Any]) -> int | None:
    """Return the modification time of a file from its filesystem: seconds, or a datetime."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        t: Any = info.get(key)
        if isinstance(t, int | float):
            return int(t) * 1_000_000_000  # fractions of a second are not exact
        if hasattr(t, "timestamp"):
            return int(t.timestamp() // 1) * 1_000_000_000 + int(t.microsecond) * 1000
    return None


def open_object(what: Any, cache: Cache | None) -> Object:
    """Open a path, an address, an fsspec file or an open file. Far objects are kept in a cache."""
    if isinstance(what, Object):
        return what
    if hasattr(what, "__fspath__"):
        what = os.fspath(what)
    if isinstance(what, bytes):
        what = os.fsdecode(what)
    if isinstance(what, str):
        obj = _open_address(what, cache)
    elif hasattr(what, "fs") and hasattr(what, "path") and hasattr(what.fs, "cat_ranges"):
        obj = _of_filesystem(what.fs, what.path, cache)
    elif isinstance(what, io.IOBase) or hasattr(what, "seek") and hasattr(what, "read"):
        obj = Stream(what)
    else:
        raise TypeError(f"expected a path, an address or a file, found {type(what).__name__}")
    obj.cache = cache
    return obj


def _open_address(address: str, cache: Cache | None) -> Object:
    if address.startswith("age:"):
        raise UnsupportedError(address, "what is encrypted is read by the command: holdall serve and mount show it, and holdall convert decrypts it")
    scheme, found, rest = address.partition("://")
    if not found:
        return Folder(address) if os.path.isdir(address) else LocalFile(address)
    if scheme in ("http", "https"):
        from .web import WebObject

        return WebObject(address, cache)
    if scheme == "file":
        return _open_address(rest, cache)
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UnsupportedError(address, f"an address of {scheme}:// needs the package fsspec") from None
    try:
        fs, path = url_to_fs(address)
    except (ValueError, ImportError) as err:
        raise UnsupportedError(address, str(err)) from err
    return _of_filesystem(fs, path, cache)


def _of_filesystem(fs: Any, path: str, cache: Cache | None) -> Object:
    if "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        return _open_address(path, cache)
    return (FsspecFolder if path.rstrip("/").endswith(CATALOG) else FsspecFile)(fs, path, cache)
