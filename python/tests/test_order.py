"""Orders of samples: complete, shared without gaps, and the same everywhere."""

import random
import zlib
from itertools import chain

import pytest

from holdall import order
from holdall.order import Order, part_of


def numbers(order, places=None, skip=0):
    return list(chain.from_iterable(order.windows(range(order.count) if places is None else places, skip)))


ways = [{"shuffle": False}, {"shuffle": True}, {"shuffle": True, "exact": True}]


@pytest.mark.parametrize("way", ways)
@pytest.mark.parametrize("seed", range(40))
def test_each_number_comes_once_in_any_parts(way, seed):
    rnd = random.Random(seed)
    order = Order(rnd.randint(0, 500), rnd.randint(1, 60), rnd.randint(1, 9), seed, rnd.randint(0, 3), **way)
    parts = rnd.randint(1, 9)
    shares = [part_of(range(order.count), i, parts) for i in range(parts)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    got = [numbers(order, share) for share in shares]
    assert sorted(chain.from_iterable(got)) == list(range(order.count))
    for share, whole in zip(shares, got):
        skip = rnd.randint(0, len(share) + 1)
        assert numbers(order, share, skip) == whole[skip:]


@pytest.mark.parametrize("way", ways)
def test_windows_are_bounded(way):
    order = Order(1000, 7, 4, **way)
    assert max(map(len, order.windows(range(1000)))) <= 28


def test_without_shuffle_numbers_come_in_order():
    assert numbers(Order(100, 7, 4, shuffle=False)) == list(range(100))


def test_a_window_has_few_runs_of_neighbours():
    """What is read at once are whole blocks."""
    for window in Order(100_000, 100, 8).windows(range(100_000)):
        window = sorted(window)
        assert sum(b - a != 1 for a, b in zip(window, window[1:])) < 8


@pytest.mark.parametrize("way", ways[1:])
def test_seeds_and_epochs_differ(way):
    orders = {tuple(numbers(Order(200, 10, 3, seed, epoch, **way))) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_an_order_looks_like_chance():
    """Over many epochs, each sample comes at all places alike: the mean of each tenth of
    the places, over 400 epochs, is near the middle."""
    sums = [0] * 100
    for epoch in range(400):
        for place, number in enumerate(numbers(Order(100, 5, 4, 1, epoch))):
            sums[place] += number
    # The deviation of a mean of 400 even numbers below 100 is 1.44.
    assert all(abs(s / 400 - 49.5) < 6 * 1.44 for s in sums)


def test_orders_stay_what_they_are():
    """Who resumes with another version must get the same order."""
    assert numbers(Order(12, 3, 2, 7, 1)) == ORDER
    assert numbers(Order(12, 3, 2, 7, 1, exact=True)) == EXACT
    all = numbers(Order(100_000, 64, 8, 42, 3))
    assert zlib.crc32(",".join(map(str, all)).encode()) == SUM


ORDER = [1, 7, 0, 2, 6, 8, 11, 4, 10, 5, 3, 9]
EXACT = [9, 3, 5, 0, 6, 1, 2, 11, 7, 4, 10, 8]
SUM = 1246255076


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 4096, 4097])
def test_an_exact_order_that_is_not_kept(monkeypatch, count):
    monkeypatch.setattr(order, "MOST_LISTED", 0)
    for seed in range(5):
        o = Order(count, 4, 2, seed, 0, True, True)
        got = [n for w in o.windows(range(count)) for n in w]
        assert sorted(got) == list(range(count))
        assert [n for w in o.windows(range(count // 3, count), 5) for n in w] == got[count // 3 + 5 :]
    if count > 1000:  # each place is as likely for each number
        places = [0] * 16
        for seed in range(400):
            got = order._Permutation(count, random.Random(seed))
            places[got[7] * 16 // count] += 1
        assert max(places) < 60 and min(places) > 5, places


def test_an_exact_order_of_a_hundred_million_takes_no_memory():
    o = Order(100_000_000, 4096, 8, 1, 0, True, True)
    first = next(o.windows(range(50_000_000, 100_000_000)))
    assert len(set(first)) == len(first) == 8 * 4096 and max(first) < 100_000_000
