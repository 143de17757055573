"""Checks that an index belongs to the current version of an archive."""

from __future__ import annotations

import hashlib
import os
import re
from datetime import datetime, timezone
from typing import Any

from .errors import StaleIndexError
from .objects import Folder, LocalFile, Object

END_LEN = 4 << 10


def check(index: str, archive: Object, head: dict[str, Any]) -> None:
    """Raise an error if an index belongs to another version of the archive."""
    reason = _of_folder(archive, head["bound"]) if isinstance(archive, Folder) else _of_object(archive, head["bound"])
    if reason:
        raise StaleIndexError(archive.name, f"the index {index} is not of it: {reason}")


def _of_object(archive: Object, was: dict[str, Any]) -> str:
    """Return how the ends of an archive or its version differ from the index, or ""."""
    if was["size"] != archive.size:
        return f"it is of an archive of {was['size']} bytes, not of {archive.size}"
    if was.get("tail_sha256") != _sum(archive.tail(END_LEN)):
        return "it is of an archive with another end"
    if archive.near and was.get("head_sha256", "") not in ("", _sum(archive.head(END_LEN))):
        return "it is of an archive with another beginning"
    version, now = was.get("version", ""), archive.version
    if version and version == now:
        return ""
    if not now and archive.mtime_ns is None and not isinstance(archive, LocalFile):
        return ""  # an open file, or a store without versions: only its ends can be compared
    if not same_time(was.get("mtime", ""), archive.mtime_ns):
        return f"it is of an archive of {was.get('mtime', 'no time')}, not of {time_text(archive.mtime_ns)}"
    if version and now:
        return f"it is of version {version} of the archive, not of {now}"
    return ""


def _of_folder(archive: Folder, head: dict[str, Any]) -> str:
    """Return how the objects of a folder differ from the index, or ""."""
    was = {o["name"]: o for o in head.get("objects") or []}
    now = dict(_objects(archive.path))
    if was.keys() != now.keys():
        other = sorted(was.keys() ^ now.keys())[0]
        return f"{other} is {'gone' if other in was else 'new'}"
    for name, stat in now.items():
        if was[name]["size"] != stat.st_size:
            return f"{name} had {was[name]['size']} bytes, now it has {stat.st_size}"
        if time_ns(was[name].get("mtime", "")) != stat.st_mtime_ns:
            return f"{name} was written at another time"
    return ""


def _objects(folder: str) -> Any:
    """Return all files below a folder, with names as in an index."""
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            yield "/" + os.path.relpath(path, folder).replace(os.sep, "/"), os.stat(path)


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def same_time(was: str, now: int | None) -> bool:
    """Return whether two times are equal, to the second if the store has no fractions."""
    then = time_ns(was)
    if then is None or now is None:
        return False
    return then == now or now % 1_000_000_000 == 0 and then // 1_000_000_000 == now // 1_000_000_000


def time_ns(text: str) -> int | None:
    """Convert a time of RFC 3339 to nanoseconds since 1970."""
    m = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", text)
    if m is None:
        return None
    try:
        at = datetime.fromisoformat(m[1] + ("+00:00" if m[3] == "Z" else m[3]))
    except ValueError:
        return None
    return round((at - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()) * 1_000_000_000 + int((m[2] or "0").ljust(9, "0"))


def time_text(ns: int | None) -> str:
    """Return a time as a text."""
    if ns is None:
        return "no time"
    at = datetime.fromtimestamp(ns // 1_000_000_000, timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S") + f".{ns % 1_000_000_000:09d}".rstrip("0").rstrip(".") + "Z"
