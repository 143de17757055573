"""Read archives of many small files, on disks and servers.

    a = holdall.open("photos.caf")
    a["2026/05/a.jpg"]

See :func:`open` and :class:`Archive`.
"""

from .archive import Archive, Info, open
from .errors import (
    DamagedError,
    HoldallError,
    NotFoundError,
    StaleIndexError,
    StaleIndexWarning,
    UnsupportedError,
)

__all__ = [
    "Archive",
    "DamagedError",
    "HoldallError",
    "Info",
    "NotFoundError",
    "StaleIndexError",
    "StaleIndexWarning",
    "UnsupportedError",
    "open",
]
