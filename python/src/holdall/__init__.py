"""Read and write archives of many small files, on disks and servers.

    a = holdall.open("photos.caf")
    a["2026/05/a.jpg"]

    with holdall.create("new.caf") as w:
        w["a.jpg"] = b"…"

See :func:`open`, :class:`Archive`, :func:`create` and :func:`pack`.
"""

from typing import TYPE_CHECKING

from .archive import Archive, Info, open
from .command import Indexed, Verified, Written, convert, extract, index, pack, verify
from .errors import CommandError, DamagedError, HoldallError, NotFoundError, StaleIndexError, StaleIndexWarning, UnsupportedError, UntrustedError
from .writing import Writer, create

__version__: str

__all__ = [
    "Archive",
    "CommandError",
    "DamagedError",
    "HoldallError",
    "Indexed",
    "Info",
    "NotFoundError",
    "StaleIndexError",
    "StaleIndexWarning",
    "UnsupportedError",
    "UntrustedError",
    "Verified",
    "Writer",
    "Written",
    "convert",
    "create",
    "extract",
    "index",
    "open",
    "pack",
    "verify",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        if name != "__version__":
            raise AttributeError(f"module 'holdall' has no attribute {name!r}")
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("holdall")
        except PackageNotFoundError:  # it runs from its folder
            return "devel"
