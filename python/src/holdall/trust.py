"""Signatures of archives: minisign's keys, and the roots that they sign. docs/signing.md describes both."""

from __future__ import annotations

import os
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable
from hashlib import blake2b, sha512
from typing import Any

from .errors import NotFoundError, UntrustedError
from .objects import Object

SUFFIX = ".minisig"
MAX = 16 << 10

# Ed25519, by RFC 8032.
_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_I = pow(2, (_P - 1) // 4, _P)

Point = tuple[int, int, int, int]


def _add(a: Point, b: Point) -> Point:
    p, q = (a[1] - a[0]) * (b[1] - b[0]) % _P, (a[1] + a[0]) * (b[1] + b[0]) % _P
    r, s = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    e, f, g, h = q - p, s - r, s + r, q + p
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(n: int, a: Point) -> Point:
    out: Point = (0, 1, 1, 0)
    while n:
        if n & 1:
            out = _add(out, a)
        a, n = _add(a, a), n >> 1
    return out


def _point(b: bytes) -> Point | None:
    y, sign = int.from_bytes(b, "little"), b[31] >> 7
    y &= (1 << 255) - 1
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _I % _P
    if (x * x - square) % _P or not x and sign:
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


_BASE = _point(bytes([0x58] + [0x66] * 31))


def _verifies(key: bytes, message: bytes, sig: bytes) -> bool:
    a, r, s = _point(key), _point(sig[:32]), int.from_bytes(sig[32:], "little")
    if a is None or r is None or _BASE is None or s >= _L:
        return False
    h = int.from_bytes(sha512(sig[:32] + key + message).digest(), "little") % _L
    p, q = _times(s, _BASE), _add(r, _times(h, a))
    return (p[0] * q[2] - q[0] * p[2]) % _P == 0 and (p[1] * q[2] - q[1] * p[2]) % _P == 0


def _raw(text: bytes, kind: bytes, length: int) -> bytes | None:
    """Return what is in base64 after a kind."""
    try:
        raw = b64decode(text.strip(), validate=True)
    except (Error, ValueError):
        return None
    return raw[len(kind) :] if raw.startswith(kind) and len(raw) == len(kind) + length else None


def keys(trusted: Any) -> list[bytes]:
    """Return the public keys that are given: files, or keys themselves, or a list of these; by default those of
    $HOLDALL_TRUSTED."""
    if trusted is None:
        trusted = [k for k in os.environ.get("HOLDALL_TRUSTED", "").split(",") if k]
    given = [trusted] if isinstance(trusted, str | os.PathLike) or not isinstance(trusted, Iterable) else list(trusted)
    found = []
    for k in given:
        raw = k if isinstance(k, bytes) and len(k) == 40 else _raw(os.fsencode(k), b"Ed", 40)
        if raw is None:
            with open(k, "rb") as f:
                lines = f.read(MAX).splitlines()
            raw = _raw(lines[1] if len(lines) > 1 else b"".join(lines), b"Ed", 40)
        if raw is None:
            raise UntrustedError(os.fsdecode(k), "not a public key of minisign")
        found.append(raw)
    return found


def root(archive: Object, trusted: list[bytes]) -> str:
    """Return the root of an archive, in hex, that one of the keys has signed."""
    try:
        obj = archive.beside(SUFFIX)
    except NotFoundError:
        raise UntrustedError(archive.name, "there is no signature beside it") from None
    try:
        lines = obj.head(MAX).rstrip(b"\r\n").split(b"\n")
    finally:
        obj.close()
    lines = [line.removesuffix(b"\r") for line in lines]
    lines += [b""] * 4
    sig, both = _raw(lines[1], b"ED", 72), _raw(lines[3], b"", 64)
    comment = lines[2].removeprefix(b"trusted comment: ")
    text, semicolon, _ = comment.partition(b"; ")
    stated = text.decode("ascii", "replace").split(", ")
    if sig is None or both is None or not semicolon or len(stated) not in (2, 3) or stated[0] != "holdall 1":
        raise UntrustedError(archive.name, "the signature beside it is not one of an archive's roots")
    message = "".join(line + "\n" for line in stated).encode()
    for key in trusted:
        if key[:8] == sig[:8]:
            if _verifies(key[8:], blake2b(message).digest(), sig[8:]) and _verifies(key[8:], sig[8:] + comment, both):
                break
            raise UntrustedError(archive.name, "the signature beside it is wrong")
    else:
        raise UntrustedError(archive.name, "the signature beside it is by another key")
    if len(stated) < 3 or not stated[2].startswith("archive "):
        raise UntrustedError(archive.name, "the signature covers no index; only the command reads such archives")
    return stated[2].removeprefix("archive ")
