"""The order of samples.

Reading samples at random is slow if many are stored together: on a server, on a turning disk, in compressed records. So
samples are shuffled in two steps. In stored order they are divided into blocks, and the blocks are shuffled. Then the
samples of a few blocks at a time are mixed. Reads are of whole blocks, and the result looks random.

An order depends only on its numbers, and is the same with any version of Python. Any part of it can be computed without
the parts before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from random import Random
from typing import Any

__all__ = ["Order", "part_of"]

MOST_LISTED = 1 << 20  # numbers of an exact order that are in memory; of more, each is computed


def part_of(whole: range, part: int, parts: int, unit: int = 1) -> range:
    """Return one of several parts of a range. They consist of units, and their lengths differ by at most one of them."""
    n = -(-len(whole) // unit)
    return whole[n * part // parts * unit : n * (part + 1) // parts * unit]


@dataclass(frozen=True)
class Order:
    """An order of the numbers from 0 to count. Its positions are numbered from 0 to count too."""

    count: int
    block: int  # samples in a block
    mix: int  # blocks in a window
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    exact: bool = False  # any sample may be at any position

    def windows(self, places: range, skip: int = 0) -> Iterator[list[int]]:
        """Yield the numbers at these positions except the first ones, in order. A list has numbers that are worth
        reading at once.
        """
        if not self.shuffle or self.exact:
            numbers = self._all()
            places, size = places[skip:], self.block * self.mix
            for i in range(0, len(places), size):
                some = places[i : i + size]
                yield list(numbers[some.start : some.stop])
            return
        start, runs = places.start, list[range]()
        for run in self._runs(places):
            runs.append(run)
            if len(runs) < self.mix:
                continue
            yield from self._mixed(start, runs, skip)
            n = sum(map(len, runs))
            start, skip, runs = start + n, max(0, skip - n), []
        yield from self._mixed(start, runs, skip)

    def _mixed(self, start: int, runs: list[range], skip: int) -> Iterator[list[int]]:
        if skip >= sum(map(len, runs)):
            return
        numbers = list(chain.from_iterable(runs))
        _shuffle(numbers, Random(self._key(f"window {start}")))
        yield numbers[skip:]

    def _runs(self, places: range) -> Iterator[range]:
        """Return what these positions contain of each block."""
        n, first = -(-self.count // self.block), places.start // self.block
        blocks = _shuffled(n, self._key("blocks"))
        at = first * self.block - (-self.count % self.block if n - 1 in blocks[:first] else 0)
        for number in islice(blocks, first, None):
            if at >= places.stop:
                return
            block = range(number * self.block, min((number + 1) * self.block, self.count))
            run = block[max(0, places.start - at) : places.stop - at]
            if run:
                yield run
            at += len(block)

    def _all(self) -> Sequence[int]:
        if not self.shuffle:
            return range(self.count)
        if self.count > MOST_LISTED:
            return _Permutation(self.count, Random(self._key("exact")))
        return _shuffled(self.count, self._key("exact"))

    def _key(self, what: str) -> str:
        return f"holdall {self.seed} {self.epoch} {what}"


class _Permutation(Sequence[int]):
    """A random order of the numbers from 0 to count, of which nothing is kept: a Feistel network.

    It maps the numbers of an even number of bits to each other. A result that is too large is mapped again.
    """

    def __init__(self, count: int, random: Random) -> None:
        self._count = count
        self._half = max(1, (count - 1).bit_length() + 1 >> 1)
        self._keys = [random.getrandbits(64) for _ in range(6)]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(self._count))]
        half, shift, mask = self._half, 64 - self._half, (1 << self._half) - 1
        while True:
            left, right = at >> half, at & mask
            for key in self._keys:
                x = (right ^ key) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
                x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & 0xFFFFFFFFFFFFFFFF
                left, right = right, left ^ x >> shift
            at = left << half | right
            if at < self._count:
                return at


@lru_cache(2)
def _shuffled(count: int, key: str) -> array[int]:
    """Return the numbers from 0 to count in an order. The last ones are kept, for who resumes in many places of it."""
    numbers = array("Q", range(count))
    _shuffle(numbers, Random(key))
    return numbers


def _shuffle(x: MutableSequence[int], random: Random) -> None:
    # random.shuffle may differ between versions of Python; random.random does not.
    number = random.random
    for i in range(len(x) - 1, 0, -1):
        j = int(number() * (i + 1))
        x[i], x[j] = x[j], x[i]
