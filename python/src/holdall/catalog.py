"""Reads catalogues: folders that record which archive has which file, and where in it.

Listings go through pages, and nothing is loaded as a whole. docs/bytes/catalog.md describes the bytes.
"""

from __future__ import annotations

import heapq
import re
import urllib.parse
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import Any, NamedTuple

from . import bound, digests, opening, outside
from .blocks import Cache
from .errors import DamagedError, HoldallError, NotFoundError, StaleIndexError, UnsupportedError, UntrustedError
from .jsontext import decode
from .listing import RAW, Extent, Proof, Rows, is_path, text
from .objects import CATALOG, Folder, FsspecFolder, Object, open_object
from .reading import Reader
from .runs import CRC, FOOTER, KEPT_PARTS, MAGIC, MAX_COMMIT, MAX_PARTS, MAX_TAIL, About, Kept, Ref, Row, Run, parsing, unpacked, unsealed
from .table import CONTENT, blake3, count, keep
from .web import WebObject

STATE, COMMIT = b"holdall catalogue 1\n", b"holdall commit 1\n"
AT_ONCE = 128 << 10  # what is read of a head or a commit by one request
MAX_OBJECT = 128 << 20  # of a head, a state or a commit
MAX_RUNS = 1000
MAX_INNER = 16  # archives that stay open because they were asked
ALGOS = ("crc32", "crc32c")  # of digests, besides BLAKE3
OBJECT = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/-]*|")
ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
SEVERAL = re.compile("[0-9a-f]{32}")  # the version of an archive that is not one object
GROUP = 64  # files between two whose rows are remembered by number
MAX_GROUPS = 4096  # of rows, by number


class Counted(NamedTuple):
    """What a pass over all files of a catalogue finds."""

    files: int
    total: int  # of their sizes
    marks: array[int]  # the row of the first file of each group, as two numbers


class Shelf(Object):
    """The folder of a catalogue, and the commit as of which it is read; 0 is the newest."""

    signed = ""  # BLAKE3 of the state that is read, in hex, if it is signed

    def __init__(self, folder: Object, commit: int = 0, counted: Counted | None = None) -> None:
        self.folder, self.name, self.near, self.size = folder, folder.name, folder.near, 0
        self.commit, self.counted = commit, counted

    def beside(self, suffix: str) -> Object:
        return self.folder.beside(suffix)

    def __str__(self) -> str:
        return self.name

    def again(self) -> Any:
        return self

    def __reduce__(self) -> Any:
        return _again, (self.folder.again(), self.folder.cache, self.commit, self.counted)

    def get(self, name: str) -> bytes:
        """Return a whole object below the folder."""
        obj = self.beside("/" + name)
        try:
            data = obj.head(AT_ONCE)
            if obj.size > MAX_OBJECT:
                raise DamagedError(obj.name, f"{obj.size} bytes, expected at most {MAX_OBJECT}")
            return data + obj.read(len(data), obj.size - len(data))
        finally:
            obj.close()

    def archive(self, address: str, external: bool | None) -> Object:
        """Return the object at the recorded address of an archive."""
        if "://" not in address and not self.near and not address.startswith("./"):
            raise UnsupportedError(self.name, f"it leads to {address}, a path on another machine")
        return outside.find(outside.parent(self.folder), address, external)


def _again(folder: Any, cache: Cache | None, commit: int, counted: Counted | None) -> Shelf:
    return Shelf(open_object(folder, cache), commit, counted)


def find(obj: Object) -> Shelf | None:
    """Return the folder of a catalogue, or None if an object is not one by its name."""
    if isinstance(obj, Shelf):
        return obj
    if isinstance(obj, WebObject):
        url = urllib.parse.urlsplit(obj.address)
        url = url._replace(path=url.path.rstrip("/"))
        return Shelf(WebObject(url.geturl(), obj.cache)) if url.path.endswith(CATALOG) else None
    return Shelf(obj) if isinstance(obj, Folder | FsspecFolder) and obj.path.endswith(CATALOG) else None


class State:
    """What all commits up to one make."""

    def __init__(self, top: dict[str, Any]) -> None:
        self.catalog, self.number, self.hash = str(top.get("catalog", "")), count(top.get("number")), str(top.get("hash", ""))
        self.elsewhere = count(top.get("elsewhere"))  # the state that has the archives, if this one has not
        self.dropped = set(map(count, top.get("dropped") or []))
        self.archives = {count(a["id"]): _about(a) for a in top.get("archives") or []}
        self.moves = [(*_move(m), count(m.get("commit"))) for m in top.get("moves") or []]
        self.runs: list[Ref] = []
        self.next = count(top.get("next")) or self.number + 1  # number of the next commit
        self.stored = count(top.get("stored"))  # number of the last state that was stored

    def moved(self, address: str, base: int) -> str:
        """Return the address now of an archive that had this one after a commit."""
        for old, new, commit in self.moves:
            if commit > base and address.startswith(old):
                address = new + address[len(old) :]
        return address

    def apply(self, c: dict[str, Any], runs: list[Ref], hash_: str) -> None:
        """Make this the state after the next commit. A hash that is empty is not known."""
        if c.get("number") != self.next or not c.get("catalog") or self.number and (c["catalog"] != self.catalog or self.hash not in ("", c.get("before"))):
            raise ValueError("it does not follow the commit before")
        add = c.get("add") or []
        if self.next >= MAX_COMMIT or len(add) > MAX_PARTS:
            raise ValueError("its archives have no numbers")
        self.catalog, self.number, self.hash = str(c["catalog"]), self.next, hash_
        self.next = count(c.get("next")) or self.number + 1
        if self.next <= self.number:
            raise ValueError("the next commit comes before it")
        self.moves += [(*_move(m), self.number) for m in c.get("moved") or []]
        drop, forget = (set(map(count, c.get(key) or [])) for key in ("drop", "forget"))
        self.dropped = (self.dropped | drop) - forget
        if not self.elsewhere:
            for i in drop:
                self.archives.pop(i, None)
            for i, a in enumerate(add, self.number * MAX_PARTS):
                self.archives[i] = _about(a)
            if c.get("moved"):
                self.archives = {i: a._replace(address=self.moved(a.address, self.number - 1)) for i, a in self.archives.items()}
        merged = set(c.get("merged") or [])
        left = [r for r in self.runs if f"{r.object}+{r.off}" not in merged]
        if len(self.runs) - len(left) != len(merged):
            raise ValueError("it merges runs that are not there")
        self.runs = sorted(left + runs, key=lambda r: -r.rows)
        if len(self.runs) > MAX_RUNS:
            raise ValueError(f"there are more than {MAX_RUNS} runs")


def _about(a: dict[str, Any]) -> About:
    return About(unescaped(a["address"]), str(a.get("format", "")), count(a.get("size")), unescaped(a.get("version", "")))


def _move(m: dict[str, Any]) -> tuple[str, str]:
    return unescaped(m["old"]), unescaped(m["new"])


def unescaped(s: str) -> str:
    """Return a text of any bytes, of which some are escaped as in \\xff."""
    return text(ESCAPED.sub(lambda m: bytes.fromhex(m[1].decode()), s.encode("utf-8", "surrogateescape")))


def _ref(r: dict[str, Any], commit: int, base: int) -> Ref:
    off, size, tail, rows = (count(r.get(key)) for key in ("off", "size", "tail", "rows"))
    ref = Ref(str(r.get("object") or ""), off, commit, size, tail, rows, base, sum=str(r.get("sum") or ""))
    if not FOOTER <= ref.tail <= min(MAX_TAIL, ref.size - MAGIC) or not OBJECT.fullmatch(ref.object):
        raise ValueError(f"a run that cannot be: {ref.object[:100]!r} of {ref.size} bytes")
    return ref


def _unframed(data: bytes, magic: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of an object, and what follows it."""
    if not data.startswith(magic):
        raise ValueError("it does not begin as one")
    at = len(magic) + 4
    body = unsealed(data)
    end = at + int.from_bytes(body[at - 4 : at], "little")
    top = decode(unpacked(body[at:end]))
    if end > len(body) or type(top) is not dict:
        raise ValueError("it has no head")
    return top, body[end:]


class _ErasedError(DamagedError):
    """A commit that says nothing any more."""


def latest(shelf: Shelf, last: int = 0) -> State:
    """Return the newest state, or that after a commit: that of the head or a stored one, and the commits after it."""
    if shelf.signed:
        state = _state(shelf, f"signed/{shelf.signed}", shelf.signed)
        if last not in (0, state.number):
            raise StaleIndexError(shelf.name, f"it was signed again, after commit {state.number}: open it again")
        return state
    why: HoldallError | None = None
    try:
        state = _state(shelf, "head")
    except (NotFoundError, DamagedError) as err:
        state, why = State({}), err
    if not state.number or 0 < last < state.number:
        state = _newest(shelf, last, state.stored)
    try:
        _follow(shelf, state, last)
    except _ErasedError:  # the head is old
        state = _newest(shelf, last)
        _follow(shelf, state, last)
    if not state.number:
        raise why if isinstance(why, DamagedError) else NotFoundError(shelf.name, "there is no catalogue")
    return state


def _newest(shelf: Shelf, last: int, known: int = 0) -> State:
    """Return the newest stored state that is not after a commit. If states cannot be listed, one of them is known."""
    stored = [int(name) for name in shelf.folder.below("states") if re.fullmatch("[0-9]{16}", name)] or [known]
    newest = max((n for n in stored if not last or n <= last), default=0)
    return _stored(shelf, newest) if newest else State({})


def _state(shelf: Shelf, name: str, signed: str = "") -> State:
    with parsing(f"{shelf.name}/{name}"):
        data = shelf.get(name)
        if signed and blake3(data).hex() != signed:
            raise UntrustedError(f"{shelf.name}/{name}", "it is not what was signed")
        top, more = _unframed(data, STATE)
        state, runs, tails = State(top), top.get("runs") or [], top.get("tails") or []
        if not 0 < state.number < MAX_COMMIT or not state.catalog or state.elsewhere > state.number or len(tails) > len(runs) or len(runs) > MAX_RUNS:
            raise ValueError("a state of nothing")
        for r, n in zip(runs, tails + [0] * (len(runs) - len(tails)), strict=True):
            ref = _ref(r, count(r.get("commit")), count(r.get("base")))
            if ref.commit > state.number:
                raise ValueError(f"the run {ref.object} is of commit {ref.commit}")
            if n and (n != ref.tail or n > len(more)):
                raise ValueError(f"the end of the run {ref.object} is not there")
            state.runs.append(ref._replace(end=more[:n]))
            more = more[n:]
        return state


def _stored(shelf: Shelf, number: int) -> State:
    state = _state(shelf, f"states/{number:016}")
    if state.number != number or state.elsewhere:
        raise DamagedError(f"{shelf.name}/states/{number:016}", f"it is not state {number}")
    return state


def _follow(shelf: Shelf, state: State, last: int = 0) -> None:
    """Apply the commits after a state: all that there are, or those up to one."""
    try:
        digest: Callable[[bytes], bytes] | None = digests.find("blake3")
    except ImportError:
        digest = None  # the numbers of commits are compared, and not the commits
    while not last or state.number < last:
        name = f"commits/{state.next:016}"
        try:
            data = shelf.get(name)
        except HoldallError as err:
            # S3 refuses an object that is not there to those who must not list the bucket.
            refused = not shelf.near and isinstance(err.__cause__, PermissionError)
            if last or not refused and not isinstance(err, NotFoundError):
                raise
            return
        with parsing(f"{shelf.name}/{name}"):
            top, more = _unframed(data, COMMIT)
            if top.get("erased"):
                raise _ErasedError(f"{shelf.name}/{name}", "what the catalogue was then was erased")
            runs = []
            for r in top.get("runs") or []:
                ref = _ref(r, state.next, count(top.get("base")))
                if len(more) < (ref.tail if ref.object else ref.size):
                    raise ValueError("its run is not there")
                if not ref.object:  # the run itself follows
                    ref = ref._replace(object=name, off=len(data) - CRC - len(more), end=more[ref.size - ref.tail : ref.size])
                    more = more[ref.size :]
                else:
                    ref, more = ref._replace(end=more[: ref.tail]), more[ref.tail :]
                runs.append(ref)
            state.apply(top, runs, digest(data).hex() if digest else "")


class Catalog(Rows):
    """The files of a catalogue: the newest version of each name, as of when it was opened.

    A row is the handle of a row of a run. Files are numbered in the order of their names. One pass over all rows counts
    them, and remembers the row of each 64th.
    """

    algos: tuple[str, ...] = ("blake3",)

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._state = latest(shelf, shelf.commit)
        shelf.commit = self._state.number
        shelf.version = self._state.hash or str(self._state.number)
        kept = Kept()
        self.trusted = bool(shelf.signed)
        self._runs = [Run(shelf, ref, i, kept, self.trusted) for i, ref in enumerate(self._state.runs)]
        self._known: dict[bytes, int] = {}  # rows of names that were listed or found
        self._shown: dict[int, About] = {}  # archives that pages describe
        self._groups: dict[int, list[int]] = {}  # rows by number

    # Rows

    def find(self, name: bytes) -> int:
        row = self._known.get(name, -1)
        if row < 0:
            runs = [run.rows(name) for i, run in enumerate(self._runs) if run.may_have(name, far=i > 0)]
            for r in self._newest([takewhile(lambda r: r.name == name, rows) for rows in runs]):
                row = self._keep(r).handle
        return row

    def at(self, row: int) -> Row:
        """Return a row by its handle."""
        return self._runs[row >> 80].row(row)

    def after(self, name: bytes) -> Iterator[Row]:
        """Yield the newest version of each name from one on."""
        return map(self._keep, self._after(name))

    def _after(self, name: bytes) -> Iterator[Row]:
        return self._newest([run.rows(name) for run in self._runs])

    def _newest(self, rows: Sequence[Iterator[Row]]) -> Iterator[Row]:
        done = None
        for r in rows[0] if len(rows) == 1 else heapq.merge(*rows, key=lambda r: (r.name, -r.seq, r.archive < 0, -r.archive)):
            if r.name == done or r.archive in self._state.dropped:
                continue
            done = r.name
            if r.archive >= 0 and r.kind in CONTENT:
                yield r

    def names(self) -> Iterator[bytes]:
        return (r.name for r in self.after(b""))

    def name(self, row: int) -> bytes:
        return self.at(row).name

    def kind(self, row: int) -> str:
        return self.at(row).kind

    def size(self, row: int) -> int:
        return self.at(row).size

    def extents(self, row: int) -> list[Extent]:
        r = self.at(row)
        a = self.archive(r.archive)
        if r.offset + r.size > a.size:
            raise DamagedError(self.shelf.name, f"{r.size} bytes at {r.offset} of an archive of {a.size}", text(r.name))
        return [Extent(0, r.size, r.archive, r.offset, r.size, 0, RAW)] if r.size else []

    def proof(self, row: int) -> Proof | None:
        r = self.at(row)
        return Proof(r.algo, r.sum) if r.algo == "blake3" or r.algo in ALGOS and not self.trusted else None

    def archive(self, number: int) -> About:
        """Return an archive by its number. If there are many, those that no page has described are read."""
        if self._state.elsewhere:
            if number in self._shown:
                return self._shown[number]
            state = _stored(self.shelf, self._state.elsewhere)
            _follow(self.shelf, state, self._state.number)
            self._state.archives, self._state.elsewhere = state.archives, 0
        if number not in self._state.archives:
            raise DamagedError(self.shelf.name, f"there is no archive {number}, to which a row leads")
        return self._state.archives[number]

    def _keep(self, r: Row) -> Row:
        keep(self._known, r.name, r.handle, KEPT_PARTS)
        if r.about and self._state.elsewhere:
            base = self._state.runs[r.handle >> 80].base
            keep(self._shown, r.archive, r.about._replace(address=self._state.moved(r.about.address, base)), KEPT_PARTS)
        return r

    # Numbers

    @property
    def files(self) -> int:  # type: ignore[override]
        return self._count().files

    @property
    def total(self) -> int:  # type: ignore[override]
        return self._count().total

    def _count(self) -> Counted:
        counted = self.shelf.counted
        if counted is None:
            n = total = 0
            marks = array("Q")
            for r in self._after(b""):
                if n % GROUP == 0:
                    marks.extend(divmod(r.handle, 1 << 60))
                n, total = n + 1, total + r.size
            counted = self.shelf.counted = Counted(n, total, marks)
        return counted

    def row(self, number: int) -> int:
        group = number // GROUP
        rows = self._groups.get(group)
        if rows is None:
            rows = [r.handle for r in islice(self._after(self._mark(group)), GROUP)]
            keep(self._groups, group, rows, MAX_GROUPS)
        return rows[number % GROUP]

    def first(self, name: bytes) -> int:
        """Return the number of the first file whose name is not before this one."""
        groups = range(len(self._count().marks) // 2)
        group = bisect_left(groups, name, key=self._mark) - 1
        return group * GROUP + sum(1 for _ in takewhile(lambda r: r.name < name, self._after(self._mark(group)))) if group >= 0 else 0

    def _mark(self, group: int) -> bytes:
        """Return the first name of a group."""
        high, low = self._count().marks[2 * group : 2 * group + 2]
        return self.at(high << 60 | low).name

    def number(self, row: int) -> int:
        return -1  # looking for it could take a pass over all files

    def close(self) -> None:
        for run in self._runs:
            run.close()


class Folders:
    """The folders of a catalogue. It does what :class:`holdall.tree.Tree` does, with names instead of numbers."""

    def __init__(self, rows: Catalog) -> None:
        self._rows = rows

    def files(self, folder: str) -> Iterator[str]:
        """Yield the files directly in a folder."""
        return (name for name, is_folder in self._level(folder) if not is_folder)

    def each_folder(self, folder: str) -> Iterator[str]:
        """Yield the folders directly in a folder, with their whole names."""
        return (name for name, is_folder in self._level(folder) if is_folder)

    def folders(self, folder: str) -> list[str]:
        return list(self.each_folder(folder))

    def below(self, folder: str) -> Iterator[str]:
        """Yield the files in all folders below a folder."""
        start = _prefix(folder)
        for r in self._rows.after(start):
            if not r.name.startswith(start):
                return
            if b"/" in r.name[len(start) :] and is_path(r.name):
                yield text(r.name)

    def numbers(self, folder: str) -> range:
        """Return the numbers of the files in a folder and below it."""
        start = _prefix(folder)
        return range(self._rows.first(start), self._rows.first(start[:-1] + b"0"))  # "0" follows "/"

    def is_folder(self, folder: str) -> bool:
        """Return whether there is a file in a folder or below it."""
        return next(self._level(folder), None) is not None

    def _level(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Yield what is directly in a folder, and whether it is a folder. What is in these is passed over."""
        prefix = _prefix(folder)
        at: bytes | None = prefix
        start = len(prefix)
        while at is not None:
            rows, at = self._rows.after(at), None
            for r in rows:
                if not r.name.startswith(prefix):
                    break
                end = r.name.find(b"/", start)
                if is_path(r.name):
                    yield text(r.name if end < 0 else r.name[:end]), end >= 0
                if end >= 0 and (is_path(r.name) or r.name[start:end] in (b"", b".", b"..")):
                    at = r.name[:end] + b"0"  # which follows the slash
                    break


def _prefix(folder: str) -> bytes:
    return folder.encode("utf-8", "surrogateescape") + b"/" if folder else b""


class CatalogReader(Reader):
    """Reads contents from the archives: from where they lie or, if that is not recorded, through the archives."""

    rows: Any
    _depth = 6

    def __init__(self, found: Any) -> None:
        super().__init__(found)
        self._verify: bool | None = found.verify
        self._inner: dict[int, Reader] = {}
        for algo in ALGOS if self.verifies else ():
            with suppress(ImportError):
                self._digests[algo] = digests.find(algo)

    def close(self) -> None:
        for inner in self._inner.values():
            inner.close()
        super().close()

    def get(self, row: int) -> bytes:
        r = self.rows.at(row)
        if r.offset >= 0 or self.verifies and r.size == 0 and self.rows.proof(row):
            return super().get(row)
        return self.many([row])[0]

    def part(self, row: int, start: int = 0, end: int | None = None) -> bytes:
        r = self.rows.at(row)
        if r.offset >= 0:
            return super().part(row, start, end)
        if self.copied:  # only the whole content can be compared
            return self.many([row])[0][start:end]
        inner, its = self._asked(r)
        return inner.part(its, start, end)

    def many(self, rows: list[int]) -> list[bytes]:
        """Return the contents of several files."""
        contents = dict.fromkeys(rows, b"")
        asked: dict[int, list[int]] = {}
        for row in contents:
            r = self.rows.at(row)
            asked.setdefault(-1 if r.offset >= 0 else r.archive, []).append(row)
        for archive, ours in asked.items():
            if archive < 0:
                contents.update(zip(ours, super().many(ours), strict=True))
                continue
            found = [self._asked(self.rows.at(row)) for row in ours]
            contents.update(zip(ours, found[0][0].many([its for _, its in found]), strict=True))
            for row in ours if self.verifies else ():
                self._compare(row, contents[row], 0, len(contents[row]))
        return [contents[row] for row in rows]

    def _opened(self, volume: int) -> Object:
        """Open an archive. Its version is compared as soon as it is known: that takes no request of its own."""
        about = self.rows.archive(volume)
        obj: Object = self.rows.shelf.archive(about.address, self._external)
        compare = partial(self._same, volume, about)
        if isinstance(obj, WebObject):
            obj.on_version = compare
        elif not isinstance(obj, Folder):
            compare(obj)
        return obj

    def _same(self, archive: int, about: About, obj: Object) -> None:
        """Raise an error if an archive is not the version that is recorded."""
        if SEVERAL.fullmatch(about.version):
            return  # it is one of several objects
        now = obj.version
        if obj.size == about.size and (about.version in ("", now) or not now and obj.mtime_ns is None or bound.same_time(about.version, obj.mtime_ns)):
            return
        self._objects.pop(archive, None)  # it may be that version when it is opened again
        self._inner.pop(archive, None)
        shown = now or bound.time_text(obj.mtime_ns)
        raise StaleIndexError(obj.name, f"it has changed since it was added to {self.archive.name}: expected {about.size} bytes of version {about.version}, found {obj.size} of {shown}; 'holdall catalog add' records it anew")

    def _asked(self, r: Row) -> tuple[Reader, int]:
        """Return what reads an archive by its own index or the one beside it, and the file's row there."""
        inner = self._inner.get(r.archive)
        if inner is None:
            obj = self._opened(r.archive)
            if find(obj):
                raise UnsupportedError(self.archive.name, f"its archive {obj.name} is a catalogue", text(r.name))
            found = opening.find(obj, verify=self._verify, external=self._external)
            inner = self._inner.setdefault(r.archive, found.reader(found))
            if len(self._inner) > MAX_INNER:
                self._inner.pop(next(iter(self._inner)), None)
        its = inner.row(text(r.name))
        if inner.rows.size(its) != r.size:
            raise DamagedError(inner.archive.name, f"{inner.rows.size(its)} bytes, expected {r.size} as in {self.archive.name}", text(r.name))
        return inner, its
