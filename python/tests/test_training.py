"""Training in many processes: each sample once an epoch, whatever the number of ranks and workers, by simulation and with processes."""

import json
import os
import pickle
import random
import subprocess
import sys
import types
from itertools import chain, zip_longest

import pytest

from holdall import datasets
from holdall.datasets import Samples, Stream

LONG = int(os.environ.get("HOLDALL_LONG", "0"))
RANKS, WORKERS = 64, 8


class Numbers(Samples):
    """Samples that are numbers."""

    decode = None

    def __init__(self, count):
        self.count, self.archive = count, types.SimpleNamespace(near=True)

    def __reduce__(self):
        return Numbers, (self.count,)

    def __len__(self):
        return self.count

    def stored(self):
        return range(self.count)

    def read(self, numbers):
        return list(numbers)


def streams(count, world=RANKS, **how):
    return [Stream(Numbers(count), rank=rank, world=world, **how) for rank in range(world)]


def batches(stream, workers, monkeypatch, size):
    """Yield what a DataLoader with workers does: batches of the workers in turn."""
    each = []
    for worker in range(workers):
        copy = pickle.loads(pickle.dumps(stream))
        monkeypatch.setattr(datasets, "_worker", lambda: (worker, workers, 7))
        samples = list(copy)
        each.append([samples[at : at + size] for at in range(0, len(samples), size)])
    return (batch for turn in zip_longest(*each) for batch in turn if batch is not None)


WAYS = [{}, {"exact": True}, {"shuffle": False}]


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("count", [37, 5003, 512 * 10])
def test_each_sample_once_an_epoch(monkeypatch, count, even, how):
    """Over all ranks and workers. Even ranks leave out only the remainder, and others in each epoch."""
    left = []
    for epoch in range(3 + LONG):
        ours = streams(count, block=16, seed=epoch // 2, even=even, batch_size=5, **how)
        got = []
        for stream in ours:
            stream.set_epoch(epoch)
            some = list(batches(stream, WORKERS, monkeypatch, 5))
            assert len(some) == -(-len(stream) // 5) and sum(map(len, some)) == len(stream)
            got += chain(*some)
        lengths = {len(stream) for stream in ours}
        assert lengths == ({count // RANKS} if even else {count // RANKS, -(-count // RANKS)})
        assert len(set(got)) == len(got)
        left.append(frozenset(range(count)) - set(got))
        assert len(left[-1]) == (count % RANKS if even else 0)
    if left[0] and count > RANKS and how != {"shuffle": False}:
        assert len(set(left)) == len(left)


def test_even_ranks_leave_out_any_sample():
    """Also where all samples are in one block."""
    left = set()
    for epoch in range(200):
        got = []
        for stream in streams(20, 3, block=1024, even=True):
            stream.set_epoch(epoch)
            got += stream
        assert len(set(got)) == 18
        left |= set(range(20)) - set(got)
    assert len(left) >= 14  # all of the two ranks that have one more


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("seed", range(2 + LONG))
def test_an_epoch_goes_on_with_other_ranks_and_workers(monkeypatch, how, even, seed):
    rnd, count = random.Random(seed), 5003
    sizes = [(RANKS, WORKERS), (48, 5), (1, 3), (7, 1), (RANKS, WORKERS)]
    got, states = [], []
    for phase, (world, workers) in enumerate(sizes, 1):
        ours = streams(count, world, block=16, seed=seed, even=even, batch_size=4, **how)
        for stream in ours:
            if states:
                stream.load_state_dict(states)
            else:
                stream.set_epoch(3)
        states = []
        for stream in ours:
            some = list(batches(stream, workers, monkeypatch, 4))
            taken = len(some) if phase == len(sizes) or rnd.random() < 0.1 else rnd.randrange(len(some) // 3 + 1)
            got += chain(*some[:taken])
            states.append(json.loads(json.dumps(stream.state_after(taken, 4, workers))))
    assert len(set(got)) == len(got)
    assert len(got) == count if not even else count - sum(world - 1 for world, _ in sizes) <= len(got) <= count


def gaps(parts, start, stop):
    """How many numbers of a range are in none of the parts, which do not overlap."""
    ends = sorted((part.start, part.stop) for part in parts if part)
    between = [after - before for (_, before), (after, _) in zip([(0, start), *ends], [*ends, (stop, 0)])]
    assert min(between) >= 0
    return sum(between)


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_a_hundred_million_samples(even, exact):
    """By their places, because there are too many to list."""
    count, size, places, states, left = 100_000_019, 32, [], [], {}
    ours = streams(count, block=50_000, seed=1, exact=exact, even=even, batch_size=size)
    rnd, order, taken = random.Random(1), ours[0]._order, 0
    for stream in ours:
        pieces = list(chain(*stream._workers(WORKERS)))
        assert [p.start for p in pieces] == [0] * WORKERS and sum(p.stop for p in pieces) == len(stream)
        assert all(p.stop % size == 0 for p in pieces[:-1])
        places += [range(p.first, p.last) for p in pieces]
        states.append(stream.state_after(n := rnd.randrange(40_000), size, WORKERS))
        taken += n * size
    assert gaps(places, 0, count) == 0
    assert {len(stream) for stream in ours} == ({count // RANKS} if even else {count // RANKS, count // RANKS + 1})
    if exact:
        numbers = order._all()
        some = [numbers[place] for part in places for place in rnd.sample(part, 40)]
        assert len(set(some)) == len(some) and max(some) < count
    else:
        runs = [list(order._runs(part)) for part in places]
        assert gaps(chain(*runs), 0, count) == 0
        for part, run in list(zip(places, runs))[::50]:
            assert sorted(next(order.windows(part))) == sorted(chain(*run[: order.mix]))
    # The rest, with other ranks and workers.
    rest = []
    for stream in streams(count, 48, block=50_000, seed=1, exact=exact, even=even, batch_size=size):
        stream.load_state_dict(states)
        rest.append(list(chain(*stream._workers(5))))
        for p in rest[-1]:
            left.setdefault((p.first, p.last), []).append(range(p.start, p.stop))
    lengths = {sum(p.stop - p.start for p in pieces) for pieces in rest}
    assert len(lengths) == 1 if even else max(lengths) - min(lengths) <= 1
    lost = count - taken - sum(map(len, chain(*left.values())))
    assert 0 <= lost < RANKS + 48 if even else lost == 0
    for parts in left.values():
        gaps(parts, parts[0].start, parts[-1].stop)


TRAIN = """
import json, sys
sys.path[:0] = {path!r}
import torch
from torch.utils.data import DataLoader
from holdall.datasets import Samples, Stream

if __name__ == "__main__":
    archive, folder, most, even, rank, world, start = sys.argv[1:]
    if torch.__version__:
        import torch.distributed
        torch.distributed.init_process_group("gloo", init_method="file://" + folder + "/meet", rank=int(rank), world_size=int(world))
    stream = Stream(Samples(archive), seed=4, block=20, batch_size=8, even=even == "even")
    if start != "new":
        with open(start) as f:
            stream.load_state_dict(json.load(f))
    got = []
    loader = DataLoader(stream, 8, num_workers=4, collate_fn=lambda batch: [name for name, _ in batch])
    for batches, batch in enumerate(loader, 1):
        got.append(batch)
        if batches == int(most):
            break
    json.dump([len(loader), got, stream.state_after(len(got), 8, 4)], sys.stdout)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.parametrize("even", ["all", "even"])
def test_four_ranks_of_four_workers(pack, tmp_path, even):
    """Processes, with torch's own DataLoader and torch.distributed if that is installed."""
    files = {f"{n % 7}/{n:04}": b"%d" % n for n in range(1001)}
    archive = pack(files, "x.caf")
    (tmp_path / "train.py").write_text(TRAIN.format(path=sys.path))

    def train(most, start, world=4):
        (folder := tmp_path / f"{most}-{world}").mkdir()
        of = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)} for rank in range(world)]
        args = [[sys.executable, tmp_path / "train.py", archive, folder, str(most), even, str(rank), str(world), start] for rank in range(world)]
        running = [subprocess.Popen(a, env=env, stdout=subprocess.PIPE) for a, env in zip(args, of)]
        said = [json.loads(process.communicate()[0]) for process in running]
        assert not any(process.returncode for process in running)
        (tmp_path / f"states-{most}").write_text(json.dumps([state for _, _, state in said]))
        return [(length, batches) for length, batches, _ in said]

    whole = train(1000, "new")
    assert all(length == len(batches) for length, batches in whole)
    assert [sum(map(len, b)) for _, b in whole] == ([250] * 4 if even == "even" else [250, 250, 250, 251])
    names = [name for _, batches in whole for batch in batches for name in batch]
    assert len(set(names)) == len(names) and set(names) <= set(files)
    begun = train(9, "new")
    assert [batches for _, batches in begun] == [batches[:9] for _, batches in whole]
    rest = train(999, str(tmp_path / "states-9"), 3)
    got = [name for _, batches in [*begun, *rest] for batch in batches for name in batch]
    assert len(set(got)) == len(got)
    assert len(got) == 1001 if even == "all" else 1001 - 3 <= len(got) <= 1001
