"""Decides where an archive may refer to outside itself.

Without this, an archive with references could make the program that opens it read any file, or send requests to any
server.
"""

from __future__ import annotations

import os
import urllib.parse

from .errors import UnsupportedError
from .objects import Folder, FsspecFolder, LocalFile, Object, open_object
from .web import WebObject


def find(archive: Object, address: str, allowed: bool | None) -> Object:
    """Return the object at an address, or at a path relative to the archive's folder."""
    if allowed is False:
        raise UnsupportedError(archive.name, f"it leads to {address}, and external is False")
    if address.startswith("./") or "://" not in address:
        return _beside(archive, address, bool(allowed))
    if not allowed and not (isinstance(archive, WebObject) and _origin(archive.address) == _origin(address)):
        raise UnsupportedError(archive.name, f"it leads to {address}; external=True allows it")
    return open_object(address, archive.cache)


def _beside(archive: Object, path: str, allowed: bool) -> Object:
    path = path.removeprefix("./")
    escaped = urllib.parse.quote(path, errors="surrogateescape")
    if isinstance(archive, WebObject):
        address = urllib.parse.urljoin(archive.address, escaped)
        if _origin(address) != _origin(archive.address):
            raise UnsupportedError(archive.name, f"it leads to {path}, which is on another server")
        return WebObject(address, archive.cache)
    if isinstance(archive, FsspecFolder):
        if not allowed and ".." in path.split("/"):
            raise UnsupportedError(archive.name, f"it leads to {path}; external=True allows it")
        return archive.beside("/" + (escaped if "://" in archive.path else path))
    if not isinstance(archive, LocalFile | Folder):
        raise UnsupportedError(archive.name, f"it leads to the path {path}, which has no meaning here")
    folder = archive.path if isinstance(archive, Folder) else os.path.dirname(archive.path)
    at = os.path.join(folder, path)
    within = os.path.realpath(folder)
    if not allowed and os.path.commonpath([within, os.path.realpath(at)]) != within:
        raise UnsupportedError(archive.name, f"it leads to {path}; external=True allows it")
    return Folder(at) if os.path.isdir(at) else LocalFile(at)


def parent(folder: Object) -> Object:
    """Return where the paths begin that a folder refers to beside itself."""
    if isinstance(folder, Folder):
        above = Folder(os.path.dirname(os.path.abspath(folder.path)))
        above.cache = folder.cache
        return above
    return FsspecFolder(folder.fs, folder.path.rpartition("/")[0], folder.cache) if isinstance(folder, FsspecFolder) else folder


def _origin(address: str) -> tuple[str, str | None, int | None]:
    u = urllib.parse.urlsplit(address)
    return u.scheme, u.hostname, u.port or {"http": 80, "https": 443}.get(u.scheme)
