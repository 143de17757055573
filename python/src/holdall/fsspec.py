"""Archives as file systems of fsspec.

    fsspec.open("holdall://2026/05/a.jpg::https://example.org/photos.caf")
    pandas.read_parquet("holdall://tables/a.parquet::s3://bucket/tables.tar")
    xarray.open_zarr("holdall::https://example.org/recording.lindi.tar", storage_options={"view": "zarr"})

When the package is installed, fsspec finds it by the protocol holdall.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable
from typing import Any

import fsspec
from fsspec.utils import tokenize

from . import open as _open
from .errors import HoldallError
from .tree import has_place

__all__ = ["HoldallFileSystem"]

# What the package reads itself; fsspec reads the rest.
OWN = (None, "file", "local", "http", "https")


class HoldallFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A read-only file system of an archive. Names that are not paths, such as "/a", are left out.

    fo: the archive: an address, a path, or a file.
    target_protocol, target_options: how fsspec reads the archive, if necessary.
    index, view, verify, external, cache, cache_size, trusted: as in :func:`holdall.open`.
    """

    protocol = "holdall"
    root_marker = ""
    cachable = False  # as with zip: the archive may have changed the next time

    def __init__(
        self,
        fo: Any,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        *,
        index: Any = None,
        view: str | None = None,
        verify: bool | None = None,
        external: bool | None = None,
        cache: Any = None,
        cache_size: int | str | None = None,
        trusted: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(fo, str | os.PathLike) and (target_options or target_protocol not in OWN):
            fo = fsspec.open(fo, protocol=target_protocol, **(target_options or {}))
        self.archive = _open(fo, index=index, view=view, verify=verify, external=external, cache=cache, cache_size=cache_size, trusted=trusted)
        self._tree = self.archive.folders()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        return os.fspath(path).removeprefix("holdall://").strip("/")

    # Listing

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path in self.archive:
            return self._info(path)
        if path == "" or self._tree.is_folder(path):
            return _folder(path)
        raise _missing(path)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        found = self._infos(self._tree.files(path)) + [_folder(name) for name in self._tree.folders(path)]
        return _listed(found or [self.info(path)], detail) if path else _listed(found, detail)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        path = self._strip_protocol(path)
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        found = self._infos(self._tree.files(path)) + self._infos(self._tree.below(path))
        if not found and path in self.archive:
            found = [self._info(path)]
        listed = _listed(found, True)
        return {info["name"]: info for info in listed} if detail else [info["name"] for info in listed]

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.isfile(path) or self.isdir(path)

    def isfile(self, path: str) -> bool:
        return self._strip_protocol(path) in self.archive

    def isdir(self, path: str) -> bool:
        path = self._strip_protocol(path)
        return path == "" or path not in self.archive and self._tree.is_folder(path)

    def ukey(self, path: str) -> str:
        """Return a text that differs if the file does."""
        of = self.archive.source
        key: str = tokenize(self.info(path), of.name, of.size, of.version, of.mtime_ns)
        return key

    def _info(self, which: str | int) -> dict[str, Any]:
        info = self.archive.info(which)
        return {"name": info.name, "size": info.size, "type": "file"}

    def _infos(self, numbers: Iterable[str | int]) -> list[dict[str, Any]]:
        infos = map(self._info, numbers)
        return [info for info in infos if has_place(info["name"])]

    # Contents

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        path = self._file(path)
        if start is None and end is None:
            return self.archive[path]
        return self.archive.read(path, start or 0, end)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """Return the content of a file, or a dict of contents for several files, which are read together."""
        paths = self.expand_path(path, recursive=recursive)
        if kwargs or len(paths) == 1 and paths[0] == self._strip_protocol(path):
            return super().cat(path, recursive=recursive, on_error=on_error, **kwargs)
        try:
            there = [p for p in paths if p in self.archive]
            found: dict[str, Any] = dict(zip(there, self.archive.read_many(there), strict=True))
        except HoldallError:  # one of them; reading them one by one shows which
            return super().cat(path, recursive=recursive, on_error=on_error)
        for p in paths:
            if p not in found and not self.isdir(p):
                if on_error == "raise":
                    raise _missing(p)
                if on_error == "return":
                    found[p] = _missing(p)
        return found

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> io.BufferedReader:
        if mode != "rb":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return self.archive.open(self._file(path))

    def _file(self, path: str) -> str:
        path = self._strip_protocol(path)
        if path not in self.archive:
            if self.isdir(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise _missing(path)
        return path


def _folder(path: str) -> dict[str, Any]:
    return {"name": path, "size": 0, "type": "directory"}


def _listed(infos: list[dict[str, Any]], detail: bool) -> list[Any]:
    infos.sort(key=lambda info: str(info["name"]))
    return infos if detail else [info["name"] for info in infos]


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
