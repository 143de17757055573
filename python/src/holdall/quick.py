"""The usual read, in as few steps as Python allows. Everything unusual is left to Reader.read."""

from __future__ import annotations

import os
from collections.abc import Callable

from .errors import HoldallError
from .objects import LocalFile
from .table import Table

Read = Callable[[str | int], bytes]


def reader(table: Table, archive: LocalFile, slow: Read) -> Read:
    """Return a function that reads a file of an archive by its name or number; slow does that for unusual files."""
    find, run = table.find, table.run
    simple = [name == ("", False) for name in table.volumes]
    files, same = table.files, table.files == table.rows
    fd, size, pread = archive.fd, archive.size, os.pread

    def read(which: str | int) -> bytes:
        try:
            if type(which) is str:
                row = find(which.encode())
            elif type(which) is int and 0 <= which < files and (same or table.numbers is not None):
                row = which if same else table.numbers[which]  # type: ignore[index]
            else:
                return slow(which)
            place = run(row) if row >= 0 else None
            if place is None or not simple[place[0]] or place[1] + place[2] > size:
                return slow(which)
            data = pread(fd, place[2], place[1])
            return data if len(data) == place[2] else slow(which)
        except (HoldallError, IndexError, OSError, OverflowError, ValueError):
            return slow(which)  # this raises the error

    return read
