"""What every list of an archive's files answers, and the list that an archive's own index makes.

Names are bytes here. A file has a number; a row has one, too, and an index has rows that are no files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import le
from typing import Any, NamedTuple, Protocol

from .errors import DamagedError, HoldallError

RAW = -1  # in the place of a codec
INLINE = -1  # in the place of a volume


class Extent(NamedTuple):
    """Where a part of a content lies. What no extent has is zeros."""

    at: int  # in the content
    length: int
    volume: int
    offset: int
    stored: int
    skip: int  # where the content begins in what the stored bytes become
    codec: int
    data: bytes = b""  # of one that is inline


class Proof(NamedTuple):
    """What a content is compared with: one digest of all of it, or one of each piece."""

    algo: str
    sum: bytes
    chunk: int = 0
    sums: tuple[bytes, ...] = ()


class Rows(Protocol):
    """A list of files."""

    files: int
    total: int  # bytes of all of them
    algos: tuple[str, ...]  # of the digests

    def find(self, name: bytes) -> int:
        """The row of a name, -1 if there is none. Only files are found."""

    def row(self, number: int) -> int:
        """The row of a file that has a number."""

    def number(self, row: int) -> int:
        """The number of the file in a row."""

    def name(self, row: int) -> bytes: ...

    def names(self) -> Iterator[bytes]:
        """Those of all files, in the order of their numbers."""

    def kind(self, row: int) -> str: ...

    def size(self, row: int) -> int: ...

    def extents(self, row: int) -> list[Extent]:
        """Where the content lies, in its order. Raises what is wrong with it."""

    def runs(self, rows: list[int]) -> list[tuple[int, int, int] | None]:
        """Volume, offset and length of files that are one raw run; None of others."""

    def proof(self, row: int) -> Proof | None: ...

    def stored(self) -> range | array[int]:
        """The numbers of all files in the order in which they are stored; a range if that is their own order."""

    def close(self) -> None: ...


def text(name: bytes) -> str:
    """A name as programs have it. What is no UTF-8 in it survives, as in :func:`os.fsdecode`."""
    return name.decode("utf-8", "surrogateescape")


def order_of(name: bytes) -> tuple[bytes, bytes, bool]:
    """What names are sorted by: directory, then the name in it. What is no path stands in the root."""
    if is_path(name):
        folder, _, base = name.rpartition(b"/")
        return folder, base, False
    return b"", name, True


def is_path(name: bytes) -> bool:
    """Whether a name is one that can be a file's below a folder."""
    if name == b".":
        return True
    if b"." not in name and b"//" not in name and name and name[0] != 47 and name[-1] != 47:
        return True
    return not any(part in (b"", b".", b"..") for part in name.split(b"/"))


class Closed:
    """What there is in the place of rows, and of what reads them, once an archive is closed."""

    def __init__(self, archive: str) -> None:
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        raise HoldallError(self._archive, "the archive is closed")

    def find(self, name: bytes) -> int:
        """Fail, as all else does."""
        raise HoldallError(self._archive, "the archive is closed")

    def read(self, which: str | int) -> bytes:
        """Fail, as all else does."""
        raise HoldallError(self._archive, "the archive is closed")

    def close(self) -> None:
        """End it once more."""


class File(NamedTuple):
    """A file of a :class:`Listing`."""

    size: int
    extents: tuple[Extent, ...] = ()
    digest: bytes = b""
    fault: str = ""  # why it cannot be read


class Listing:
    """Files that an archive's own index lists, in memory."""

    def __init__(self, archive: str, files: dict[bytes, File], digest: str) -> None:
        self.archive = archive
        self.algos: tuple[str, ...] = (digest,) if any(f.digest for f in files.values()) else ()
        self._algo = digest
        self._names = sorted(files, key=order_of)
        self._files = [files[name] for name in self._names]
        self._rows = {name: i for i, name in enumerate(self._names)}
        self.files = len(self._names)
        self.total = sum(f.size for f in self._files)

    def find(self, name: bytes) -> int:
        return self._rows.get(name, -1)

    def row(self, number: int) -> int:
        return number

    def number(self, row: int) -> int:
        return row

    def name(self, row: int) -> bytes:
        return self._names[row]

    def names(self) -> Iterator[bytes]:
        return iter(self._names)

    def kind(self, row: int) -> str:
        return "file"

    def size(self, row: int) -> int:
        return self._files[row].size

    def extents(self, row: int) -> list[Extent]:
        file = self._files[row]
        if file.fault:
            raise DamagedError(self.archive, file.fault, text(self._names[row]))
        return list(file.extents)

    def runs(self, rows: list[int]) -> list[tuple[int, int, int] | None]:
        """Volume, offset and length of files that are one raw run; None of others."""
        runs: list[tuple[int, int, int] | None] = []
        for row in rows:
            file = self._files[row]
            e = file.extents[0] if len(file.extents) == 1 and not file.fault else None
            runs.append((e.volume, e.offset, e.length) if e and e.volume >= 0 and e.codec == RAW and e.length == file.size else None)
        return runs

    def proof(self, row: int) -> Proof | None:
        digest = self._files[row].digest
        return Proof(self._algo, digest) if digest else None

    def stored(self) -> range | array[int]:
        """The numbers of all files in the order in which they are stored; a range if that is their own order."""
        keys = [(f.extents[0].volume, f.extents[0].offset) if f.extents else (0, 0) for f in self._files]
        if all(map(le, keys, keys[1:])):
            return range(self.files)
        return array("I", sorted(range(self.files), key=keys.__getitem__))

    def close(self) -> None:
        pass
