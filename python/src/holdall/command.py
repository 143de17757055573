"""Runs the command, which writes and checks archives of all formats. Results have the fields that docs/reference.md describes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from .errors import CommandError, UnsupportedError

Progress = Callable[[str], object] | None
Path = str | os.PathLike[str]

_PROGRESS = re.compile(r"holdall: \w+: ([\d,]+ entr(?:y|ies), .+/s(?:, .+ left of .+)?)")


class Written(NamedTuple):
    """What pack, convert and extract have written."""

    entries: int
    bytes: int
    stored_bytes: int = 0
    volumes: list[str] = []
    failed: int = 0
    dropped: dict[str, int] = {}
    left_out: list[dict[str, str]] = []
    lost: list[str] = []
    unmatched: list[str] = []
    again: list[str] = []
    proven: dict[str, int] = {}
    base: str = ""
    shared_bytes: int = 0
    copied: int = 0
    referred: int = 0
    stripped: int = 0
    parity: str = ""
    parity_bytes: int = 0
    findings: list[dict[str, Any]] = []  # of extract


class Indexed(NamedTuple):
    """The index that was made."""

    path: str
    entries: int
    bytes: int
    index_bytes: int
    digests: int = 0
    unproven: int = 0
    findings: list[dict[str, Any]] = []


class Verified(NamedTuple):
    """What is known of an archive after it was verified."""

    archive: str
    verdict: str  # "sound", "unproven", "structure-sound", "sample-sound" or "damaged"
    format: str
    entries: int
    bytes: int
    errors: int
    warnings: int
    proven: dict[str, int]
    unproven: int = 0
    quick: bool = False
    being_written: bool = False
    parity: dict[str, Any] = {}
    findings: list[dict[str, Any]] = []


T = TypeVar("T", Written, Indexed, Verified)


def find() -> str:
    """Return the path of the command: what $HOLDALL names, that of the wheel, or the one on PATH."""
    import importlib.metadata

    program = "holdall.exe" if os.name == "nt" else "holdall"
    try:
        files = importlib.metadata.files("holdall") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    own = [str(f.locate()) for f in files if f.name == program]
    named = os.environ.get("HOLDALL", "")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, [*own, program])), None)
    if found is None:
        raise UnsupportedError(
            named or program,
            "there is no such command: wheels for Linux, macOS and Windows have it, $HOLDALL can name it, and `go build ./cmd/holdall` makes it",
        )
    return found


def pack(paths: Path | Iterable[Path], out: Path, format: str | None = None, *, progress: Progress = None, **flags: Any) -> Written:
    """Pack files and folders, as `holdall pack` does: ``pack("photos", "photos.caf", chunk_size="30GB")``.

    Flags of the command are arguments, with _ for -: True for a flag without a value, a list for one that is repeated.
    progress is called with a line of text every ten seconds. If anything was left out, that is a CommandError, whose
    result says what was written. So it is with the functions below.
    """
    inputs = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return _run(Written, "pack", inputs, progress, flags | {"output": os.fspath(out), "format": format})


def convert(src: Path, dst: Path, format: str | None = None, *, progress: Progress = None, **flags: Any) -> Written:
    """Write the entries of an archive or folder as another one, as `holdall convert` does."""
    return _run(Written, "convert", [src, dst], progress, flags | {"format": format})


def extract(archive: Path, folder: Path, paths: Iterable[str] = (), *, progress: Progress = None, **flags: Any) -> Written:
    """Write all of an archive, or the named files and folders, below a folder, as `holdall extract` does."""
    return _run(Written, "extract", [archive, *paths], progress, flags | {"directory": os.fspath(folder)})


def index(archive: Path, *, progress: Progress = None, **flags: Any) -> Indexed:
    """Write an index beside an archive, as `holdall index` does. chunk_digests=True has parts of files compared, too."""
    return _run(Indexed, "index", [archive], progress, flags)


def verify(archive: Path, *, progress: Progress = None, **flags: Any) -> Verified:
    """Check all of an archive, as `holdall verify` does. Damage is no error, but the verdict and findings of the result."""
    return _run(Verified, "verify", [archive], progress, flags)


def _run(kind: type[T], verb: str, inputs: Iterable[Path], progress: Progress, flags: dict[str, Any]) -> T:
    args: list[str] = [find(), verb, "--json", "--progress=plain" if progress else "--progress=none"]
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for v in value if isinstance(value, list | tuple) else [value]:
            args += [flag] if v is True else [] if v is None or v is False else [f"{flag}={v}"]
    what: list[str] = [os.fspath(path) for path in inputs]
    code, lines, said = _talk([*args, "--", *what], progress)
    needed = set(kind._fields) - kind._field_defaults.keys()
    last = next((line for line in reversed(lines) if needed <= line.keys()), None)
    findings = [line for line in lines if "severity" in line]
    result = kind(**{k: v for k, v in last.items() if k in kind._fields} | {"findings": findings}) if last else None
    if result is not None and (code == 0 or code == 1 and verb == "verify"):
        return result
    words: list[str] = [f"{one['path']}: {one['reason']}" for one in (last or {}).get("left_out", [])]
    words += [f"{one.get('path', what[0])}: {one['message']}" for one in findings]
    words += said if result else said[::-1]
    word = next((str(line["error"].get("code", "")) for line in reversed(lines) if "error" in line), "")
    raise CommandError(what[0] if what else "", [*words, f"{verb} ended with {code} and without a result"][0], code, word, result)


def _talk(args: list[str], progress: Progress) -> tuple[int, list[dict[str, Any]], list[str]]:
    """Run the command. Return its exit code, its lines of JSON, and the others, without those about progress."""
    try:
        process = subprocess.Popen(
            args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="surrogateescape"
        )
    except OSError as err:
        raise UnsupportedError(args[0], f"the command does not run: {err.strerror}") from err
    lines: list[dict[str, Any]] = []
    said: list[str] = []
    with process:
        out, errors = process.stdout, process.stderr
        assert out and errors
        reading = threading.Thread(target=lambda: lines.extend(json.loads(line) for line in out if line.startswith("{")), daemon=True)
        reading.start()
        failed: list[dict[str, Any]] = []
        try:
            for line in map(str.rstrip, errors):
                if line.startswith("{"):
                    failed.append(json.loads(line))
                elif not (shown := _PROGRESS.fullmatch(line)):
                    said.append(line.removeprefix("holdall: "))
                elif progress:
                    progress(shown[1])
        except BaseException:
            process.terminate()  # it leaves nothing incomplete
            raise
        finally:
            reading.join()
    return process.returncode, lines + failed, said
