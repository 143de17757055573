"""Archives as stores of zarr 3.

    store = Store("https://example.org/recording.lindi.tar", view="zarr")
    zarr.open_group(store, mode="r")["units/id"][:]

zarr 2 reads archives through fsspec: see :mod:`holdall.fsspec`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as ZarrStore
from zarr.core.buffer import Buffer, BufferPrototype

from . import open as _open
from .archive import Archive
from .tree import has_place

__all__ = ["Store"]

T = TypeVar("T")


class Store(ZarrStore):
    """A read-only store of everything below a folder of an archive.

    archive: an archive, or what :func:`holdall.open` accepts, with its other arguments.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, archive: Any, folder: str = "", *, read_only: bool = True, **how: Any) -> None:
        if not read_only:
            raise ValueError("archives are only read: expected read_only=True")
        super().__init__(read_only=True)
        self.archive = archive if isinstance(archive, Archive) else _open(archive, **how)
        self.folder = folder.strip("/")
        self._tree = self.archive.folders()
        self._is_open = True

    def with_read_only(self, read_only: bool = False) -> Store:
        return Store(self.archive, self.folder, read_only=read_only)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and self._what() == other._what()

    def __hash__(self) -> int:
        return hash(self._what())

    def _what(self) -> tuple[str | None, ...]:
        a = self.archive
        return a.address, a.index, a.view, self.folder

    def __str__(self) -> str:
        return f"holdall://{self.folder}::{self.archive.address}"

    def __repr__(self) -> str:
        return f"<holdall.zarr.Store {str(self)!r}>"

    def __reduce__(self) -> Any:
        return Store, (self.archive, self.folder)

    async def _open(self) -> None:
        self._is_open = True

    # Contents

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        content = await self._apart(self._get, self._name(key), byte_range)
        return None if content is None else prototype.buffer.from_bytes(content)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return await asyncio.gather(*(self.get(key, prototype, some) for key, some in key_ranges))

    def _get(self, name: str, some: ByteRequest | None) -> bytes | None:
        if name not in self.archive:
            return None
        match some:
            case None:
                return self.archive[name]
            case RangeByteRequest(start, end):
                return self.archive.read(name, start, end)
            case OffsetByteRequest(start):
                return self.archive.read(name, start)
            case SuffixByteRequest(length):
                return self.archive.read(name, max(0, self.archive.size(name) - length))
        raise TypeError(f"expected a request of bytes, found {some!r}")

    async def exists(self, key: str) -> bool:
        return await self._apart(self.archive.__contains__, self._name(key))

    async def getsize(self, key: str) -> int:
        name = self._name(key)
        if not await self.exists(key):
            raise FileNotFoundError(key)
        return await self._apart(self.archive.size, name)

    async def _apart(self, what: Callable[..., T], *args: Any) -> T:
        """Run what may wait for a server in a thread. Reading from a disk is quicker than that."""
        return what(*args) if self.archive.source.near else await asyncio.to_thread(what, *args)

    def _name(self, key: str) -> str:
        return f"{self.folder}/{key}" if self.folder else key

    # Listing

    async def list(self) -> AsyncIterator[str]:
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in await self._apart(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> Iterable[str]:
        folder = self._name(prefix).rpartition("/")[0]
        numbers: Iterable[str | int] = chain(self._tree.files(folder), self._tree.below(folder))
        names = filter(has_place, map(self.archive.name, numbers))
        start = len(self.folder) + 1 if self.folder else 0
        return [name[start:] for name in names if name.startswith(prefix, start)]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = self._name(prefix).strip("/")
        for name in await self._apart(self._children, folder):
            yield name

    def _children(self, folder: str) -> Iterable[str]:
        files = (self.archive.name(number) for number in self._tree.files(folder))
        names = [*filter(has_place, files), *self._tree.folders(folder)]
        return dict.fromkeys(name[len(folder) + 1 if folder else 0 :] for name in names)

    # What an archive does not support

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()
