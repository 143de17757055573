"""Decodes stored bytes. Decoders that Python lacks are used if their packages are installed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from typing import IO, Any, Protocol, cast

from .table import Cursor

MAX_WINDOW = 128 << 20  # how far a zstd frame may refer back
MAX_RECORD = 64 << 20
MAX_SEGMENT = 512 + (256 << 10)
PART = 256 << 10  # bytes that are read or made at once


class Reading(Protocol):
    """A file to read from."""

    def read(self, size: int, /) -> bytes: ...


class MissingDecoder(Exception):
    """A decoder that is not installed."""


class Parts:
    """A file with parts behind each other."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, b""

    def read(self, size: int, /) -> bytes:
        made = []
        while size > 0:
            part = self._rest or next(self._parts, None)
            if part is None:
                break
            made.append(part[:size])
            self._rest = part[size:]
            size -= len(made[-1])
        return b"".join(made)


def _around(before: bytes, file: Reading, behind: bytes = b"") -> Parts:
    """Return a file with something before and after it."""
    return Parts(chain([before], iter(lambda: file.read(PART), b""), [behind]))


def _more(file: Reading) -> bytes:
    """Return some of the bytes that must follow."""
    if fed := file.read(PART):
        return fed
    raise EOFError("it ends too early")


def _inflated(file: Reading, wbits: int) -> Iterator[bytes]:
    """Yield the content of a zlib or deflate stream. What follows the stream is ignored."""
    d = zlib.decompressobj(wbits)
    while not d.eof:
        fed = d.unconsumed_tail or file.read(PART)
        part = d.decompress(fed, PART)
        if not fed and not part:
            raise EOFError("it ends too early")
        yield part


def frames(file: Reading, new: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the content of zstd frames, by the decoder of Python 3.14 and later, or by pyzstd."""
    fed = _more(file)
    while fed:
        d = new()
        yield d.decompress(fed, PART)
        while not d.eof:
            yield d.decompress(_more(file) if d.needs_input else b"", PART)
        fed = d.unused_data or file.read(PART)


@cache
def _zstd_decoder() -> Callable[[Reading], Reading | Iterator[bytes]]:
    """Return the available decoder for zstd. Looking for decoders that are not installed takes long."""
    with suppress(ImportError):
        from compression import zstd

        options = {zstd.DecompressionParameter.window_log_max: 27}
        return partial(frames, new=partial(zstd.ZstdDecompressor, options=options))
    with suppress(ImportError):
        import zstandard

        new = partial(zstandard.ZstdDecompressor, max_window_size=MAX_WINDOW)
        return lambda file: cast(Reading, new().stream_reader(cast(IO[bytes], file), read_across_frames=True))
    with suppress(ImportError):
        import pyzstd

        return partial(frames, new=partial(pyzstd.ZstdDecompressor, option={pyzstd.DParameter.windowLogMax: 27}))
    raise MissingDecoder("zstd needs Python 3.14 or the package zstandard")


def _zstd(file: Reading) -> Reading | Iterator[bytes]:
    return _zstd_decoder()(file)


def _record(file: Reading) -> bytes:
    return file.read(MAX_RECORD + MAX_RECORD // 6 + 32)


def _zstd_record(file: Reading) -> Reading | Iterator[bytes]:
    """Decode the first frame, and ignore what follows it."""
    stored = _record(file)
    return _zstd(io.BytesIO(stored[: _zstd_end(stored)]))


def _zstd_end(b: bytes) -> int:
    """Return where a zstd frame ends, according to its blocks."""
    if b[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError("zstd: not a frame")
    d = b[4]
    single = d >> 5 & 1
    at = 5 + (0, 1, 2, 4)[d & 3] + (single, 2, 4, 8)[d >> 6] + 1 - single
    while True:
        head = int.from_bytes(b[at : at + 3], "little")
        at += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
        if at > len(b):
            raise ValueError("zstd: it ends too early")
        if head & 1:
            return at + (4 if d & 4 else 0)


def _zstd_blocks(file: Reading) -> Reading | Iterator[bytes]:
    """Decode blocks of a zstd frame without its header, with a window of 8 MiB, and without a last block."""
    return _zstd(_around(b"\x28\xb5\x2f\xfd\x00\x68", file, b"\x01\x00\x00"))


def _snappy(file: Reading) -> Reading:
    """Decode a block of snappy, and ignore what follows it."""
    stored = _record(file)
    try:
        import cramjam

        unpack: Callable[[bytes], Any] = cramjam.snappy.decompress_raw
    except ImportError:
        try:
            import snappy

            unpack = snappy.uncompress
        except ImportError:
            raise MissingDecoder("snappy needs the package cramjam or python-snappy") from None
    return io.BytesIO(bytes(unpack(stored[: _snappy_end(stored)])))


def _snappy_end(b: bytes) -> int:
    """Return where a block of snappy ends, according to its tags. A copy from a distance of 0 is an error that decoders
    may not detect.
    """
    c = Cursor(b)
    length, i = c.uvar(), c.at
    if length > MAX_RECORD:
        raise ValueError(f"snappy: {length} bytes, over the limit of {MAX_RECORD}")
    made = 0
    while made < length:
        tag = b[i]
        n = (tag >> 2) + 1
        if tag & 3 == 0:
            i += 1
            if n > 60:
                k = n - 60
                n = int.from_bytes(b[i : i + k], "little") + 1
                i += k
            i += n
        else:
            k = tag & 3
            if k == 1:
                n, distance = (tag >> 2 & 7) + 4, tag >> 5 << 8 | b[i + 1]
            else:
                distance = int.from_bytes(b[i + 1 : i + (3 if k == 2 else 5)], "little")
            if distance == 0:
                raise ValueError("snappy: a copy from 0 bytes back")
            i += (2, 3, 5)[k - 1]
        made += n
    if made > length or i > len(b):
        raise ValueError("snappy: longer than it says")
    return i


_LZ4_OLD = b"\x02\x21\x4c\x18"


def _lz4(file: Reading) -> Any:
    try:
        import lz4.block
        import lz4.frame
    except ImportError:
        raise MissingDecoder("lz4 needs the package lz4") from None

    def old() -> Iterator[bytes]:  # the first version of the format: blocks of at most 8 MiB after their lengths
        while head := fill(file, 4):
            if head == _LZ4_OLD:
                continue
            n = int.from_bytes(head, "little")
            if len(head) < 4 or n > 9 << 20:
                raise ValueError("lz4: a block of a wrong length")
            yield lz4.block.decompress(fill(file, n), uncompressed_size=8 << 20)

    head = fill(file, 4)
    return old() if head == _LZ4_OLD else lz4.frame.LZ4FrameFile(_around(head, file))


def _lzip(file: Reading) -> Iterator[bytes]:
    """Yield the content of the members of lzip, each compared with its CRC-32 and its sizes."""
    rest, first = b"", True
    while (head := rest[:6] + fill(file, max(6 - len(rest), 0)))[:4] == b"LZIP":
        rest, first = rest[6:], False
        size = head[5] if len(head) == 6 else 0
        window = 1 << (size & 31)
        window -= (window >> 4) * (size >> 5)
        if head[4:5] != b"\1" or not 4096 <= window <= MAX_WINDOW:
            raise ValueError("lzip: a version or a window that is not supported")
        d = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, "dict_size": window, "lc": 3, "lp": 0, "pb": 2}])
        crc = size = stored = 0
        while not d.eof:
            fed = b""
            if d.needs_input:
                fed, rest = rest or _more(file), b""
                stored += len(fed)
            part = d.decompress(fed, 1 << 20)
            crc, size = zlib.crc32(part, crc), size + len(part)
            yield part
        rest = d.unused_data
        stored -= len(rest)
        tail = rest[:20] + fill(file, max(20 - len(rest), 0))
        rest = rest[20:]
        if len(tail) < 20 or struct.unpack("<IQQ", tail) != (crc, size, stored + 26):
            raise ValueError("lzip: a member does not match its checksum")
    if first:
        raise ValueError("lzip: no member")


def _compress(file: Reading) -> Iterator[bytes]:
    """Yield the content of what the Unix command compress makes: LZW, with codes in groups of eight."""
    head = fill(file, 3)
    if len(head) < 3 or head[:2] != b"\x1f\x9d" or not 9 <= head[2] & 31 <= 16:
        raise ValueError("compress: not its header")
    most, clears = head[2] & 31, head[2] & 0x80 != 0
    begin = [bytes([i]) for i in range(256)] + [b""] * clears
    table, width, last = begin[:], 9, b""
    while group := fill(file, width):
        bits = int.from_bytes(group, "little")
        made = []
        for k in range(len(group) * 8 // width):
            code = bits >> k * width & (1 << width) - 1
            if clears and code == 256:
                table, width, last = begin[:], 9, b""
                break
            if code < len(table):
                entry = table[code]
            elif code == len(table) and last:
                entry = last + last[:1]
            else:
                raise ValueError("compress: a code that stands for nothing")
            made.append(entry)
            if last and len(table) < 1 << most:
                table.append(last + entry[:1])
            last = entry
            if len(table) >= 1 << width and width < most:
                width += 1
                break  # the rest of the group is not used
        yield b"".join(made)


def _oak_segment(file: Reading) -> Reading:
    """Return a segment of an Oak store after its tar header, whose name contains the CRC-32 of the segment."""
    stored = file.read(MAX_SEGMENT + 1)
    named = re.match(rb"[0-9a-f-]{36}(?:\.([0-9a-f]{8}))?[.\0]", stored[:100])
    if named is None or not 512 < len(stored) <= MAX_SEGMENT or named[1] and zlib.crc32(stored[512:]) != int(named[1], 16):
        raise ValueError("a segment whose CRC-32 is not what its name says")
    return io.BytesIO(stored[512:])


_STREAMS: dict[str, Callable[[Any], Reading | Iterator[bytes]]] = {
    "gzip": lambda file: gzip.GzipFile(fileobj=file),
    "deflate": partial(_inflated, wbits=-15),
    "zlib-record": partial(_inflated, wbits=15),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "xz-plain": lzma.LZMAFile,
    "lzma": lzma.LZMAFile,
    "lzma-file": lzma.LZMAFile,
    "lzip": _lzip,
    "compress": _compress,
    "lz4": _lz4,
    "zstd": _zstd,
    "zstd-record": _zstd_record,
    "zstd-blocks": _zstd_blocks,
    "snappy-record": _snappy,
    "oak-segment": _oak_segment,
}


def stream(codec: str, file: Reading) -> Reading:
    """Return a file with the content of a file of stored bytes."""
    begin = _STREAMS.get(codec)
    if begin is None:
        raise MissingDecoder(f"there is no decoder for {codec!r}")
    made = begin(file)
    return Parts(made) if isinstance(made, Iterator) and not hasattr(made, "read") else cast(Reading, made)


def whole(codec: str, stored: bytes, most: int) -> bytes:
    """Decode stored bytes, up to a limit."""
    wbits = {"zlib-record": 15, "deflate": -15}.get(codec)
    return zlib.decompressobj(wbits).decompress(stored, most) if wbits else fill(stream(codec, io.BytesIO(stored)), most)


def fill(file: Reading, size: int) -> bytes:
    """Return that many bytes of a file, or all that there are."""
    parts = [file.read(size)]
    while parts[-1] and (size := size - len(parts[-1])) > 0:
        parts.append(file.read(size))
    return b"".join(parts) if len(parts) > 1 else parts[0]
