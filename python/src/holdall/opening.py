"""Finds out what an archive is, and whether it is read by an index or by itself."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import Any

from . import blocks, bound, caf, catalog, lindi, table, tarzip, trust
from .errors import DamagedError, HoldallError, NotFoundError, StaleIndexError, StaleIndexWarning, UnsupportedError, UntrustedError
from .listing import Rows
from .objects import Folder, Object, open_object
from .reading import Reader, unverified

SUFFIX = ".holdall"
FRONT = 64 << 10

_USUAL = {"", "members", "files"}  # default views of formats that have several


@dataclass
class Found:
    """An archive, and how to read it."""

    archive: Object
    format: str
    rows: Rows
    index: str | None = None
    view: str = ""
    volumes: list[tuple[str, bool]] = field(default_factory=lambda: [("", False)])
    codecs: list[str] = field(default_factory=list)
    verify: bool | None = None
    external: bool | None = None
    copied: bool = False  # what the index says is used only for contents that are compared

    @property
    def reader(self) -> type[Reader]:
        """What reads its contents."""
        return catalog.CatalogReader if isinstance(self.rows, catalog.Catalog) else Reader


def again(what: Any) -> Any:
    """Return what another process needs to open something that is not open here."""
    return os.path.abspath(os.fspath(what)) if isinstance(what, str | os.PathLike) and "://" not in str(what) else what


def find(
    what: Any,
    *,
    index: Any = None,
    view: str | None = None,
    verify: bool | None = None,
    external: bool | None = None,
    cache: Any = None,
    cache_size: int | str | None = None,
    trusted: Any = None,
) -> Found:
    """Look for an index of an archive, and open it by that or by its own index."""
    archive = open_object(what, blocks.named(cache, cache_size))
    try:
        signers = trust.keys(trusted)
        found = _signed(archive, index, view, verify, signers) if signers else _find(archive, index, view, verify)
    except BaseException:
        archive.close()
        raise
    found.verify, found.external = verify, external
    return found


def _find(archive: Object, index: Any, view: str | None, verify: bool | None) -> Found:
    why: HoldallError | None = None
    if shelf := catalog.find(archive):
        if index or view:
            raise UnsupportedError(archive.name, "a catalogue, which has no index and no views")
        return Found(shelf, "catalog", catalog.Catalog(shelf))
    if index is not None and index is not False:
        return _by_index(archive, open_object(index, archive.cache), view, verify, True)
    if index is None:
        try:
            return _by_index(archive, archive.beside(SUFFIX), view, verify, False)
        except NotFoundError:
            pass
        except HoldallError as err:
            why = err
    try:
        found = _by_itself(archive, view, verify)
    except UnsupportedError as err:
        raise why or err from None
    if isinstance(why, StaleIndexError | DamagedError):
        warnings.warn(f"{why}; the archive is read without it", StaleIndexWarning, stacklevel=5)
    return found


def _signed(archive: Object, index: Any, view: str | None, verify: bool | None, trusted: list[bytes]) -> Found:
    """Open an archive by an index whose root one of the trusted keys has signed."""
    if verify is False or index is False:
        raise UntrustedError(archive.name, "only archives with an index are trusted, and their contents are compared")
    shelf = catalog.find(archive)
    root = trust.root(shelf or archive, trusted)
    if shelf:
        shelf.signed = root
        found = _find(shelf, index, view, True)
        found.copied = True
        return found
    try:
        obj = open_object(index, archive.cache) if index is not None else archive.beside(SUFFIX)
    except NotFoundError:
        raise UntrustedError(archive.name, "the index that was signed is not beside it") from None
    return _by_index(archive, obj, view, True, index is not None, root)


def _by_index(archive: Object, obj: Object, view: str | None, verify: bool | None, named: bool, root: str = "") -> Found:
    """Open an archive by an index. An index that was named may be of any view. With a root, nothing is read that is not compared."""
    try:
        head = table.read_head(obj, root)
        try:
            copied = bool(root) or bound.check(obj, archive, head["bound"])
            has = str(head.get("view", ""))
            if view is not None and has != view or view is None and not named and has not in _USUAL:
                raise UnsupportedError(archive.name, f"the index {obj.name} is of the view {has!r}")
            if head.get("param") and not named:
                raise UnsupportedError(archive.name, f"the index {obj.name} was made with other options")
            kind = str(head["format"])
        except (KeyError, TypeError, AttributeError) as err:
            raise DamagedError(obj.name, f"its head is none: {err!r}") from err
        rows = table.Table(obj, head, archive.name, bool(root))
        found = Found(archive, kind, rows, obj.name, has, rows.volumes, rows.codecs, verify, copied=copied)
        if copied and (why := unverified(found)):
            raise StaleIndexError(archive.name, f"the index {obj.name} was made before the archive was copied, and contents cannot be compared: {why}")
    except BaseException:
        obj.close()
        raise
    return found


def _by_itself(archive: Object, view: str | None, verify: bool | None) -> Found:
    """Open a CAF or a LINDI archive by its own index."""
    if isinstance(archive, Folder):
        if not os.path.exists(os.path.join(archive.path, lindi.RFS)):
            raise _needs_index(archive)
        rows, volumes = lindi.read(archive, b"", view, verify)
        return Found(archive, "lindi", rows, None, view or "members", volumes)
    if not archive.name.lower().endswith((".json", ".tar")):
        tail = archive.tail(caf.PROBE)
        if archive.name.lower().endswith(".caf") or caf.is_one(tail, archive.size):
            if view:
                raise UnsupportedError(archive.name, f"CAF has no view {view!r}")
            return Found(archive, "caf", caf.read(archive, tail, verify))
        if tarzip.is_zip(tail) and not view:
            return Found(archive, "zip", tarzip.read_zip(archive, tail), codecs=tarzip.CODECS)
    head = archive.head(FRONT)
    if not lindi.shape(head):
        if tarzip.is_tar(head) and not view:
            return Found(archive, "tar", tarzip.read_tar(archive))
        raise _needs_index(archive)
    rows, volumes = lindi.read(archive, head, view, verify)
    return Found(archive, "lindi", rows, None, view or "members", volumes)


def _needs_index(archive: Object) -> UnsupportedError:
    return UnsupportedError(archive.name, "only CAF, LINDI and plain tar and zip are read without an index: make one by `holdall index`")
