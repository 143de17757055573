"""Reads LINDI archives by their own index: a tar, a folder, or a single JSON file.

There are two views: "members" has the members of the tar or the files of the folder, and "zarr" has each key of the
hierarchy as a file. docs/lindi.md describes the bytes, docs/bytes/lindi.md the digests.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from math import prod
from typing import Any

from .digests import check_index, digest_of
from .errors import DamagedError, UnsupportedError
from .jsontext import decode
from .listing import INLINE, RAW, Extent, File, Listing
from .objects import Folder, Object

ENTRY, INDEX, RFS = ".tar_entry.json", ".tar_index.json", "lindi.json"
ENTRY_AT, ENTRY_LEN = 512, 1024
FRONT = ENTRY_AT + ENTRY_LEN
MAX_TEXT = 1 << 30
SEAL, SEAL_END = b'"holdall_blake3": "', b'"}\n}'  # around the digest at the end of a lindi.json that is no member of a tar

_LINES = str.maketrans("", "", "\r\n")
_CHUNK = re.compile(r"\d+(?:\.\d+)*")

Member = tuple[int, int, bytes]  # offset, length, digest
Volumes = list[tuple[str, bool]]


def shape(head: bytes) -> str:
    """Return what an object is according to its first bytes: "tar", "json" or ""."""
    if head[257:263] == b"ustar\0" and head.startswith(ENTRY.encode() + b"\0"):
        return "tar"
    if head.lstrip(b" \t\r\n")[:1] == b"{" and b"\0" not in head[:512]:
        return "json"
    return ""


def read(obj: Object, head: bytes, view: str | None, verify: bool | None) -> tuple[Listing, Volumes]:
    """Return the files of an archive in a view, and the volumes that contain them. head is the beginning of the archive."""
    if view not in (None, "", "members", "zarr"):
        raise UnsupportedError(obj.name, f"LINDI has no view {view!r}")
    volumes: Volumes = [("", False)]
    if isinstance(obj, Folder) or shape(head) == "json":
        if view == "zarr":
            rfs = obj.beside("/" + RFS) if isinstance(obj, Folder) else obj
            top = _sealed(obj.name, rfs.read(0, _short(rfs, rfs.size)), verify)
            return _keys(obj.name, top, {} if isinstance(obj, Folder) else None, volumes), volumes
        files = _of_folder(obj, volumes) if isinstance(obj, Folder) else {RFS.encode(): _placed(obj.size)}
        return Listing(obj.name, files, ""), volumes
    members, sums = _members(obj, head, verify)
    if view == "zarr":
        if RFS not in members:
            raise DamagedError(obj.name, f"it has no {RFS}, so its keys are not known")
        at, n, _ = members[RFS]
        text = obj.read(at, _short(obj, n))
        if sums[1][0] == at and text.startswith(b'{\n "'):
            check_index(obj.name, RFS, text[: sums[1][1]], sums[1][2], verify)
        return _keys(obj.name, _json(obj.name, RFS, text), members, volumes), volumes
    files = {}
    for name, (at, n, digest) in members.items():
        file = _placed(n, 0, at, digest if name not in (ENTRY, INDEX, RFS) else b"")
        if at + n > obj.size:
            file = File(n, fault=f"its {n} bytes at {at} reach beyond the end of the archive at {obj.size}")
        files[name.encode("utf-8", "surrogateescape")] = file
    return Listing(obj.name, files, "blake3"), volumes


def _placed(n: int, volume: int = 0, offset: int = 0, digest: bytes = b"", size: int | None = None) -> File:
    """Return a file whose first n bytes are stored. The others are zeros."""
    return File(n if size is None else size, (Extent(0, n, volume, offset, n, 0, RAW),) if n else (), digest)


Sum = tuple[int, int, object]  # offset of a text, its length without padding, its BLAKE3


def _sums(entry: dict[str, Any], at: int) -> tuple[Sum, Sum]:
    """Return the digests of the texts of index and lindi.json. They count if the texts begin as holdall's do."""
    hint, sums = entry.get("holdall"), entry.get("holdall_blake3")
    if type(hint) is list and type(sums) is list and len(hint) == 3 and len(sums) == 2 and all(type(n) is int for n in hint):
        return (at, hint[0], sums[0]), (hint[1], hint[2], sums[1])
    return (-1, 0, None), (-1, 0, None)


def _members(obj: Object, head: bytes, verify: bool | None) -> tuple[dict[str, Member], tuple[Sum, Sum]]:
    """Return the members of a tar from its entry and its index, and the digests of both texts."""
    if len(head) < FRONT:
        raise DamagedError(obj.name, f"{len(head)} bytes are too few even for {ENTRY}")
    entry = _object(_json(obj.name, ENTRY, head[ENTRY_AT:FRONT]))
    where = _row(entry.get("index"))
    if where is None or where[0] != INDEX or where[1] != where[2] + 512 or where[2] < FRONT:
        raise DamagedError(obj.name, f"{ENTRY} does not say where the index is")
    _, at, _, n, _ = where
    text = head[at : at + n] if at + n <= len(head) else obj.read(at, _short(obj, n))
    sums = _sums(entry, at)
    rows = _object(_json(obj.name, INDEX, text)).get("files")
    if text.startswith(b'{"'):
        check_index(obj.name, INDEX, text[: max(sums[0][1], 0)], sums[0][2], verify)
    if type(rows) is not list:
        raise DamagedError(obj.name, f'{INDEX} has no "files"')
    members = {}
    listed = False
    for row in map(_row, rows):
        if row is not None:
            name, d, _, s, digest = row
            members[name] = (d, s, digest)
            listed = listed or row[:4] == where[:4]
    if not listed:
        raise DamagedError(obj.name, f"the index does not list itself where {ENTRY} says that it is")
    return members, sums


def _row(row: Any) -> tuple[str, int, int, int, bytes] | None:
    """Return name, content, header, size and digest of a row; None if it is not a row."""
    name, d, o, s, digest = map(_object(row).get, ("n", "d", "o", "s", "blake3"))
    if type(name) is not str or not all(type(v) is int and 0 <= v < 1 << 62 for v in (d, o, s)):
        return None
    return name, d, o, s, digest_of(digest)  # type: ignore[return-value]


def _sealed(archive: str, text: bytes, verify: bool | None) -> Any:
    """Parse a lindi.json that is an object of its own. If it ends with a digest of itself, it is compared."""
    text = text.rstrip(b" \t\r\n")
    head, end = text[: max(0, len(text) - 64 - len(SEAL_END))], text[-len(SEAL_END) :]
    if end == SEAL_END and head.endswith(SEAL):
        check_index(archive, RFS, head, text[len(head) : -len(SEAL_END)].decode("latin-1"), verify)
    return _json(archive, RFS, text)


def _of_folder(obj: Folder, volumes: Volumes) -> dict[bytes, File]:
    """Return the files of a folder that contains a lindi.json."""
    files = {}
    for base, _, names in os.walk(obj.path):
        for path in (os.path.join(base, name) for name in names):
            inner = os.path.relpath(path, obj.path).replace(os.sep, "/")
            files[os.fsencode(inner)] = _placed(os.stat(path).st_size, len(volumes))
            volumes.append(("/" + inner, False))
    return files


class _Keys:
    """The keys of a lindi.json."""

    def __init__(self, archive: str, rfs: Any, members: dict[str, Member] | None, volumes: Volumes) -> None:
        top = _object(rfs)
        if type(top.get("refs")) is not dict:
            raise DamagedError(archive, f'{RFS} has no "refs"')
        self.refs: dict[str, Any] = top["refs"]
        self.templates = {k: v for k, v in _object(top.get("templates")).items() if type(v) is str}
        self.members, self.volumes = members, volumes
        self.numbers = {v: i for i, v in enumerate(volumes)}
        self.arrays: dict[str, int] = {}

    def file(self, key: str, value: Any) -> File:
        """Return the file for a key."""
        if type(value) is dict:
            return _inline(json.dumps(value).encode("utf-8", "surrogatepass"))
        if type(value) is str:
            try:
                data = base64.b64decode(value[7:].translate(_LINES), validate=True) if value.startswith("base64:") else value.encode("utf-8", "surrogateescape")
            except (binascii.Error, ValueError) as err:
                return File(0, fault=f"its content in {RFS} cannot be decoded: {err}")
            return _inline(data, self._filled(key, len(data)))
        if not (type(value) is list and len(value) == 3 and type(value[0]) is str and all(type(n) is int and 0 <= n < 1 << 62 for n in value[1:])):
            return File(0, fault=f"{str(value)[:80]} is neither content nor a reference")
        address, offset, length = re.sub(r"\{\{(.*?)\}\}", lambda m: self.templates.get(m[1], m[0]), value[0]), value[1], value[2]
        digest = b""
        if not address:
            return File(length, fault="its reference has no address")
        if not address.startswith("./"):
            volume = self._volume(address, True)
        elif self.members is None:  # a single JSON file
            volume = self._volume(address[2:], True)
        elif not self.members:  # a folder
            if not all(part not in ("", ".", "..") for part in address[2:].split("/")):
                return File(length, fault=f"it leads to {address[2:]!r}, which is no path within the archive")
            volume = self._volume(address[1:], False)
        else:
            at, n, digest = self.members.get(address[2:], (-1, 0, b""))
            if at < 0:
                return File(length, fault=f"it leads to the member {address[2:]!r}, which is not there")
            if offset + length > n:
                return File(length, fault=f"it leads to bytes {offset} to {offset + length} of {address[2:]!r}, which has {n}")
            digest = digest if offset == 0 and length == n else b""
            volume, offset = 0, at + offset
        size = self._filled(key, length)
        return _placed(length, volume, offset, digest if size == length else b"", size)

    def _volume(self, name: str, external: bool) -> int:
        number = self.numbers.setdefault((name, external), len(self.volumes))
        if number == len(self.volumes):
            self.volumes.append((name, external))
        return number

    def _filled(self, key: str, n: int) -> int:
        """Return the size of a chunk of n bytes. Short chunks of an array that is not compressed are followed by zeros."""
        folder, _, last = key.rpartition("/")
        if not n or not _CHUNK.fullmatch(last):
            return n
        if folder not in self.arrays:
            self.arrays[folder] = self._chunk_bytes(folder + "/.zarray" if folder else ".zarray")
        return max(n, self.arrays[folder])

    def _chunk_bytes(self, key: str) -> int:
        """Return the size of each chunk of an array that is stored uncompressed; 0 for other arrays."""
        try:
            meta: Any = self.refs.get(key)
            meta = json.loads(meta) if type(meta) is str else meta
            dtype = re.fullmatch(r"[<>|][iuf](\d{1,2})", meta["dtype"])
            sizes = [int(dtype[1]) if dtype else 0, *meta["chunks"]]
            if meta.get("compressor") or meta.get("filters") or not all(type(n) is int and 0 < n < 1 << 40 for n in sizes[1:]):
                return 0
        except (ValueError, TypeError, KeyError, AttributeError):
            return 0
        size = prod(sizes)
        return size if size < 1 << 40 else 0


def _keys(archive: str, rfs: Any, members: dict[str, Member] | None, volumes: Volumes) -> Listing:
    """Return the keys of a lindi.json as files."""
    keys = _Keys(archive, rfs, members, volumes)
    return Listing(archive, {k.encode("utf-8", "surrogateescape"): keys.file(k, v) for k, v in keys.refs.items()}, "blake3")


def _inline(data: bytes, size: int = 0) -> File:
    extents = (Extent(0, len(data), INLINE, 0, len(data), 0, RAW, data),) if data else ()
    return File(max(size, len(data)), extents)


def _object(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _json(archive: str, what: str, text: bytes) -> Any:
    try:
        return decode(text, nan=True)
    except ValueError as err:
        raise DamagedError(archive, f"{what} cannot be read: {err}") from err


def _short(obj: Object, n: int) -> int:
    if n > MAX_TEXT:
        raise UnsupportedError(obj.name, f"{n} bytes of index are more than the limit of {MAX_TEXT}")
    return n
