"""Checks that an index belongs to the current version of an archive."""

from __future__ import annotations

import hashlib
import os
import re
from datetime import datetime, timezone
from typing import Any

from .errors import StaleIndexError
from .objects import Folder, Object

END_LEN = 4 << 10


def check(index: Object, archive: Object, was: dict[str, Any]) -> bool:
    """Raise an error if an index belongs to another version of the archive.

    Return whether only the length and the ends are known to be the same, so that the archive may be a copy.
    """
    if isinstance(archive, Folder):
        reason, newest = _of_folder(archive, was)
        copied = newest is not None
    else:
        reason, copied = _of_object(archive, was)
        newest = archive.mtime_ns
    if not reason and copied:
        if whole := was.get("whole_sha256", ""):
            copied = False
            if _sum(archive.head(was["size"])) != whole:
                reason = "it is of an archive with other content"
        elif newest is not None and index.mtime_ns is not None and newest > index.mtime_ns:
            reason = f"it is of an archive of {was.get('mtime', 'no time')}, and the archive is newer; make it again, or touch it if the archive is a copy"
        elif not archive.near and was.get("head_sha256", "") not in ("", _sum(archive.head(END_LEN))):
            reason = OTHER_BEGINNING
    if reason:
        raise StaleIndexError(archive.name, f"the index {index.name} is not of it: {reason}")
    return copied


OTHER_BEGINNING = "it is of an archive with another beginning"


def _of_object(archive: Object, was: dict[str, Any]) -> tuple[str, bool]:
    """Return how the ends of an archive differ from the index, or "", and whether the version does."""
    if was["size"] != archive.size:
        return f"it is of an archive of {was['size']} bytes, not of {archive.size}", False
    if was.get("tail_sha256") != _sum(archive.tail(END_LEN)):
        return "it is of an archive with another end", False
    if archive.near and was.get("head_sha256", "") not in ("", _sum(archive.head(END_LEN))):
        return OTHER_BEGINNING, False
    version, now = was.get("version", ""), archive.version
    if version and version == now:
        return "", False
    return "", bool(version and now) or not same_time(was.get("mtime", ""), archive.mtime_ns)


def _of_folder(archive: Folder, head: dict[str, Any]) -> tuple[str, int | None]:
    """Return how the objects of a folder differ from the index, or "". If only their times do, return the newest."""
    was = {o["name"]: o for o in head.get("objects") or []}
    now = dict(_objects(archive.path))
    if was.keys() != now.keys():
        other = sorted(was.keys() ^ now.keys())[0]
        return f"{other} is {'gone' if other in was else 'new'}", None
    for name, stat in now.items():
        if was[name]["size"] != stat.st_size:
            return f"{name} had {was[name]['size']} bytes, now it has {stat.st_size}", None
    if any(time_ns(was[name].get("mtime", "")) != stat.st_mtime_ns for name, stat in now.items()):
        return "", max(stat.st_mtime_ns for stat in now.values())
    return "", None


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
