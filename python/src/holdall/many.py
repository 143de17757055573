"""Several archives as one, such as the chunks of a data set."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from glob import glob, has_magic
from itertools import accumulate
from typing import Any

from . import opening, table, trust
from .archive import Archive, Content, Info
from .errors import HoldallError, NotFoundError, StaleIndexError, UnsupportedError
from .objects import LocalFile

MAX_OPEN = 128  # archives; the one that was not used for the longest time is closed
AT_ONCE = 16  # far archives that are asked for their number of files
BESIDE = (opening.SUFFIX, ".parity")  # objects beside archives that a pattern of archives also matches


def expand(what: Any) -> list[Any] | None:
    """Return the archives that a list or a pattern stands for, or None for one archive."""
    if isinstance(what, Sequence) and not isinstance(what, str | bytes):
        return [one for some in what for one in expand(some) or [some]]
    address = os.fspath(what) if isinstance(what, str | os.PathLike) else ""
    if not isinstance(address, str) or not has_magic(address) or os.path.exists(address):
        return None
    if "://" not in address:
        found = glob(address, recursive=True)
    elif address.startswith(("http://", "https://")):
        return None  # whose objects are not listed; a query may contain a question mark
    else:
        found = _far(address)
    found = sorted(name for name in found if not name.endswith(BESIDE))
    if not found:
        raise NotFoundError(address, "no archive has such a name")
    return found


def _far(pattern: str) -> list[str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UnsupportedError(pattern, "a pattern of addresses needs the package fsspec") from None
    try:
        fs, path = url_to_fs(pattern)
        return [fs.unstrip_protocol(name) for name in fs.glob(path)]
    except Exception as err:  # each filesystem has its own errors
        raise HoldallError(pattern, str(err)) from err


def _there(name: str) -> Any:
    """Return a method that calls that of the archive in which a file is."""

    def method(self: Many, which: str | int, *args: Any, **more: Any) -> Any:
        i, there = self._at(which)
        return getattr(self.archive(i), name)(there, *args, **more)

    return method


class Many(Archive):
    """Several archives as one mapping.

    Files are numbered archive by archive, in the order in which the archives were given. If several archives have a
    name, that in the last of them is found; the others have numbers only. Archives are opened when they are used.
    """

    format: str = "several"

    def __init__(self, archives: Sequence[Any], **how: Any) -> None:
        super().__init__(archives, **how)
        self.archives = list(archives)
        if how.get("index") not in (None, False):
            raise UnsupportedError(self.address, "one index cannot be that of several archives")
        self._opened: OrderedDict[int, Archive] = OrderedDict()
        if any("://" in str(a) for a in self.archives):
            with ThreadPoolExecutor(AT_ONCE) as pool:
                self._counts = list(pool.map(self._count, range(len(self.archives))))
        else:
            self._counts = list(map(self._count, range(len(self.archives))))
        self._ends = list(accumulate(files for files, _, _ in self._counts))

    def _count(self, i: int) -> tuple[int, int, bool]:
        """Return the number of files, their size, and whether they are stored in the order of their numbers."""
        what = self.archives[i]
        if isinstance(what, str | os.PathLike) and "://" not in str(what) and self._how.get("index") is None and not trust.keys(self._how.get("trusted")):
            try:
                obj = LocalFile(os.fspath(what) + opening.SUFFIX)
            except NotFoundError:
                pass
            else:
                try:
                    return table.counted(table.read_head(obj))
                except (HoldallError, KeyError, TypeError, AttributeError):
                    pass  # it is not used
                finally:
                    obj.close()
        with Archive(what, **self._how) as a:
            if a.format == "catalog":
                self.archives[i] = a.source  # as of this commit, whenever it is opened again
            return len(a), a.bytes, isinstance(a.stored(), range)

    @property
    def address(self) -> str:  # type: ignore[override]
        """Some of the addresses."""
        return f"{self.archives[0]} and {len(self.archives) - 1} more" if self.archives else "no archive"

    def archive(self, i: int) -> Archive:
        """Return one of the archives."""
        a = self._opened.get(i)
        if a is None:
            a = Archive(self.archives[i], **self._how)
            if len(a) != self._counts[i][0]:
                raise StaleIndexError(a.address, f"it has {len(a)} files, but it had {self._counts[i][0]} when it was opened, or as its index says")
            self._opened[i] = a
            while len(self._opened) > MAX_OPEN:
                self._opened.popitem(last=False)  # it is closed when nothing reads from it any more
        self._opened.move_to_end(i)
        return a

    def _each(self) -> Iterator[Archive]:
        return map(self.archive, range(len(self.archives)))

    def _at(self, which: str | int) -> tuple[int, str | int]:
        """Return in which archive a file is, and its name or number there."""
        if isinstance(which, str):
            for i in reversed(range(len(self.archives))):
                if which in self.archive(i):
                    return i, which
            raise NotFoundError(self.address, "there is no such file", which)
        n = len(self)
        if not -n <= which < n:
            raise NotFoundError(self.address, f"there is no file {which} of {n}")
        i = bisect_right(self._ends, which % n)
        return i, which % n - self.first(i)

    def first(self, i: int) -> int:
        """Return the number of the first file of an archive."""
        return self._ends[i - 1] if i else 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[str]:
        return (name for a in self._each() for name in a)

    def __contains__(self, name: object) -> bool:
        return any(name in a for a in self._each())

    __getitem__, name, size, read, open = map(_there, ("__getitem__", "name", "size", "read", "open"))

    def info(self, which: str | int) -> Info:
        i, there = self._at(which)
        found = self.archive(i).info(there)
        return found._replace(number=self.first(i) + found.number if found.number >= 0 else -1)

    def read_many(self, which: Iterable[str | int]) -> list[Content]:
        wanted: dict[int, list[tuple[int, str | int]]] = {}
        n = 0
        for n, one in enumerate(which, 1):
            i, there = self._at(one)
            wanted.setdefault(i, []).append((n - 1, there))
        contents = [b""] * n
        for i, some in wanted.items():
            for (at, _), content in zip(some, self.archive(i).read_many(there for _, there in some), strict=True):
                contents[at] = content
        return contents

    def folders(self) -> Any:
        raise UnsupportedError(self.address, "folders of several archives; each of `archives` has its own")

    def ranges(self, folder: str) -> list[range]:
        if not folder:
            return [range(len(self))]
        shifted = partial(lambda first, r: range(first + r.start, first + r.stop))
        return [shifted(self.first(i), r) for i, a in enumerate(self._each()) for r in a.ranges(folder)]

    @property
    def near(self) -> bool:
        return not any("://" in str(a) for a in self.archives)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self._counts)

    @property
    def verifies(self) -> bool:  # type: ignore[override]
        """Whether contents of all archives are compared with their digests."""
        return not self.unverified

    @property
    def unverified(self) -> str:  # type: ignore[override]
        """Why contents of one of the archives are not."""
        return next((f"{a.address}: {a.unverified}" for a in self._each() if a.unverified), "")

    def stored(self) -> Sequence[int]:
        return range(len(self)) if all(in_order for _, _, in_order in self._counts) else _Stored(self)

    def close(self) -> None:
        for a in self._opened.values():
            a.close()
        self.archives, self._ends = [], []

    def __reduce__(self) -> tuple[Any, ...]:
        how = {k: v for k, v in self._how.items() if v is not None}
        return (_reopen, (list(map(opening.again, self.archives)), how))

    def __repr__(self) -> str:
        return f"<holdall.Archive {self.address!r}, {len(self)} files>"

    _repr_html_ = None  # type: ignore[assignment]


class _Stored(Sequence[int]):
    """The numbers of all files of several archives in stored order."""

    def __init__(self, many: Many) -> None:
        self._many = many
        self._last: tuple[Archive, Sequence[int]] | None = None

    def __len__(self) -> int:
        return len(self._many)

    def __getitem__(self, at: Any) -> Any:
        many = self._many
        i = bisect_right(many._ends, at)
        if many._counts[i][2]:
            return at
        first, a = many.first(i), many.archive(i)
        if self._last is None or self._last[0] is not a:
            self._last = a, a.stored()
        return first + self._last[1][at - first]


def _reopen(archives: list[Any], how: dict[str, Any]) -> Many:
    return Many(archives, **how)
