"""The usual lookup and the usual read, in as few steps as Python allows.

They do the same as Table.find, Table.runs and LocalFile.read. Everything unusual is left to those: a block that was not
compared with its checksum yet, a name that does not exist, any damage. What leads to a row is not compared with
checksums, because it is proof enough that the row has the requested name. The place in the row is compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from struct import Struct, error
from zlib import crc32

from .objects import LocalFile
from .table import Table

_LOW48 = (1 << 48) - 1

Find = Callable[[bytes], int]
Read = Callable[[str | int], bytes]


def finder(table: Table) -> Find:
    """Return a function that finds the row of a name, of any kind. It returns -1 if Table.find must be used."""
    m, slots, hashes, groups, names = table.map, table.slots, table.hashes, table.groups, table.names_at
    shift, rows, names_len = table.shift, table.rows, table.names_len
    two, four, wide = Struct("<II").unpack_from, Struct("<I"), Struct("<QQ").unpack_from
    pack, one = four.pack, four.unpack_from

    def find(name: bytes) -> int:
        try:
            hashed = crc32(name)
            low, high = two(m, slots + (hashed >> shift << 2))
            low = hashes + 8 * low
            at = m.find(pack(hashed), low, hashes + 8 * high)
            if at < 0 or at - low & 7:
                return -1
            row: int = one(m, at + 4)[0]
            low, high = wide(m, groups + (row >> 4 << 3))
            if row >= rows or high - low > 4096 or high > names_len:
                return -1
            group = m[names + low : names + high]
            i = row & 15
            shared, n = group[i], group[16 + i]
            at = 32 + sum(group[16 : 16 + i])
            # If its lengths have four bytes, the low word is not an offset in the names, and there is no group.
            if shared + n != len(name) or group[at : at + n] != name[shared:] or group[32 : 32 + shared] != name[:shared] or shared > group[16]:
                return -1
            return row
        except (IndexError, ValueError, error):
            return -1

    return find


def reader(table: Table, archive: LocalFile, find: Find, slow: Read) -> Read:
    """Return a function that reads a file of an archive by its name or number; slow does that for unusual files."""
    m, ok, places, simple = table.map, table.ok, table.places, table.simple
    files, same = table.files, table.files == table.rows
    place = Struct("<QI").unpack_from
    fd, size, pread = archive.fd, archive.size, os.pread

    def read(which: str | int) -> bytes:
        try:
            if type(which) is str:
                row = find(which.encode())
                if row < 0:
                    return slow(which)
            elif type(which) is int and 0 <= which < files and (same or table.numbers is not None):
                row = which if same else table.numbers[which]  # type: ignore[index]
            else:
                return slow(which)
            at = places + 12 * row
            if not (ok[at >> 12] and ok[at + 11 >> 12]):
                return slow(which)
            where, length = place(m, at)
            offset = where & _LOW48
            if where >> 48 not in simple or offset + length > size:
                return slow(which)
            data = pread(fd, length, offset)
            return data if len(data) == length else slow(which)
        except (IndexError, OSError, ValueError, error):
            return slow(which)  # this raises the error

    return read
