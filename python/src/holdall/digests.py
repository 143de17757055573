"""Checksums and digests. Those that Python lacks are available if their packages are installed."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from .errors import DamagedError

Digest = Callable[[bytes], bytes]


def find(algo: str) -> Digest:
    """Return what computes digests of an algorithm. Raises ImportError with the name of the missing package."""
    if algo == "blake3":
        from blake3 import blake3

        return lambda data: blake3(data).digest()
    if algo == "crc32":
        return lambda data: zlib.crc32(data).to_bytes(4, "big")
    if algo == "crc32c":
        value = _crc32c()
        return lambda data: value(data).to_bytes(4, "big")
    raise ImportError(f"digests of {algo} are not supported", name=None)


def check_index(archive: str, what: str, text: bytes, expected: object, verify: bool | None) -> None:
    """Compare the text of an archive's own index with its BLAKE3 in the archive, if that is possible."""
    if verify is False or type(expected) is not str:
        return
    try:
        digest = find("blake3")
    except ImportError:
        return
    if digest(text).hex() != expected:
        raise DamagedError(archive, f"{what} is damaged: its BLAKE3 is not what it should be; verify=False reads it as it is")


def _crc32c() -> Callable[[bytes], int]:
    value: Callable[[bytes], int]
    try:
        import google_crc32c

        value = google_crc32c.value
    except ImportError:
        import crc32c

        value = crc32c.crc32c
    return value


def _table() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of bytes. It is slow without a package."""
    try:
        return _crc32c()(data)
    except ImportError:
        return slow_crc32c(data)


def slow_crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes, without a package."""
    table, crc = _TABLE, 0xFFFFFFFF
    for b in data:
        crc = table[(crc ^ b) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
