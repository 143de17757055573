"""An archive: a mapping from names to contents."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from . import opening, quick, trust
from .catalog import Catalog, Folders
from .file import ArchiveFile
from .glob import matcher
from .listing import Closed, Rows, text
from .objects import LocalFile, Object
from .quick import Read
from .reading import Reader
from .table import Table
from .tree import Tree


Content: TypeAlias = bytes


class Info(NamedTuple):
    """The properties of a file that are known without reading it."""

    name: str
    kind: str  # "file", or "property" of a content repository
    size: int
    number: int  # -1 in a catalogue, which would have to look for it
    proven: bool = False  # whether all of it is compared with a digest when it is read


class Archive(Mapping[str, bytes]):
    """A mapping from the names of an archive's files to their contents.

    Files also have numbers, from ``a[0]`` to ``a[len(a) - 1]``, in the order of folder and name; in a catalogue of name.
    Any number of threads can read an archive, and so can processes that were forked after it was opened. A pickled
    archive is opened again when it is first used.
    """

    format: str  # "caf", "lindi", "tar", …
    address: str  # of the archive, without secrets
    verifies: bool  # whether contents are compared with their digests
    unverified: str  # why they are not
    source: Object  # where the archive's bytes are
    view: str  # the view that is used, if the format has several
    _rows: Rows
    _reader: Reader
    index: str | None  # the index in use; None if the archive's own is used

    def __init__(self, what: Any, **how: Any) -> None:
        self._what = what
        self._how = how

    def __getattr__(self, name: str) -> Any:
        """Open the archive when it is first used."""
        if name.startswith("__") or name in ("_what", "_how") or "_rows" in self.__dict__:
            raise AttributeError(name)
        self._open()
        return getattr(self, name)

    def _open(self) -> None:
        found = opening.find(self._what, **self._how)
        reader = found.reader(found)
        self.view = found.view
        self.format, self.address, self.index = found.format, found.archive.name, found.index
        self.verifies, self.unverified = reader.verifies, reader.unverified
        self.source = found.archive
        self._reader = reader
        self._read: Read = reader.read
        if isinstance(found.rows, Table):
            if isinstance(found.archive, LocalFile) and hasattr(os, "pread") and not reader.verifies:
                self._read = quick.reader(found.rows, found.archive, reader.read)
        self._find = reader.find
        self._rows = found.rows

    # A mapping

    def __len__(self) -> int:
        return self._rows.files

    def __iter__(self) -> Iterator[str]:
        return map(text, self._rows.names())

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._find(name.encode("utf-8", "surrogateescape")) >= 0
        except UnicodeEncodeError:  # such names do not exist
            return False

    def __getitem__(self, which: str | int) -> Content:
        """Return the content of a file, by its name or number."""
        return self._read(which)

    def name(self, which: str | int) -> str:
        """Return the name of the file with that number."""
        return text(self._rows.name(self._reader.row(which)))

    def size(self, which: str | int) -> int:
        """Return the size of a file in bytes."""
        return self._rows.size(self._reader.row(which))

    def info(self, which: str | int) -> Info:
        """Return the properties of a file, by its name or number."""
        row = self._reader.row(which)
        rows = self._rows
        proven = rows.size(row) == 0 or self.verifies and rows.proof(row) is not None
        return Info(text(rows.name(row)), rows.kind(row), rows.size(row), rows.number(row), proven)

    def read(self, which: str | int, start: int = 0, end: int | None = None) -> Content:
        """Return a part of a file. start and end are as in a slice."""
        return self._reader.part(self._reader.row(which), start, end)

    def read_many(self, which: Iterable[str | int]) -> list[Content]:
        """Return the contents of several files. Files that are stored close together are read together."""
        return self._reader.many(list(map(self._reader.row, which)))

    def open(self, which: str | int) -> io.BufferedReader:
        """Return an open file that can seek."""
        row = self._reader.row(which)
        name = text(self._rows.name(row))
        return io.BufferedReader(ArchiveFile(self._reader, row, name, self._rows.size(row)), 64 << 10)

    def glob(self, pattern: str) -> Iterator[str]:
        """Yield the names that match a pattern with ``*``, ``?``, ``[…]``, and ``**`` for any folders."""
        matches = matcher(pattern)
        return (name for name in self if matches(name))

    def ranges(self, folder: str) -> list[range]:
        """Return the numbers of the files in a folder and below it; all for ""."""
        if not folder:
            return [range(len(self))]
        tree = self.folders()
        return [tree.files(folder), tree.below(folder)] if isinstance(tree, Tree) else [tree.numbers(folder)]

    def folders(self) -> Tree | Folders:
        """Return the folders, which fsspec and zarr list."""
        rows = self._rows
        return Folders(rows) if isinstance(rows, Catalog) else Tree(self)

    # Properties of the whole archive, and closing

    @property
    def near(self) -> bool:
        """Whether reads take no requests."""
        return self.source.near

    @property
    def bytes(self) -> int:
        """The total size of all files in bytes."""
        return self._rows.total

    def stored(self) -> Sequence[int]:
        """Return the numbers of all files in stored order; a range if that is the order of numbers."""
        return self._rows.stored()

    def close(self) -> None:
        """Close the archive. Later reads fail."""
        if "_rows" in self.__dict__:
            self._reader.close()
            self._rows.close()
            self._rows = self._reader = cast(Any, Closed(self.address))
            self._find, self._read = self._rows.find, self._reader.read

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        what = self.source.again() if "_rows" in self.__dict__ else opening.again(self._what)
        how = {k: opening.again(v) if k == "index" else v for k, v in self._how.items() if v is not None}
        return (_reopen, (what, how) if how else (what,))

    def __repr__(self) -> str:
        what = self.address if "_rows" in self.__dict__ else self._what
        return f"<holdall.Archive {what!r}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        from . import page

        return page.html(self)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def _reopen(what: Any, how: dict[str, Any] | None = None) -> Archive:
    return Archive(what, **(how or {}))


def open(
    what: Any,
    *,
    index: Any = None,
    view: str | None = None,
    verify: bool | None = None,
    external: bool | None = None,
    cache: Any = None,
    cache_size: int | str | None = None,
    trusted: Any = None,
) -> Archive:
    """Open an archive for reading.

    what: a path, a URL, an fsspec file, or an open file that can seek. It may be a catalogue, NAME.catalog. A list of
        these or a pattern, such as "photos-*.caf", stands for several archives, which are read as one.
    index: where the index is; by default ARCHIVE.holdall if it exists. False uses none.
    view: one of the format's views: "zarr" has the keys of a LINDI archive.
    verify: True compares contents with their digests, and fails if that is not possible. None compares them if possible
        (``Archive.verifies`` reports whether it is). False does not compare.
    external: where the archive may refer to outside itself: None means its own folder or server, True anywhere.
    cache: a folder that keeps blocks of archives on servers, for all processes; by default $HOLDALL_CACHE_DIR. False uses
        none.
    cache_size: how much it holds, such as "200GiB"; by default $HOLDALL_CACHE_SIZE, or else what it has.
    trusted: a public key, a file of one, or a list of these: only what one of them has signed is read ("holdall sign"). By
        default $HOLDALL_TRUSTED.
    """
    from .many import Many, expand

    signers = trust.keys(trusted)
    if trusted is not None and not signers:
        raise ValueError("trusted has no keys")
    how = {"trusted": signers or None, "index": index, "view": view, "verify": verify, "external": external, "cache": cache and os.path.abspath(cache), "cache_size": cache_size}
    if (several := expand(what)) is not None:
        return Many(several, **how)
    archive = Archive(what, **how)
    archive._open()
    return archive
