"""Reads all rows of an index directory, in two ways that share nothing.

by_leveldb opens a copy with LevelDB itself; pure follows the files' own bytes:
CURRENT, the manifest, tables and logs. Neither changes the directory.
"""

import os
import shutil
import struct
import tempfile
import zlib

import plyvel
import snappy
from crc32c import crc32c


class Fault(Exception):
    """What is wrong, with one of the words that expectations have for it."""

    def __init__(self, word, what):
        super().__init__(f"{word}: {what}")
        self.word = word


def corrupt(what):
    return Fault("index_corrupt", what)


def by_leveldb(directory):
    if not os.path.exists(os.path.join(directory, "CURRENT")):
        raise Fault("not_a_bundle", "no index/CURRENT")
    with tempfile.TemporaryDirectory() as t:
        copy = os.path.join(t, "index")
        shutil.copytree(directory, copy)
        try:
            db = plyvel.DB(copy, paranoid_checks=True)
        except plyvel.Error as e:
            raise corrupt(repr(e)) from e
        try:
            rows = dict(db.iterator(verify_checksums=True))
            # The iterator ends at a block that it cannot read, and says nothing.
            for key, value in rows.items():
                if db.get(key, verify_checksums=True) != value:
                    raise corrupt(f"LevelDB finds another value of {key!r}")
            return rows
        except plyvel.Error as e:
            raise corrupt(repr(e)) from e
        finally:
            db.close()


def uvarint(b, i):
    """The number at b[i:], and where it ends."""
    v = shift = 0
    while True:
        if i >= len(b) or shift > 63:
            raise ValueError("a number does not end")
        c = b[i]
        i += 1
        v |= (c & 0x7F) << shift
        shift += 7
        if c < 0x80:
            return v & (1 << 64) - 1, i


def text(b, i):
    n, i = uvarint(b, i)
    if i + n > len(b):
        raise ValueError("a string does not end")
    return b[i : i + n], i + n


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


BLOCK = 32768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def log_records(b, may_be_torn):
    """The records of a log, or of a manifest: they are split over blocks."""
    at, part = 0, None
    while at < len(b):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        if len(b) - at < 7:
            break
        crc, n, kind = struct.unpack_from("<IHB", b, at)
        if kind == 0 and n == 0:  # room that was never used
            at += left
            continue
        if 7 + n > left:
            raise corrupt("log: a fragment is longer than its block")
        if at + 7 + n > len(b):
            break
        if masked(crc32c(b[at + 6 : at + 7 + n])) != crc:
            raise corrupt(f"log: checksum at {at}")
        data = b[at + 7 : at + 7 + n]
        at += 7 + n
        if kind == FULL:
            part = None
            yield data
        elif kind == FIRST:
            part = data
        elif kind in (MIDDLE, LAST):
            if part is None:
                raise corrupt(f"log: a fragment at {at} continues nothing")
            part += data
            if kind == LAST:
                yield part
                part = None
        else:
            raise corrupt(f"log: fragment type {kind}")
    if part is not None and not may_be_torn:
        raise corrupt("log: it ends within a record")


COMPARATOR, LOG, NEXT, SEQUENCE, POINTER, DELETED, ADDED, PREVIOUS = 1, 2, 3, 4, 5, 6, 7, 9
DACHA_ADDED, DACHA_WATERLINE = 100, 800


def manifest(b):
    """Tables by number, with their lengths; and the numbers of logs, by tag."""
    tables, logs, following = {}, {}, None
    for edit in log_records(b, False):
        i, new = 0, {}
        while i < len(edit):
            tag, i = uvarint(edit, i)
            if tag == COMPARATOR:
                name, i = text(edit, i)
                if name != b"leveldb.BytewiseComparator":
                    raise corrupt(f"manifest: comparator {name!r}")
            elif tag in (LOG, PREVIOUS):
                logs[tag], i = uvarint(edit, i)
            elif tag == NEXT:
                following, i = uvarint(edit, i)
            elif tag in (SEQUENCE, DACHA_WATERLINE):
                _, i = uvarint(edit, i)
            elif tag == POINTER:
                _, i = uvarint(edit, i)
                _, i = text(edit, i)
            elif tag == DELETED:
                _, i = uvarint(edit, i)
                n, i = uvarint(edit, i)
                tables.pop(n, None)
            elif tag in (ADDED, DACHA_ADDED):
                _, i = uvarint(edit, i)
                n, i = uvarint(edit, i)
                new[n], i = uvarint(edit, i)
                _, i = text(edit, i)
                _, i = text(edit, i)
                if tag == DACHA_ADDED:
                    _, i = uvarint(edit, i)
                    _, i = uvarint(edit, i)
            else:
                raise Fault("index_unsupported", f"manifest: tag {tag}")
        tables.update(new)  # one edit may delete a number and add it again
    if following is None:
        raise corrupt("manifest: no next file number")
    return tables, logs


def block(b, offset, size):
    """The rows of a block of a table."""
    if offset + size + 5 > len(b):
        raise corrupt(f"table: a block at {offset} ends after the table")
    data, kind = b[offset : offset + size], b[offset + size]
    (crc,) = struct.unpack_from("<I", b, offset + size + 1)
    if masked(crc32c(b[offset : offset + size + 1])) != crc:
        raise corrupt(f"table: checksum of the block at {offset}")
    if kind == 1:
        data = snappy.decompress(data)
    elif kind == 2:
        data = zlib.decompress(data)
    elif kind:
        raise Fault("index_unsupported", f"table: block compression {kind}")
    (restarts,) = struct.unpack("<I", data[-4:])
    end = len(data) - 4 - 4 * restarts
    if restarts < 1 or end < 0:
        raise corrupt(f"table: {restarts} restarts in the block at {offset}")
    i, key = 0, b""
    while i < end:
        shared, i = uvarint(data, i)
        unshared, i = uvarint(data, i)
        n, i = uvarint(data, i)
        if shared > len(key) or i + unshared + n > end:
            raise corrupt(f"table: a row of the block at {offset} ends after it")
        key = key[:shared] + data[i : i + unshared]
        i += unshared
        yield key, data[i : i + n]
        i += n


def table(b):
    """The rows of a table, with internal keys."""
    if len(b) < 48:
        raise corrupt("table: shorter than its footer")
    (magic,) = struct.unpack("<Q", b[-8:])
    if magic == 0x88E241B785F4CFF7:
        raise Fault("index_unsupported", "a table of RocksDB")
    if magic != 0xDB4775248B80FB57:
        raise corrupt("table: magic")
    i = len(b) - 48
    _, i = uvarint(b, i)
    _, i = uvarint(b, i)
    offset, i = uvarint(b, i)
    size, i = uvarint(b, i)
    for _, handle in block(b, offset, size):
        offset, i = uvarint(handle, 0)
        size, i = uvarint(handle, i)
        yield from block(b, offset, size)


def pure(directory):
    def read(name):
        try:
            with open(os.path.join(directory, name), "rb") as f:
                return f.read()
        except FileNotFoundError as e:
            raise corrupt(f"{name} is missing") from e

    if not os.path.exists(os.path.join(directory, "CURRENT")):
        raise Fault("not_a_bundle", "no index/CURRENT")
    name, newline, _ = read("CURRENT").partition(b"\n")
    if not newline or not name.startswith(b"MANIFEST-") or b"/" in name:
        raise corrupt("CURRENT")
    newest = {}

    def put(key, trailer, value):
        if key not in newest or newest[key][0] < trailer:
            newest[key] = trailer, value

    try:
        tables, logs = manifest(read(name.decode()))
        for n, size in sorted(tables.items()):
            names = [s for s in (f"{n:06d}.sst", f"{n:06d}.ldb") if os.path.exists(os.path.join(directory, s))]
            if not names:
                raise corrupt(f"table {n} is missing")
            b = read(names[0])
            if len(b) != size:
                raise corrupt(f"{names[0]}: expected {size} bytes, found {len(b)}")
            for key, value in table(b):
                put(key[:-8], struct.unpack("<Q", key[-8:])[0], value)
        # The previous log, and every one from the current one on. In dacha's all
        # rows of a batch have one number, and the next batch begins with it, too: so
        # rows are numbered here, in the order in which they come.
        top = 0
        for n in sorted(int(s[:-4]) for s in os.listdir(directory) if s.endswith(".log") and s[:-4].isdigit()):
            if LOG not in logs or (n < logs[LOG] and n != logs.get(PREVIOUS, 0)):
                continue
            for batch in log_records(read(f"{n:06d}.log"), True):
                sequence, count = struct.unpack_from("<QI", batch)
                i, sequence = 12, max(sequence, top + 1)
                for _ in range(count):
                    kind = batch[i]
                    key, i = text(batch, i + 1)
                    value = b""
                    if kind == 1:
                        value, i = text(batch, i)
                    elif kind:
                        raise corrupt(f"log: row of kind {kind}")
                    put(key, sequence << 8 | kind, value)
                    top, sequence = sequence, sequence + 1
    except (ValueError, IndexError, UnicodeDecodeError, struct.error, zlib.error, snappy.UncompressError) as e:
        raise corrupt(repr(e)) from e
    return {key: value for key, (trailer, value) in newest.items() if trailer & 0xFF == 1}
