"""Reads data bundles by the format's specification, with nothing of holdall's.

    read_bundle.py [--source DIR] [--fixture] [--index leveldb|pure|both] BUNDLE...
    read_bundle.py --rows DIR

It decodes every record and every file, and compares checksums. Of each bundle it
prints a JSON line, with what is wrong as "faults": none, and the exit code is 0.

--source compares with the tree that was packed, and holds the bundle against all
that the specification says of writers. --fixture compares with BUNDLE.expect.json,
which says also what must be found wrong. The index is read by LevelDB, by
read_index.pure, or by both, which must agree. --rows prints what LevelDB reads in
an index: keys and values in hexadecimal digits.
"""

import argparse
import bisect
import collections
import functools
import grp
import hashlib
import json
import os
import pwd
import stat
import struct
import sys
import zlib

import snappy
import zstandard
from crc32c import crc32c

import read_index
from read_index import Fault, text, uvarint

NONE, SNAPPY, ZLIB, ZSTD = 1, 2, 3, 8
REGULAR, DIRECTORY = 1, 2
CONFIG_TABLE, FILE_TABLE, RECORD_TABLE = 1, 2, 3
LARGE = 1 << 20  # files from here on begin a record
MAX_RECORD = 64 << 20
PIECE = 1 << 20
ATTRIBUTES = b"type.googleapis.com/holdall.bundle.v1.FileAttributes"
# What there may be in an index of ours.
FIXED_NAMES = {"CURRENT", "MANIFEST-000002", "000003.log", "LOCK", "IDENTITY"}


def message(b):
    """A protobuf message: the values of each field, in order."""
    out, i = collections.defaultdict(list), 0
    while i < len(b):
        tag, i = uvarint(b, i)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("field 0")
        if wire == 0:
            v, i = uvarint(b, i)
        elif wire == 2:
            v, i = text(b, i)
        elif wire in (1, 5):
            n = 8 if wire == 1 else 4
            v, i = int.from_bytes(b[i : i + n], "little"), i + n
            if i > len(b):
                raise ValueError("a field does not end")
        else:
            raise ValueError(f"wire type {wire}")
        out[number].append(v)
    return out


def last(m, number, default=0):
    return m[number][-1] if number in m else default


def ordered(b, i):
    """An order-preserving number: as many ones in front as bytes follow."""
    n = 1
    while n < 9 and b[i] & (0x80 >> (n - 1)):
        n += 1
    if i + n > len(b):
        raise ValueError("a number does not end")
    first = 0 if n >= 8 else b[i] & (0xFF >> n)
    return int.from_bytes(bytes([first]) + b[i + 1 : i + n], "big"), i + n


def appended_ordered(v):
    bits = v.bit_length()
    n = next(n for n in range(1, 10) if n == 9 or 8 * n >= bits + n)
    b = bytearray(v.to_bytes(n, "big"))
    b[0] |= (0xFF00 >> (n - 1)) & 0xFF
    return bytes(b)


def escaped(b, i):
    """Bytes up to two NULs; a NUL of their own is followed by 0xFF."""
    out = bytearray()
    while True:
        c = b[i]
        i += 1
        if c:
            out.append(c)
            continue
        c = b[i]
        i += 1
        if c == 0:
            return bytes(out), i
        if c != 0xFF:
            raise ValueError("an escape that there is not")
        out.append(0)


def file_key(path):
    """The only key that a writer may give to a path."""
    directory, _, name = path.rpartition(b"/")
    return b"\x02" + (directory + b"/").replace(b"\0", b"\0\xff") + b"\0\0" + name


def path_of(directory, name):
    if not directory.endswith(b"/"):
        raise Fault("metadata_invalid", "a directory without a slash at its end")
    directory = directory[:-1].removeprefix(b"/")
    name = name.removesuffix(b"\0\0")
    if not name and not directory:
        return b""
    path = directory + b"/" + name if directory else name
    for part in path.split(b"/"):
        if part in (b"", b".", b"..") or b"\0" in part:
            raise Fault("unsafe_path", repr(path))
    return path


def snappy_lengths(b):
    """How long a block becomes, and where it ends."""
    size, i = uvarint(b, 0)
    made = 0
    while made < size:
        tag, kind = b[i], b[i] & 3
        n = (tag >> 2) + 1
        if kind == 0:
            i += 1
            if n > 60:
                k = n - 60
                n = int.from_bytes(b[i : i + k], "little") + 1
                i += k
            i += n
        elif kind == 1:
            n, i = 4 + (tag >> 2 & 7), i + 2
        else:
            i += 3 if kind == 2 else 5
        made += n
        if i > len(b):
            raise ValueError("snappy: it ends within an element")
    if made != size:
        raise ValueError("snappy: longer than it says")
    return size, i


def zstd_length(b):
    """Where the frame at the beginning of b ends."""
    i = zstandard.frame_header_size(b)
    while True:
        if i + 3 > len(b):
            raise ValueError("zstd: it ends within a frame")
        head = int.from_bytes(b[i : i + 3], "little")
        i += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
        if head & 1:
            break
    return i + 4 * zstandard.get_frame_parameters(b).has_checksum


def decode(compression, b, want):
    """The content of a record, and how much of b it takes. b has padding after it,
    or another record; of a record that becomes more than it should, no more than one
    byte too many is made."""
    try:
        if compression == NONE:
            out, used = b[:want], want
        elif compression == ZLIB:
            d = zlib.decompressobj()
            out = d.decompress(b, want + 1)
            while not d.eof and len(out) <= want:  # the checksum
                before = len(d.unconsumed_tail)
                out += d.decompress(d.unconsumed_tail, 1)
                if not d.eof and before == len(d.unconsumed_tail):
                    raise Fault("record_corrupt", "zlib: the stream does not end")
            used = len(b) - len(d.unused_data)
        elif compression == SNAPPY:
            size, used = snappy_lengths(b)
            if size > want:
                raise Fault("record_too_large", f"expected {want} bytes, found {size}")
            out = bytes(snappy.decompress(b[:used]))
        else:
            used = zstd_length(b)
            r = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(b[:used])
            out = b""
            while len(out) <= want and (piece := r.read(want + 1 - len(out))):
                out += piece
    except (ValueError, IndexError, zlib.error, zstandard.ZstdError, snappy.UncompressError) as e:
        raise Fault("record_corrupt", repr(e)) from e
    if len(out) > want:
        raise Fault("record_too_large", f"expected {want} bytes, found more")
    if len(out) < want:
        raise Fault("record_corrupt", f"expected {want} bytes, found {len(out)}")
    return out, used


class Shard:
    def __init__(self, root, number, rows, end):
        path = os.path.join(root, f"shard-{number:08d}")
        try:
            self.f = open(path, "rb")
        except FileNotFoundError as e:
            raise Fault("shard_missing", path) from e
        self.size = os.fstat(self.f.fileno()).st_size
        prefix = self.f.read(12)
        if len(prefix) < 12 or prefix[:4] != b"daBS":
            raise Fault("shard_header", "magic")
        length, self.data = struct.unpack("<II", prefix[4:])
        if 12 + length > self.data:
            raise Fault("shard_header", "the header is longer than the room before the data")
        if self.data > self.size:
            raise Fault("shard_truncated", "it ends before the data")
        self.header_bytes = self.f.read(self.data - 12)
        try:
            self.header = message(self.header_bytes[:length])
        except (ValueError, IndexError) as e:
            raise Fault("shard_header", repr(e)) from e
        self.header_length = length
        if last(self.header, 1) != number:
            raise Fault("shard_header", f"it is of shard {last(self.header, 1)}")
        self.compression = last(self.header, 5)
        if self.compression not in (NONE, SNAPPY, ZLIB, ZSTD):
            raise Fault("unsupported_compression", str(self.compression))
        rows = sorted(rows)
        if rows and rows[0][0] != 0:
            raise Fault("record_bounds", "the first record does not begin at 0")
        self.starts = [r[0] for r in rows]
        self.places = [r[1] for r in rows]
        self.end = end
        stored = sorted({p for p in self.places if p is not None})
        self.bound = dict(zip(stored, stored[1:] + [self.size - self.data]))
        self.cached = None, None

    def stored(self, at, n):
        self.f.seek(self.data + at)
        return self.f.read(n)

    def length(self, k):
        following = self.starts[k + 1] if k + 1 < len(self.starts) else self.end
        return max(following - self.starts[k], 0)

    def record(self, k):
        if self.cached[0] != k:
            want = self.length(k)
            if want > MAX_RECORD:
                raise Fault("record_too_large", f"{want} bytes")
            self.cached = k, self.undo(k, want)[0]
        return self.cached[1]

    def undo(self, k, want):
        """The content of record k, the bytes that it may take, and how many it does."""
        at = self.places[k]
        if at is None:
            return bytes(want), b"", 0
        if self.data + at >= self.size:
            raise Fault("shard_truncated", f"a record at {at} of {self.size - self.data}")
        b = self.stored(at, min(self.bound[at], self.size - self.data) - at)
        content, used = decode(self.compression, b, want)
        return content, b, used

    def pieces(self, offset, n):
        """The content of a file."""
        if n and not self.starts and self.compression != NONE:
            raise Fault("record_bounds", "compressed, and without records")
        while n:
            if not self.starts:
                if self.data + offset + n > self.size:
                    raise Fault("shard_truncated", f"{n} bytes at {offset}")
                piece = self.stored(offset, min(n, PIECE))
            else:
                k = bisect.bisect_right(self.starts, offset) - 1
                at = offset - self.starts[k]
                piece = self.record(k)[at : at + n]
                if not piece:
                    raise Fault("record_bounds", f"no record has {offset}")
            yield piece
            offset += len(piece)
            n -= len(piece)


Entry = collections.namedtuple("Entry", "path kind shard offset size crc user")


class Bundle:
    def __init__(self, root, rows):
        self.root, self.rows, self.shards = root, rows, {}
        self.entries, self.records, self.ends = [], collections.defaultdict(list), collections.Counter()
        self.faults = []  # of rows: path or None, what is wrong
        if b"\x01" not in rows:
            raise Fault("not_a_bundle", "no row for the bundle")
        try:
            c = self.config = message(rows[b"\x01"])
        except (ValueError, IndexError) as e:
            raise Fault("config_invalid", repr(e)) from e
        if last(c, 1, b"") != b"daBundleV1":
            raise Fault("config_invalid", f"version {last(c, 1, b'')!r}")
        for key, value in sorted(rows.items()):
            path = None
            try:
                kind, i = ordered(key, 0)
                if kind == FILE_TABLE:
                    directory, i = escaped(key, i)
                    path = directory.lstrip(b"/") + key[i:]
                    path = path_of(directory, key[i:])
                    self.add_file(path, message(value))
                elif kind == RECORD_TABLE:
                    self.add_record(key, i, message(value))
                elif kind != CONFIG_TABLE or i != len(key):
                    raise Fault("metadata_invalid", f"key {key!r}")
            except Fault as e:
                self.faults.append((path, e))
            except (ValueError, IndexError, UnicodeDecodeError) as e:
                self.faults.append((path, Fault("metadata_invalid", repr(e))))

    def add_file(self, path, m):
        user = None
        if 6 in m:
            any_ = message(last(m, 6))
            user = last(any_, 1, b""), last(any_, 2, b"")
        e = Entry(path, last(m, 1), last(m, 2), last(m, 3), last(m, 4), last(m, 5), user)
        if e.kind not in (REGULAR, DIRECTORY):
            raise Fault("metadata_invalid", f"type {e.kind}")
        if e.offset + e.size >= 1 << 63 or (e.kind == DIRECTORY and e.size):
            raise Fault("metadata_invalid", f"{e.size} bytes at {e.offset}")
        shards = last(self.config, 5)
        if shards and e.shard >= shards:
            raise Fault("shard_missing", f"shard {e.shard} of {shards}")
        self.entries.append(e)
        if e.size:
            self.ends[e.shard] = max(self.ends[e.shard], e.offset + e.size)

    def add_record(self, key, i, m):
        shard, i = ordered(key, i)
        offset, i = ordered(key, i)
        if i != len(key):
            raise Fault("metadata_invalid", "the key of a record goes on")
        if last(m, 1, shard) != shard or last(m, 2, offset) != offset:
            raise Fault("record_bounds", "a row disagrees with its key")
        if (3 in m) == bool(last(m, 4)):
            raise Fault("metadata_invalid", "stored, and all zeros; or neither")
        self.records[shard].append((offset, None if last(m, 4) else last(m, 3)))

    def shard(self, number):
        if number not in self.shards:
            try:
                self.shards[number] = Shard(self.root, number, self.records[number], self.ends[number])
            except Fault as e:
                self.shards[number] = e
        if isinstance(self.shards[number], Fault):
            raise self.shards[number]
        return self.shards[number]

    def content(self, e, take):
        """Gives take the content of a file, and compares its checksum."""
        crc = 0
        if e.size:
            for piece in self.shard(e.shard).pieces(e.offset, e.size):
                crc = crc32c(piece, crc)
                take(piece)
        if crc != e.crc:
            raise Fault("checksum_mismatch", f"expected {e.crc:08x}, found {crc:08x}")


def inline_rows(root):
    """The rows in the header of the only shard."""
    try:
        with open(os.path.join(root, "shard-00000000"), "rb") as f:
            prefix = f.read(12)
            if len(prefix) < 12 or prefix[:4] != b"daBS":
                raise Fault("not_a_bundle", "magic")
            header = message(f.read(struct.unpack("<I", prefix[4:8])[0]))
    except FileNotFoundError as e:
        raise Fault("not_a_bundle", "neither an index nor a shard") from e
    if 6 not in header:
        raise Fault("not_a_bundle", "no index, and none in the shard")
    rows, order = {}, []
    for row in message(last(header, 6))[1]:
        m = message(row)
        rows[last(m, 1, b"")] = last(m, 2, b"")
        order.append(last(m, 1, b""))
    if order != sorted(rows):
        raise Fault("index_corrupt", "the rows of the inline table are out of order")
    return rows


def index_rows(directory, how):
    if how == "both":
        leveldb, pure = read_index.by_leveldb(directory), read_index.pure(directory)
        if leveldb != pure:
            raise Fault("index_corrupt", f"LevelDB reads {len(leveldb)} rows, and they are not the {len(pure)} that are there")
        return pure
    return read_index.pure(directory) if how == "pure" else read_index.by_leveldb(directory)


def hold_against_rules(bundle, faults):
    """What the specification says of writers."""
    config, root = bundle.config, bundle.root
    align, compression = last(config, 2), last(config, 4)
    inline = not os.path.exists(os.path.join(root, "index"))

    def up(n):
        return -(-n // align) * align if align > 1 else n

    def must(holds, what):
        if not holds:
            faults.append(what)

    for name in os.listdir(root):
        if name == "index" or name.startswith("index-copy-"):
            d = os.path.join(root, name)
            extra = {n for n in os.listdir(d) if not n.endswith(".sst")} ^ FIXED_NAMES
            must(not extra, f"{name}: files too many or too few: {sorted(extra)}")
            must(not os.path.getsize(os.path.join(d, "000003.log")), f"{name}: the log is not empty")
            must(not os.path.getsize(os.path.join(d, "LOCK")), f"{name}: LOCK is not empty")
            if name != "index":
                must(index_rows(d, "both") == bundle.rows, f"{name}: other rows than in index")
        else:
            must(name.startswith("shard-") and len(name) == 14, f"{name}: what is it?")
    shards = sorted(n for n in os.listdir(root) if n.startswith("shard-"))
    must(shards == [f"shard-{i:08d}" for i in range(len(shards))], f"shards: {shards}")
    must(last(config, 5) in (0, len(shards)), f"config: {last(config, 5)} shards, there are {len(shards)}")
    must(set(bundle.records) <= set(range(len(shards))), "records of shards that there are not")
    must(bool(last(config, 6)) == (compression == NONE and align <= 1), "config: raw_packed")

    files = collections.defaultdict(set)  # by shard; links share a place
    paths = {e.path for e in bundle.entries if e.kind == DIRECTORY}
    for e in bundle.entries:
        directory, _, _ = e.path.rpartition(b"/")
        must(not directory or directory in paths, f"{e.path!r}: no row for its directory")
        must(file_key(e.path) in bundle.rows, f"{e.path!r}: not the key for it")
        if e.kind == DIRECTORY:
            must(e[2:6] == (0, 0, 0, 0), f"{e.path!r}: a directory with numbers")
        elif e.size == 0:
            must(e.crc == 0, f"{e.path!r}: a checksum of nothing")
        else:
            files[e.shard].add((e.offset, e.size))

    for number in range(len(shards)):
        shard = bundle.shard(number)
        header = shard.header
        name = f"shard {number}"
        must([last(header, n) for n in (3, 4, 5)] == [last(config, 3), align, compression], f"{name}: its header disagrees with the config")
        must(last(header, 2) == last(config, 5) or not last(header, 2), f"{name}: its header has {last(header, 2)} shards")
        must((6 in header) == inline and bool(last(header, 8)) != inline and 7 not in header, f"{name}: where its rows are")
        must(shard.data == up(12 + shard.header_length), f"{name}: data at {shard.data}")
        must(not shard.header_bytes[shard.header_length :].strip(b"\0"), f"{name}: padding of the header")
        at, stream = 0, 0
        for offset, size in sorted(files[number]):
            gap = offset - stream
            if compression == NONE and size >= LARGE:
                must(gap >= 0 and (shard.data + offset) == up(shard.data + stream), f"{name}: a large file at {offset} after {stream}")
                must(not shard.stored(stream, gap).strip(b"\0"), f"{name}: the gap at {stream}")
            else:
                must(gap == 0, f"{name}: a file at {offset} after {stream}")
            if compression != NONE and size >= LARGE:
                must(offset in shard.starts, f"{name}: a large file at {offset}, where no record begins")
            stream = offset + size
        if compression == NONE:
            must(not shard.starts, f"{name}: records without compression")
            must(shard.size == up(shard.data + stream), f"{name}: {shard.size} bytes, its content ends at {shard.data + stream}")
            must(not shard.stored(stream, shard.size).strip(b"\0"), f"{name}: padding at its end")
            continue
        for k, place in enumerate(shard.places):
            where, want = f"{name}: record {k}", shard.length(k)
            must(0 < want <= last(config, 3), f"{where}: {want} bytes")
            must(key_of_record(number, shard.starts[k]) in bundle.rows, f"{where}: not the key for it")
            content, b, used = shard.undo(k, want)
            must((place is None) == (content.count(0) == want), f"{where}: all zeros and stored, or the other way around")
            if place is None:
                continue
            must(place == at, f"{where}: expected at {at}, found at {place}")
            must(len(b) == up(used) and not b[used:].strip(b"\0"), f"{where}: {used} bytes, and {len(b) - used} after them")
            if compression == ZSTD:
                p = zstandard.get_frame_parameters(b)
                must(p.content_size == want and p.dict_id == 0, f"{where}: its frame says {'nothing of its size' if p.content_size == zstandard.CONTENTSIZE_UNKNOWN else p.content_size}, dictionary {p.dict_id}; it has {want} bytes")
            at += up(used)
        must(shard.data + at == shard.size, f"{name}: {shard.size} bytes, its records end at {shard.data + at}")


def key_of_record(shard, offset):
    return b"\x03" + appended_ordered(shard) + appended_ordered(offset)


def user_name(number, find):
    try:
        return find(number)[0].encode()
    except KeyError:
        return None


def compare_with_source(bundle, source, faults):
    """Names, contents, and what our message of attributes says."""
    source = os.fsencode(source)
    missing = set()
    for above, directories, names in os.walk(source):
        missing.update(os.path.relpath(os.path.join(above, n), source) for n in directories + names)
    links = collections.defaultdict(list)
    for e in bundle.entries:
        if e.path not in missing:
            faults.append(f"{e.path!r}: not in the source")
            continue
        missing.remove(e.path)
        path = os.path.join(source, e.path)
        st = os.lstat(path)
        url, value = e.user or (b"", b"")
        a = message(value)
        if (e.kind == DIRECTORY) != stat.S_ISDIR(st.st_mode):
            faults.append(f"{e.path!r}: a directory or none")
            continue
        is_link = stat.S_ISLNK(st.st_mode)
        time = last(a, 2)
        time = (time >> 1 ^ -(time & 1)) * 10**9 + last(a, 3)
        found = url, last(a, 1, None), time, last(a, 6, b"")
        want = ATTRIBUTES, stat.S_IMODE(st.st_mode), st.st_mtime_ns, os.readlink(path) if is_link else b""
        if found != want:
            faults.append(f"{e.path!r}: attributes {found}, in the source {want}")
        for who, number, field, named, find in (("owner", st.st_uid, 4, 8, pwd.getpwuid), ("group", st.st_gid, 5, 9, grp.getgrgid)):
            if last(a, field, None) != number and (named not in a or last(a, named) != user_name(number, find)):
                faults.append(f"{e.path!r}: {who} {last(a, field, None)} {last(a, named, b'')!r}, in the source {number}")
        if e.kind == DIRECTORY:
            continue
        if st.st_nlink > 1 and not is_link:
            links[st.st_ino].append((e, last(a, 10, b"")))
        elif 10 in a:
            faults.append(f"{e.path!r}: a hard link to {last(a, 10)!r}, in the source none")
        compare_content(bundle, e, path, faults)
    for names in links.values():
        first = [e for e, to in names if not to]
        for e, to in names:
            if len(first) != 1 or e[1:6] != first[0][1:6] or to not in (b"", first[0].path):
                faults.append(f"{e.path!r}: a hard link to {to!r} at {e[1:6]}, the others are {[n[0].path for n in names]}")
    faults += [f"{p!r}: missing" for p in sorted(missing)]


@functools.cache
def source_sum(path):
    """How long a file is, and its digest. A link is what it leads to."""
    h, n = hashlib.sha256(), 0
    if os.path.islink(path):
        h.update(os.readlink(path))
        return len(os.readlink(path)), h.digest()
    with open(path, "rb") as f:
        while piece := f.read(PIECE):
            h.update(piece)
            n += len(piece)
    return n, h.digest()


def compare_content(bundle, e, path, faults):
    h = hashlib.sha256()
    try:
        bundle.content(e, h.update)
    except Fault as x:
        faults.append(f"{e.path!r}: {x}")
        return
    n, digest = source_sum(path)
    if n != e.size or h.digest() != digest:
        faults.append(f"{e.path!r}: {e.size} bytes, in the source {n}, or others")


def compare_with_expectation(bundle, expect, faults):
    want = {}
    for w in expect.get("entries", []):
        want[bytes.fromhex(w["path_hex"]) if "path_hex" in w else w["path"].encode()] = w
    errors = {bytes.fromhex(p): words for p, words in expect.get("errors", {}).items()}
    found = {p: e.word for p, e in bundle.faults}
    sums = {}
    for e in bundle.entries:
        h = hashlib.sha256()
        try:
            bundle.content(e, h.update)
            sums[e.path] = e, h.hexdigest()
        except Fault as x:
            found[e.path] = x.word
    for p in found.keys() | errors.keys():
        if found.get(p, "nothing") not in errors.get(p, "nothing").split("|"):
            faults.append(f"{p!r}: expected {errors.get(p, 'nothing')} to be wrong, found {found.get(p, 'nothing')}")
    for p in sums.keys() - want.keys():
        faults.append(f"{p!r}: not expected")
    for p, w in want.items():
        if p in errors:
            continue
        if p not in sums:
            faults.append(f"{p!r}: missing")
            continue
        e, digest = sums[p]
        user = {"type_url": e.user[0].decode(), "value_hex": e.user[1].hex()} if e.user else None
        is_ = ["file" if e.kind == REGULAR else "dir", e.size, e.crc, user]
        should = [w["type"], w.get("size", 0), w.get("crc32c", 0), w.get("user_data")]
        if w["type"] == "file":
            is_ += [digest, e.shard, e.offset]
            should += [w["sha256"], w.get("shard", e.shard), w.get("offset", e.offset)]
        if is_ != should:
            faults.append(f"{p!r}: expected {should}, found {is_}")


def check(root, args):
    faults, answer = [], {"bundle": root}
    expect = None
    if args.fixture:
        with open(root + ".expect.json") as f:
            expect = json.load(f)
    try:
        index = os.path.join(root, "index")
        bundle = Bundle(root, index_rows(index, args.index) if os.path.isdir(index) else inline_rows(root))
        if expect is not None:
            if "error" in expect:
                faults.append(f"expected {expect['error']}, it opens")
            else:
                compare_with_expectation(bundle, expect, faults)
        else:
            faults += [f"{p!r}: {e}" for p, e in bundle.faults]
            if args.source:
                compare_with_source(bundle, args.source, faults)
                hold_against_rules(bundle, faults)
            else:
                for e in bundle.entries:
                    bundle.content(e, lambda piece: None)
        stored = [p for rows in bundle.records.values() for _, p in rows]
        answer.update(
            rows=len(bundle.rows),
            entries=len(bundle.entries),
            shards=len({e.shard for e in bundle.entries if e.size}),
            records=len(stored),
            zeros=stored.count(None),
            compression=last(bundle.config, 4),
        )
    except Fault as e:
        if expect is None or e.word not in expect.get("error", "").split("|"):
            faults.append(str(e))
    answer["faults"] = faults[:20]
    print(json.dumps(answer), flush=True)
    return not faults


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bundle", nargs="*")
    p.add_argument("--source")
    p.add_argument("--fixture", action="store_true")
    p.add_argument("--index", choices=["leveldb", "pure", "both"], default="both")
    p.add_argument("--rows")
    args = p.parse_args()
    if args.rows:
        for key, value in sorted(read_index.by_leveldb(args.rows).items()):
            print(key.hex(), value.hex())
        return 0
    if not args.bundle:
        p.error("no bundle")
    return 0 if all([check(b, args) for b in args.bundle]) else 1


if __name__ == "__main__":
    sys.exit(main())
