"""The interface of lists of an archive's files, and the list from an archive's own index.

Names are bytes here. Files and rows have numbers of their own, because an index also has rows that are not files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from operator import le
from typing import Any, NamedTuple, Protocol

from .errors import DamagedError, HoldallError

RAW = -1  # instead of a codec
INLINE = -1  # instead of a volume


class Extent(NamedTuple):
    """Where a part of a content is stored. Parts without an extent are zeros."""

    at: int  # offset in the content
    length: int
    volume: int
    offset: int
    stored: int
    skip: int  # where the content begins in the decoded bytes
    codec: int
    data: bytes = b""  # of an inline extent


COMPARE_WHOLE = 1 << 20  # files up to this size are read whole and compared, even if only a part is requested


class Proof(NamedTuple):
    """What a content is compared with: one digest of all of it, or one for each piece."""

    algo: str
    sum: bytes
    chunk: int = 0
    sums: tuple[bytes, ...] = ()

    def compared(self, size: int, start: int, end: int) -> tuple[int, int] | None:
        """Return which bytes of a content must be read to compare those from start to end, or None for long content."""
        if self.chunk:
            return start - start % self.chunk, min(end + -end % self.chunk, size)
        return (0, size) if size <= COMPARE_WHOLE or end - start == size else None


class Rows(Protocol):
    """A list of files. Those of an archive's own index have their numbers as rows, and content that is described by extents."""

    files: int
    total: int  # of the sizes of the files
    algos: tuple[str, ...]  # of the digests

    def find(self, name: bytes) -> int:
        """Return the row of the file with a name, or -1 if there is none."""

    def row(self, number: int) -> int:
        return number

    def number(self, row: int) -> int:
        return row

    def name(self, row: int) -> bytes: ...

    def names(self) -> Iterator[bytes]:
        """Return the names of all files, in the order of their numbers."""

    def kind(self, row: int) -> str:
        return "file"

    def size(self, row: int) -> int: ...

    def extents(self, row: int) -> list[Extent]:
        """Return where the content is stored, in its order. Raises an error if the content cannot be read."""

    def runs(self, rows: list[int]) -> list[tuple[int, int, int] | None]:
        """Return volume, offset and length of files that are one uncompressed run, and None for others."""
        found = ((self.extents(row), self.size(row)) for row in rows)
        return [(e[0].volume, e[0].offset, n) if len(e) == 1 and e[0].volume >= 0 and e[0].codec == RAW and e[0].length == n else None for e, n in found]

    def proof(self, row: int) -> Proof | None: ...

    def stored(self) -> range | array[int]:
        """Return the numbers of all files in stored order; a range if that is the order of numbers."""
        return range(self.files)

    def close(self) -> None:
        return None


def text(name: bytes) -> str:
    """Return a name as a str. Bytes that are not UTF-8 survive, as in :func:`os.fsdecode`."""
    return name.decode("utf-8", "surrogateescape")


def order_of(name: bytes) -> tuple[bytes, bytes, bool]:
    """Return the sort key of a name: folder, then the name in it. Names that are not paths are in the root."""
    if is_path(name):
        folder, _, base = name.rpartition(b"/")
        return folder, base, False
    return b"", name, True


def is_path(name: bytes) -> bool:
    """Return whether a name can be that of a file below a folder."""
    if name == b".":
        return True
    if b"." not in name and b"//" not in name and name and name[0] != 47 and name[-1] != 47:
        return True
    return not any(part in (b"", b".", b"..") for part in name.split(b"/"))


class Closed:
    """Replaces rows and their reader after an archive is closed."""

    def __init__(self, archive: str) -> None:
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        return self._fail()

    def _fail(self, *_: Any) -> Any:
        raise HoldallError(self._archive, "the archive is closed")

    find = read = _fail

    def close(self) -> None:
        pass


class File(NamedTuple):
    """A file of a :class:`Listing`."""

    size: int
    extents: tuple[Extent, ...] = ()
    digest: bytes = b""
    fault: str = ""  # why it cannot be read


class Listing(Rows):
    """The files in an archive's own index, in memory."""

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

    def name(self, row: int) -> bytes:
        return self._names[row]

    def names(self) -> Iterator[bytes]:
        return iter(self._names)

    def size(self, row: int) -> int:
        return self._files[row].size

    def extents(self, row: int) -> list[Extent]:
        file = self._files[row]
        if file.fault:
            raise DamagedError(self.archive, file.fault, text(self._names[row]))
        return list(file.extents)

    def proof(self, row: int) -> Proof | None:
        digest = self._files[row].digest
        return Proof(self._algo, digest) if digest else None

    def stored(self) -> range | array[int]:
        keys = [(f.extents[0].volume, f.extents[0].offset) if f.extents else (0, 0) for f in self._files]
        if all(map(le, keys, keys[1:])):
            return range(self.files)
        return array("I", sorted(range(self.files), key=keys.__getitem__))
