"""Errors. Each of them names the archive, the file if it concerns one, and the reason."""

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
    """Any error of this package. The error of the system or server is its __cause__."""

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
    """This package cannot read it, or not without another package."""


class StaleIndexWarning(UserWarning):
    """An index beside the archive was not used."""
