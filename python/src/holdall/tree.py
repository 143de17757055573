"""Folders of an archive.

An archive has names, and folders only as parts of names. Its files are numbered in the order of folder and name. So the
files in a folder are one range of numbers, and those in the folders below it another. Both are found by binary search:
nothing is listed or kept in memory, however many files there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from .listing import is_path, order_of

__all__ = ["Tree", "has_place"]


class Tree:
    """The folders of an archive. The name of a folder has no slash at its end; "" is the root."""

    def __init__(self, names: Any) -> None:  # which have a length, and name(number)
        self._names = names

    def files(self, folder: str) -> range:
        """Return the numbers of the files directly in a folder. In the root, some names may not be paths."""
        raw = _bytes(folder)
        first = self._first(raw)
        return range(first, self._first(raw + b"\0", first))

    def below(self, folder: str) -> range:
        """Return the numbers of the files in all folders below a folder."""
        if not folder:
            return range(self._first(b"\0"), len(self._names))
        raw = _bytes(folder)
        first = self._first(raw + b"/")
        return range(first, self._first(raw + b"0", first))  # "0" follows "/"

    def folders(self, folder: str) -> list[str]:
        """Return the folders directly in a folder, with their whole names."""
        return list(self.each_folder(folder))

    def each_folder(self, folder: str) -> Iterator[str]:
        """Yield the folders directly in a folder, one by one."""
        below = self.below(folder)
        start = len(folder) + 1 if folder else 0
        found: set[str] = set()
        at = below.start
        while at < below.stop:
            deep = self._names.name(at).rpartition("/")[0]
            end = deep.find("/", start)
            child = deep if end < 0 else deep[:end]
            if child not in found:
                found.add(child)
                yield child
            # Other folders may be between "a" and "a/b", such as "a-b".
            after = _bytes(child) + (b"\0" if end < 0 else b"0")
            at = self._first(after, at + 1, below.stop)

    def is_folder(self, folder: str) -> bool:
        """Return whether there is a file in a folder or below it."""
        return bool(self.files(folder) or self.below(folder))

    def _first(self, folder: bytes, low: int = 0, high: int | None = None) -> int:
        """Return the first file whose folder is not before this one."""
        numbers = range(len(self._names))
        return bisect_left(numbers, folder, low, len(numbers) if high is None else high, key=self._folder)

    def _folder(self, number: int) -> bytes:
        return order_of(_bytes(self._names.name(number)))[0]


def has_place(name: str) -> bool:
    """Return whether a name has a place in a tree. Others, such as "/a" and "a//b", have none."""
    return is_path(_bytes(name))


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
