"""Archives as datasets for training.

    samples = Samples("photos.caf", grouped=True)
    samples[0]                              # {"__key__": "2026/a", "jpg": b"…", "json": b"…"}

    stream = Stream(samples, seed=1)        # shuffled, shared among ranks and workers
    for sample in DataLoader(stream, num_workers=8): ...

:class:`Samples` is a map-style dataset, :class:`Stream` an iterable dataset, and :class:`Sampler` the order of a stream
for loaders that use numbers. They work in torch's DataLoader, and without torch. To decode contents, pass a function as
decode.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate, chain, islice
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from . import open as _open
from .archive import Archive
from .errors import NotFoundError, UnsupportedError
from .order import Order, part_of

if TYPE_CHECKING:
    _Iterable = object
else:
    try:  # DataLoader recognises a stream by its class.
        from torch.utils.data import IterableDataset as _Iterable
    except ImportError:
        _Iterable = object

__all__ = ["Sampler", "Samples", "Stream"]

# A block of samples has about this many bytes, and at most this many samples.
BLOCK_BYTES = 4 << 20
MOST_IN_BLOCK = 4096
AT_ONCE = 8  # blocks that are read ahead


class Samples:
    """The samples of an archive, by number.

    A sample is a file, as (name, content). If grouped is True, it is all files of a folder whose names are equal up to
    the first dot, as {"__key__": "folder/name", "jpg": content, …}. A file without a dot is a sample of its own, whose
    content is under "".

    archive is an archive, or what :func:`holdall.open` accepts, also a list of archives or a pattern. With folder, only files in that folder and below it are
    samples. decode is called with each sample, and its result is used instead of the sample.
    """

    def __init__(
        self,
        archive: Archive | str | os.PathLike[str] | Sequence[Any],
        *,
        folder: str = "",
        grouped: bool = False,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        if not isinstance(folder, str) or decode is not None and not callable(decode):
            raise TypeError(f"folder={folder!r}, decode={decode!r}: expected the name of a folder, and a function")
        self.archive = archive if isinstance(archive, Archive) else _open(archive)
        self.folder, self.grouped, self.decode = folder.strip("/"), grouped, decode
        self._find()

    def _find(self) -> None:
        """Find the files, or the first file of each group."""
        self._runs = self.archive.ranges(self.folder)
        self._ends = list(accumulate(map(len, self._runs)))
        if not any(self._ends):
            raise NotFoundError(self.archive.address, "there are no files" + " in this folder" * bool(self.folder), self.folder or None)
        self._stored: Sequence[int] | None = None
        self._firsts: array[int] | None = None
        if self.grouped:
            self._firsts = array("Q")
            last = ""
            names = map(self.archive.name, chain(*self._runs)) if self.folder else iter(self.archive)
            parted: set[str] = set()  # keys between whose files a folder may be, in a catalogue
            for at, name in enumerate(names):
                key, kind = _split(name)
                if key != last or not kind:
                    self._firsts.append(at)
                    if last and name.startswith(last + "."):
                        parted.add(last)
                    if key in parted:
                        raise UnsupportedError(self.archive.address, "a folder is between the files of this sample, so they are not together", key)
                last = key if kind else ""

    def __len__(self) -> int:
        return self._ends[-1] if self._firsts is None else len(self._firsts)

    def __repr__(self) -> str:
        folder = f", folder={self.folder!r}" if self.folder else ""
        return f"<holdall.datasets.Samples {len(self)} of {self.archive.address!r}{folder}{', grouped' if self.grouped else ''}>"

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return several samples. Files that are stored close together are read together."""
        return [self.decoded(sample) for sample in self.read(numbers)]

    def read(self, numbers: Sequence[int]) -> list[Any]:
        """Return samples without decoding them."""
        files = [self.files(number) for number in numbers]
        contents = iter(self.archive.read_many([file for some in files for file in some]))
        if self._firsts is None:
            return [(self.archive.name(file), next(contents)) for (file,) in files]
        samples = []
        for some in files:
            names = [_split(self.archive.name(file)) for file in some]
            samples.append({"__key__": names[0][0]} | {kind: next(contents) for _, kind in names})
        return samples

    def decoded(self, sample: Any) -> Any:
        """Return the result of decode for a sample."""
        return sample if self.decode is None else self.decode(sample)

    def files(self, number: int) -> list[int]:
        """Return the numbers of a sample's files in the archive."""
        count = len(self)
        if not -count <= index(number) < count:
            raise IndexError(f"sample {number} of {count}")
        number %= count
        if self._firsts is None:
            return [self._file(number)]
        end = self._firsts[number + 1] if number + 1 < count else self._ends[-1]
        return [self._file(at) for at in range(self._firsts[number], end)]

    def _file(self, at: int) -> int:
        run = bisect_right(self._ends, at)
        return self._runs[run][at - self._ends[run]]

    def stored(self) -> Sequence[int]:
        """Return the numbers of the samples in stored order."""
        if self._stored is None:
            files = self.archive.stored()
            self._stored = range(len(self))
            if self._firsts is None and not self.folder:
                self._stored = files  # each file is a sample
            elif not isinstance(files, range):
                place = array("Q", bytes(8 * len(files)))
                for at, file in enumerate(files):
                    place[file] = at
                self._stored = array("Q", sorted(self._stored, key=lambda number: place[self.files(number)[0]]))
        return self._stored

    def block(self) -> int:
        """Return the number of samples that one read should fetch."""
        mean = self.archive.bytes // max(1, len(self.archive)) * self._ends[-1] // max(1, len(self))
        return min(max(1, BLOCK_BYTES // max(1, mean)), MOST_IN_BLOCK)

    def __getstate__(self) -> dict[str, Any]:
        # A worker finds the rest itself, because an address is shorter than a list of files.
        return {key: getattr(self, key) for key in ("archive", "folder", "grouped", "decode")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find()


def _split(name: str) -> tuple[str, str]:
    """Return the key by which samples are grouped, and the rest: ("a/b", "tar.gz") for "a/b.tar.gz"."""
    base = name.rfind("/") + 1
    while name.startswith(".", base):
        base += 1
    dot = name.find(".", base)
    return (name, "") if dot < 0 else (name[:dot], name[dot + 1 :])


class _Piece(NamedTuple):
    """Of the samples at the positions from first to last, in their order, those from start to stop."""

    first: int
    last: int
    start: int
    stop: int


_Pieces = list[_Piece]
_Left = list[_Pieces | None]  # what each worker has left; None for workers that are other processes


def _count(pieces: _Pieces) -> int:
    return sum(p.stop - p.start for p in pieces)


def _cut(pieces: _Pieces, part: range) -> _Pieces:
    """Return a part of several consecutive pieces."""
    found, at = [], 0
    for p in pieces:
        low, high = max(part.start - at, 0) + p.start, min(part.stop - at + p.start, p.stop)
        if low < high:
            found.append(_Piece(p.first, p.last, low, high))
        at += p.stop - p.start
    return found


def _left(state: dict[str, Any]) -> _Left | None:
    """Return what workers have left according to a state, which may come from JSON."""
    left: list[Any] | None = state["left"]
    return None if left is None else [None if pieces is None else [_Piece(*p) for p in pieces] for pieces in left]


def _together(left: _Left) -> _Pieces:
    """Return what all workers have left."""
    if None in left:
        raise ValueError(f"state of one worker of {len(left)}, of which there must be as many again")
    return [p for pieces in left for p in pieces or ()]


@dataclass
class _Pass:
    """A pass over a worker's part of an epoch."""

    epoch: int
    worker: int
    workers: int
    pieces: _Pieces  # all samples of the pass
    taken: int = 0
    ended: bool = False

    def left(self, taken: int) -> _Pieces:
        """Return what remains after that many samples."""
        return _cut(self.pieces, range(taken, _count(self.pieces)))


class _Ordered:
    """What a stream and a sampler share: an order of samples, a rank's part of it, and a position in that part."""

    _batch = 1  # samples that one worker gives

    def __init__(
        self,
        samples: Any,
        *,
        shuffle: bool = True,
        exact: bool = False,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        even: bool = False,
        block: int | None = None,
        mix: int = 8,
    ) -> None:
        if not isinstance(samples, Samples):
            samples = Samples(samples)  # an archive, or what stands for one
        block = samples.block() if block is None else block
        if rank is None and world is None:
            rank, world = _rank()
        elif rank is None or world is None:
            raise ValueError(f"rank {rank}, world {world}: expected both, or neither to take them from the environment")
        _check(0, rank=rank)
        _check(1, world=world, block=block, mix=mix)
        if rank >= world:
            raise ValueError(f"rank={rank}, world={world}: expected a rank below {world}")
        self.samples = samples
        samples.stored()  # before workers are forked, so that they need not do it
        self._order = Order(len(samples), block, mix, seed, 0, shuffle, exact)
        self._rank, self._world, self._even = rank, world, even
        self._passes = _Passes()
        self._pass: _Pass | None = None
        self._resume: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self._part(self._order.count, self._rank, self._world))

    def __repr__(self) -> str:
        return f"<holdall.datasets.{type(self).__name__} {len(self)} of {self.samples!r}, rank {self._rank} of {self._world}>"

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass. By default it is the one after the last pass."""
        self._pass = None
        if self._passes.begun() or self._resume is not None and self._resume["epoch"] != epoch:
            self._resume = None
        self._passes.set(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the last pass for load_state_dict. It can be stored as JSON."""
        p = self._pass
        if p is None or p.ended:
            resume = None if self._passes.begun() else self._resume
            return resume or self._state(self._passes.next(), None)
        return self._state(p.epoch, [p.left(p.taken) if worker == p.worker else None for worker in range(p.workers)])

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Continue the next pass at that state, with any number of workers. Given the states of all ranks, the number
        of ranks may change too.
        """
        states = [state] if isinstance(state, dict) else list(state)
        if not states or not all(isinstance(state, dict) and {"order", "epoch", "left"} <= state.keys() for state in states):
            raise ValueError("expected what state_dict or state_after has returned, or a list of that")
        mine = self._settings()
        for key in mine.keys() - {"rank", "world"}:
            for theirs in (state["order"].get(key) for state in states):
                if theirs != mine[key]:
                    raise ValueError(f"state of another order: {key} is {mine[key]!r} here, {theirs!r} there")
        found = [state for state in states if state["order"] == mine] or [self._joined(states)]
        self._pass, self._resume = None, found[0]
        self._passes.set(found[0]["epoch"])

    def _joined(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the state of this rank from those of all ranks, whose number was different."""
        epoch = min(state["epoch"] for state in states)
        if all(state["left"] is None and state["epoch"] == epoch for state in states):
            return self._state(epoch, None)
        states.sort(key=lambda state: int(state["order"]["rank"]))
        ranks = [(state["order"]["rank"], state["order"]["world"]) for state in states]
        if ranks != [(rank, len(states)) for rank in range(len(states))]:
            there = ", ".join(f"{rank} of {world}" for rank, world in ranks)
            raise ValueError(f"state of rank {there}: rank {self._rank} of {self._world} needs the states of all ranks there were")
        pieces: _Pieces = []
        for rank, state in enumerate(states):
            if state["epoch"] == epoch:
                pieces += _together(_left(state) or self._fresh(rank, len(states), 1))
            elif state["epoch"] != epoch + 1 or state["left"] is not None:  # it has not just finished the epoch
                raise ValueError(f"states of epochs {epoch} and {state['epoch']}")
        return self._state(epoch, [_cut(pieces, self._part(_count(pieces), self._rank, self._world))])

    def _state(self, epoch: int, left: _Left | None) -> dict[str, Any]:
        return {"order": self._settings(), "epoch": epoch, "left": left}

    def _settings(self) -> dict[str, Any]:
        settings = vars(self._order) | {"rank": self._rank, "world": self._world, "even": self._even}
        del settings["epoch"]
        return settings

    def _part(self, count: int, rank: int, world: int) -> range:
        """Return a rank's part of that many samples."""
        return part_of(range(count), rank, world)[: count // world if self._even else None]

    def _fresh(self, rank: int, world: int, workers: int) -> _Left:
        """Return what each worker of a rank has at the start of an epoch. The last one mixes a sample that is left out,
        so that it is any of them.
        """
        count = self._order.count
        more = len(part_of(range(count), rank, world)) - len(part := self._part(count, rank, world))
        parts = [part_of(part, worker, workers, self._batch) for worker in range(workers)]
        return [[_Piece(p.start, p.stop + (more if p is parts[-1] else 0), 0, len(p))] for p in parts]

    def _workers(self, workers: int) -> _Left:
        """Return what each worker has in the next pass."""
        left = _left(self._resume) if self._resume is not None and self._passes.begun() < 2 else None
        if left is None:
            return self._fresh(self._rank, self._world, workers)
        if len(left) == workers:
            return left
        pieces = _together(left)
        return [_cut(pieces, part_of(range(_count(pieces)), worker, workers, self._batch)) for worker in range(workers)]

    def _begin(self, worker: int, workers: int, seed: int | None) -> _Pass:
        epoch, first = self._passes.begin(seed)
        if not first:
            self._resume = None
        pieces = self._workers(workers)[worker]
        if pieces is None:
            raise ValueError(f"state without worker {worker}")
        self._pass = _Pass(epoch, worker, workers, pieces)
        return self._pass

    def _windows(self, p: _Pass) -> Iterator[list[int]]:
        """Yield the samples of a pass by their places in stored order, in groups that are worth reading at once."""
        order = replace(self._order, epoch=p.epoch)
        for piece in p.pieces:
            left = piece.stop - piece.start
            for window in order.windows(range(piece.first, piece.last), piece.start):
                yield window[:left]
                left -= len(window)
                if left <= 0:
                    break


class _Passes:
    """Counts the passes over a stream since its epoch was set.

    All processes that multiprocessing starts with the stream share the count, in memory that has no name. So the workers
    of each epoch know which one it is, and those that live on learn of an epoch that is set. Each loader gives all its
    workers one random number, the seed: those with the same seed are in the same pass.

    In memory are the epoch, and the number and the key of the last two passes, each with their sum. The first worker
    that begins a pass writes it. Several may do that at once, because they write the same.
    """

    def __init__(self) -> None:
        self.__setstate__([0] * 7)

    def __getstate__(self) -> Any:
        return self._shared if get_spawning_popen() else self._shared[:]

    def __setstate__(self, state: Any) -> None:
        self._mine: dict[int, int] = {}  # how often each seed was seen here
        self._shared = state
        if isinstance(state, list):
            with suppress(OSError):  # where there is no place for it, there are no workers either
                self._shared = RawArray("q", state)

    def set(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self._shared[:] = [epoch, *[0] * 6]

    def _last(self) -> tuple[int, int, int]:
        """Return the epoch that was set, and the number and the key of the last pass."""
        epoch, *n = self._shared[:]
        return epoch, *max((n[i], n[i + 1]) if n[i] + n[i + 1] == n[i + 2] else (0, 0) for i in (0, 3))

    def begin(self, seed: int | None) -> tuple[int, bool]:
        """Return the epoch of the next pass, and whether it is the first one. A worker has a seed."""
        self._mine[seed or 0] = again = self._mine.get(seed or 0, 0) + 1
        text = f"{seed} {again}" if seed is not None else f"{again} {os.getpid()} {id(self)}"
        key = int.from_bytes(sha256(text.encode()).digest()[:7], "big")
        epoch, number, last = self._last()
        if key != last:
            number += 1
            at = 1 + 3 * (number % 2)
            self._shared[at : at + 3] = [number, key, number + key]
        return epoch + number - 1, number == 1

    def begun(self) -> int:
        """Return how many passes have begun."""
        return self._last()[1]

    def next(self) -> int:
        """Return the epoch of the next pass."""
        epoch, number, _ = self._last()
        return epoch + number


class Sampler(_Ordered):
    """The order of a :class:`Stream`, as numbers, for loaders that use a sampler. It has the arguments of a stream."""

    def __iter__(self) -> Iterator[int]:
        p, stored = self._begin(0, 1, None), self.samples.stored()
        for place in chain.from_iterable(self._windows(p)):
            p.taken += 1
            yield stored[place]
        p.ended = True

    def state_after(self, samples: int) -> dict[str, Any]:
        """Return the state after that many samples have been taken from a loader, which requests numbers in advance."""
        if self._pass is None:
            raise ValueError("no pass has begun")
        return self._state(self._pass.epoch, [self._pass.left(samples)])


class Stream(_Ordered, _Iterable):
    """Samples in a shuffled order, read many at a time. It is an iterable dataset; the workers of a DataLoader return
    each sample once.

        samples       a :class:`Samples`
        shuffle       False: stored order
        exact         any sample may be at any position; slow if reads are remote or contents compressed
        seed          selects one of all orders
        rank, world   each rank gets a part: all have the same length, or one more; by default those of torch.distributed
                      or of the environment (RANK, WORLD_SIZE)
        even          all ranks get the same length; the rest is left out, a different one in each epoch
        block         number of samples that stay together, by default about 4 MiB
        mix           number of blocks that are mixed with each other; that many are in memory at once
        ahead         how often that is read ahead, by threads; by default 2 if the archive is on a server, else 0
        batch_size    that of the DataLoader: workers share whole batches, so that len(loader) is true
    """

    def __init__(self, samples: Any, *, ahead: int | None = None, batch_size: int = 1, **how: Any) -> None:
        super().__init__(samples, **how)
        self._batch, self._ahead = batch_size, (0 if self.samples.archive.near else 2) if ahead is None else ahead
        _check(1, batch_size=batch_size)
        _check(0, ahead=self._ahead)

    def __iter__(self) -> Iterator[Any]:
        p = self._begin(*_worker())
        for samples in self._read(self._windows(p)):
            samples.reverse()
            while samples:
                p.taken += 1
                yield self.samples.decoded(samples.pop())
        p.ended = True

    def _read(self, windows: Iterator[list[int]]) -> Iterator[list[Any]]:
        """Read windows, and some before they are wanted: by neighbours, so that always some are on their way while others
        are compared.
        """
        stored, size = self.samples.stored(), self._order.block

        def read(places: list[int]) -> list[Any]:
            samples: list[Any] = self.samples.read([stored[place] for place in places])
            return samples

        def begin(window: list[int]) -> tuple[list[int], list[int], list[Future[list[Any]]]]:
            places = sorted(window)
            return window, places, [pool.submit(read, places[i : i + size]) for i in range(0, len(places), size)]

        if not self._ahead:
            yield from map(read, windows)
            return
        pool = ThreadPoolExecutor(AT_ONCE, "holdall-ahead")
        try:
            coming = deque(map(begin, islice(windows, self._ahead)))
            while coming:
                window, places, reads = coming.popleft()
                coming.extend(map(begin, islice(windows, 1)))
                found = dict(zip(places, chain.from_iterable(some.result() for some in reads)))
                yield list(map(found.pop, window))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def state_after(self, batches: int, batch_size: int, workers: int, drop_last: bool = False) -> dict[str, Any]:
        """Return the state after that many batches have come from a DataLoader with workers, since it was created.

        Only the workers know what they have read. But batches come from the workers in turn, so the number of samples
        of each worker is known here.
        """
        workers = workers or 1
        pieces = [pieces or [] for pieces in self._workers(workers)]
        taken, left = [0] * workers, list(map(_count, pieces))
        smallest = batch_size if drop_last else 1
        while batches and max(left) >= smallest:
            for worker in range(workers):
                if batches and left[worker] >= smallest:
                    n = min(left[worker], batch_size)
                    taken[worker], left[worker], batches = taken[worker] + n, left[worker] - n, batches - 1
        return self._state(self._passes.next() - min(self._passes.begun(), 1), [_cut(p, range(t, _count(p))) for p, t in zip(pieces, taken)])


def _check(least: int, **numbers: Any) -> None:
    for name, value in numbers.items():
        if not hasattr(value, "__index__") or value < least:
            raise ValueError(f"{name}={value!r}: expected a whole number from {least} on")


def _rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of ranks: from torch.distributed, or from the environment."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
            if (several := os.environ.get(name, "1")) != "1":
                raise ValueError(f"{name}={several}, but RANK and WORLD_SIZE are not in the environment: set them, or pass rank= and world=; rank=0, world=1 reads everything")
        return 0, 1
    if not (rank and world and rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(f"RANK={rank} and WORLD_SIZE={world} in the environment: expected a rank below the world size; rank=0, world=1 reads everything")
    return int(rank), int(world)


def _worker() -> tuple[int, int, int | None]:
    """Return which worker of a DataLoader this process is, the number of workers, and what is random for all of them."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data is not None else None
    return (0, 1, None) if info is None else (info.id, info.num_workers, info.seed - info.id)
