"""Errors. Each of them names the archive, the file if it concerns one, and the reason."""

from __future__ import annotations

from typing import Any


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


class UntrustedError(HoldallError):
    """What is read would not be covered by a signature of a trusted key."""


class UnsupportedError(HoldallError):
    """This package cannot read it, or not without another package."""


class CommandError(HoldallError):
    """The command ended with an error, or left something out. Its words are the reason."""

    def __init__(self, archive: str, reason: str, exit_code: int | None = None, code: str = "", result: Any = None) -> None:
        super().__init__(archive, reason)
        self.exit_code = exit_code
        self.code = code  # a word, such as "exists"
        self.result = result  # what was written nevertheless, or None

    def __str__(self) -> str:
        return self.reason


class StaleIndexWarning(UserWarning):
    """An index beside the archive was not used."""
