"""What can go wrong. Every error names the archive, the file if it is about one, and the reason."""

from __future__ import annotations

__all__ = [
    "DamagedError",
    "HoldallError",
    "NotFoundError",
    "StaleIndexError",
    "StaleIndexWarning",
    "UnsupportedError",
]


class HoldallError(Exception):
    """Any error of this package. What the system or a server said is its __cause__."""

    def __init__(self, archive: str, reason: str, name: str | None = None) -> None:
        super().__init__(archive, reason, name)
        self.archive = archive
        self.reason = reason
        self.name = name

    def __str__(self) -> str:
        if self.name is None:
            return f"{self.archive}: {self.reason}"
        return f"{self.archive}: {self.name!r}: {self.reason}"


class DamagedError(HoldallError):
    """Bytes are not what they should be."""


class NotFoundError(HoldallError, KeyError):
    """There is no such archive, or no such file in it."""

    __str__ = HoldallError.__str__


class StaleIndexError(HoldallError):
    """The index belongs to another version of the archive."""


class UnsupportedError(HoldallError):
    """It cannot be read by this package, or not without another one."""


class StaleIndexWarning(UserWarning):
    """An index beside the archive was not used."""
