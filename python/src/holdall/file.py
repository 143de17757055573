"""A file of an archive as a Python file."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .reading import Reader


class ArchiveFile(io.RawIOBase):
    """Reads a file of an archive at any position. Reads are independent, so they also work in forked processes."""

    def __init__(self, reader: Reader, row: int, name: str, size: int) -> None:
        self.name = name
        self.size = size
        self._reader = reader
        self._row = row
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._checkClosed()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._checkClosed()
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if at < 0:
            raise ValueError(f"a place before the beginning: {at}")
        self._at = at
        return at

    def readinto(self, buffer: Any) -> int:
        self._checkClosed()
        room = memoryview(buffer).cast("B")
        data = self._reader.part(self._row, self._at, self._at + len(room))
        room[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._checkClosed()
        data = self._reader.part(self._row, self._at, None)
        self._at += len(data)
        return data
