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
        try:
            from google_crc32c import value
        except ImportError:
            from crc32c import crc32c as value  # type: ignore[no-redef]
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


def digest_of(text: object) -> bytes:
    """Return the BLAKE3 in a row of an archive's own index, or nothing if there is none."""
    try:
        return bytes.fromhex(text) if type(text) is str and len(text) == 64 else b""
    except ValueError:
        return b""
