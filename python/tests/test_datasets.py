"""Datasets: each sample once an epoch, in any number of processes, however they were started, killed or resumed."""

import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import types
from itertools import islice

import pytest
from torch.utils.data import DataLoader

import holdall
from holdall.datasets import Sampler, Samples, Stream

STARTS = [s for s in ("fork", "spawn", "forkserver") if hasattr(os, "fork") or s == "spawn"]


def names(samples):
    """What DataLoader makes of a batch here."""
    return [name for name, _ in samples]


def content(number):
    return b"%d " % number * (1 + number % 300)


@pytest.fixture(scope="module")
def files():
    return {f"{number % 7}/{number:04}.bin": content(number) for number in range(1000)}


@pytest.fixture
def archive(pack, files):
    return pack(files, "x.caf")


@pytest.fixture
def threads():
    """Threads that run while others fork."""
    ended = threading.Event()
    running = [threading.Thread(target=lambda: [ended.wait(0.001) for _ in iter(ended.is_set, True)]) for _ in range(4)]
    for thread in running:
        thread.start()
    yield
    ended.set()
    for thread in running:
        thread.join()


def test_samples_are_files(archive, files):
    samples = Samples(archive)
    assert len(samples) == 1000
    assert dict(samples[i] for i in range(1000)) == files
    assert samples[-1] == samples[999]
    assert samples.__getitems__([5, 3, 3]) == [samples[5], samples[3], samples[3]]
    for number in (1000, -1001):
        with pytest.raises(IndexError):
            samples[number]


def test_samples_of_a_folder(pack):
    a = pack({"a/1": b"1", "a/b/2": b"2", "a-b/3": b"3", "ab/4": b"4", "5": b"5"}, "x.caf")
    assert {name for name, _ in Samples(a, folder="a/")} == {"a/1", "a/b/2"}
    assert [name for name, _ in Samples(a, folder="a/b")] == ["a/b/2"]
    with pytest.raises(holdall.NotFoundError, match="'nowhere': there are no files in this folder"):
        Samples(a, folder="nowhere")
    with pytest.raises(holdall.NotFoundError, match="no archive: there are no files"):
        Samples([])
    for name, value in [("folder", 5), ("decode", "json")]:
        with pytest.raises(TypeError, match=f"{name}={value!r}"):
            Samples(a, **{name: value})


def test_groups(pack):
    a = pack(
        {
            "a/1.jpg": b"j1",
            "a/1.json": b"s1",
            "a/1.seg.png": b"p1",
            "a/1-b.jpg": b"jb",
            "a/10.jpg": b"j10",
            "b/1.jpg": b"other folder",
            "b/README": b"alone",
            "b/README.txt": b"text",
            "b/.hidden": b"h",
            "b/.x.jpg": b"xj",
            "b/.x.json": b"xs",
        },
        "x.caf",
    )
    samples = Samples(a, grouped=True)
    found = {(s.pop("__key__"), *sorted(s)): s for s in samples}
    assert found == {
        ("a/1", "jpg", "json", "seg.png"): {"jpg": b"j1", "json": b"s1", "seg.png": b"p1"},
        ("a/1-b", "jpg"): {"jpg": b"jb"},
        ("a/10", "jpg"): {"jpg": b"j10"},
        ("b/1", "jpg"): {"jpg": b"other folder"},
        ("b/README", ""): {"": b"alone"},
        ("b/README", "txt"): {"txt": b"text"},
        ("b/.hidden", ""): {"": b"h"},
        ("b/.x", "jpg", "json"): {"jpg": b"xj", "json": b"xs"},
    }
    assert len(Samples(a, grouped=True, folder="b")) == 5
    stream = Stream(samples, block=2, mix=2)
    assert sorted(s["__key__"] for s in stream) == sorted(s["__key__"] for s in samples)


def test_decoders_are_the_callers(archive):
    def decode(sample):
        return len(sample[1])

    plain, decoded = Samples(archive), Samples(archive, decode=decode)
    assert [len(data) for _, data in plain] == list(decoded)
    assert sorted(Stream(decoded)) == sorted(decoded)


def test_a_stream_reads_blocks(archive, files):
    """A shuffled epoch is read by runs of neighbours, not by files."""
    a = holdall.open(archive)
    samples = Samples(a)
    asked = []
    many = a.read_many
    a.read_many = lambda numbers: asked.append(list(numbers)) or many(numbers)
    stream = Stream(samples, block=50, mix=4)
    assert {name: data for name, data in stream} == files
    assert len(asked) == 5 and all(len(numbers) == 200 for numbers in asked)
    stored = {file: place for place, file in enumerate(a.stored())}
    for numbers in asked:
        places = sorted(stored[n] for n in numbers)
        assert sum(b - a != 1 for a, b in zip(places, places[1:])) < 4


def test_stored_order_is_taken_from_the_archive(holdall_command, tmp_path):
    """Neighbours are what lies together, whatever it is called."""
    order = [f"{n:03}" for n in range(200)]
    random.Random(1).shuffle(order)
    for name in order:
        (tmp_path / name).write_bytes(name.encode())
    out = tmp_path / "out"
    out.mkdir()
    command = [holdall_command, "pack", "--no-sync", "-q", "-o", str(out / "x.caf"), "--files-from", "-"]
    subprocess.run(command, cwd=tmp_path, input="\n".join(order).encode(), check=True)
    samples = Samples(out / "x.caf")
    assert [name for name, _ in Stream(samples, shuffle=False)] == order
    window = list(islice(Stream(samples, block=10, mix=1), 10))
    places = sorted(order.index(name) for name, _ in window)
    assert places == list(range(places[0], places[0] + 10))


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_ranks_share_an_epoch(archive, files, even, exact):
    samples = Samples(archive)
    how = {"seed": 3, "world": 3, "block": 11, "exact": exact, "even": even}
    epochs = []
    for epoch in range(3):
        got = []
        for rank in range(3):
            stream = Stream(samples, rank=rank, **how)
            stream.set_epoch(epoch)
            got.append([name for name, _ in stream])
            assert len(got[-1]) == len(stream)
        lengths = list(map(len, got))
        assert lengths == ([333] * 3 if even else [333, 333, 334])
        all = [name for part in got for name in part]
        assert len(set(all)) == len(all)
        epochs.append(all)
    assert epochs[0] != epochs[1] != epochs[2]
    assert set().union(*epochs) == set(files)


def test_ranks_come_from_the_environment(archive, files, monkeypatch):
    samples = Samples(archive)
    got = []
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        stream, sampler = Stream(samples, seed=1), Sampler(samples, seed=1)
        got += names(stream)
        assert len(stream) == len(sampler) == 250 and names(samples[n] for n in sampler) == got[-250:]
    assert sorted(got) == sorted(files)
    assert len(Stream(samples, rank=0, world=1)) == 1000  # what is given counts
    # torch.distributed knows better.
    dist = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False, get_rank=lambda: 1, get_world_size=lambda: 2)
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    assert names(Stream(samples, seed=1)) == got[-250:]
    dist.is_initialized = lambda: True
    assert names(Stream(samples, seed=1)) == names(Stream(samples, seed=1, rank=1, world=2))


@pytest.mark.parametrize("rank, world", [("3", None), (None, "8"), ("8", "8"), ("-1", "8"), ("", "8"), ("a", "8"), ("0", "0"), ("1.5", "8")])
def test_ranks_of_the_environment_that_cannot_be_are_refused(archive, monkeypatch, rank, world):
    for name, value in {"RANK": rank, "WORLD_SIZE": world}.items():
        if value is not None:
            monkeypatch.setenv(name, value)
    for kind in (Stream, Sampler):
        with pytest.raises(ValueError, match=f"RANK={rank} and WORLD_SIZE={world}"):
            kind(Samples(archive))


def test_each_pass_is_the_next_epoch(archive):
    stream = Stream(Samples(archive), seed=1)
    passes = [names(stream) for _ in range(3)]
    for epoch in (2, 0, 1):
        stream.set_epoch(epoch)
        assert names(stream) == passes[epoch]
    assert len({tuple(p) for p in passes}) == 3


@pytest.mark.parametrize("kind", [Stream, Sampler])
@pytest.mark.parametrize("exact", [False, True])
def test_a_state_goes_on_at_the_exact_sample(archive, kind, exact):
    def new():
        return kind(Samples(archive), seed=5, rank=1, world=2, exact=exact, block=13, mix=3)

    stream = new()
    stream.set_epoch(4)
    whole = list(stream)
    next_epoch = list(stream)
    for taken in (0, 1, 38, 39, 40, 250, 499, 500):
        stream.set_epoch(4)
        running = iter(stream)
        before = list(islice(running, taken))
        state = json.loads(json.dumps(stream.state_dict()))
        later = pickle.loads(pickle.dumps(new()))
        later.load_state_dict(state)
        later.set_epoch(4)  # as loops do that resume
        assert before + list(later) == whole
        assert list(later) == next_epoch


def test_states_of_other_orders_are_refused(archive):
    state = Stream(Samples(archive), seed=1).state_dict()
    for other in ({"seed": 2}, {"seed": 1, "mix": 9}, {"seed": 1, "exact": True}, {"seed": 1, "even": True}):
        with pytest.raises(ValueError, match="another order"):
            Stream(Samples(archive), **other).load_state_dict(state)
    state["left"] = [None, [[0, 1000, 0, 1000]], None]
    stream = Stream(Samples(archive), seed=1)
    stream.load_state_dict(state)
    with pytest.raises(ValueError, match="state of one worker of 3"):
        next(iter(stream))


@pytest.mark.parametrize("kind", [Stream, Sampler])
@pytest.mark.parametrize("how", [{}, {"exact": True}, {"shuffle": False}, {"even": True}], ids=str)
def test_ranks_go_on_whatever_their_number(archive, kind, how):
    """Several times in one epoch, each rank from another place, with the states in any order."""
    rnd = random.Random(7)
    got, states = [], []
    worlds = [3, 1, 4, 2, 5]
    for world in worlds:
        rnd.shuffle(states)
        streams = [kind(Samples(archive), seed=6, rank=rank, world=world, block=13, mix=3, **how) for rank in range(world)]
        for stream in streams:
            if states:
                stream.load_state_dict(json.loads(json.dumps(states)))
            else:
                stream.set_epoch(2)
        states = []
        for stream in streams:
            got += islice(iter(stream), rnd.randrange(1, 100) if world != worlds[-1] else 1000)
            states.append(stream.state_dict())
    assert len(got) == len(set(got))
    if how.get("even"):
        assert 1000 - sum(world - 1 for world in worlds) <= len(got) <= 1000
    else:
        assert len(got) == 1000
    assert all(state["epoch"] == 3 and state["left"] is None for state in states)
    alone = kind(Samples(archive), seed=6, block=13, mix=3, **how)
    alone.load_state_dict(states[3])  # the epoch has ended everywhere
    whole = kind(Samples(archive), seed=6, block=13, mix=3, **how)
    whole.set_epoch(3)
    assert list(alone) == list(whole)


def test_a_rank_that_ended_the_epoch_has_nothing_left(archive, files):
    streams = [Stream(Samples(archive), seed=6, rank=rank, world=2) for rank in range(2)]
    got = [*streams[0], *islice(iter(streams[1]), 10)]
    states = [stream.state_dict() for stream in streams]
    stream = Stream(Samples(archive), seed=6)
    stream.load_state_dict(states)
    got += stream
    assert len(got) == 1000 and dict(got) == files


def test_states_that_do_not_go_together_are_refused(archive):
    streams = [Stream(Samples(archive), rank=rank, world=3) for rank in range(3)]
    states = []
    for stream in streams:
        next(iter(stream))
        states.append(stream.state_dict())
    other = Stream(Samples(archive), rank=0, world=2)
    for some in (states[0], states[:2], [*states, states[0]], [states[0], states[1], states[1]]):
        with pytest.raises(ValueError, match="needs the states of all ranks"):
            other.load_state_dict(some)
    for epoch in (1, 2):
        with pytest.raises(ValueError, match=f"states of epochs 0 and {epoch}"):
            other.load_state_dict([*states[:2], {**states[2], "epoch": epoch}])
    with pytest.raises(ValueError, match="another order: seed"):
        other.load_state_dict([*states[:2], {**states[2], "order": {**states[2]["order"], "seed": 5}}])


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"world": 4}, {"rank": 1, "world": 1}, {"rank": -1, "world": 1}, {"rank": 0, "world": 0}, {"rank": 0, "world": "2"}])
def test_ranks_that_cannot_be_are_refused(archive, wrong):
    with pytest.raises(ValueError, match="rank|world"):
        Stream(Samples(archive), **wrong)


@pytest.mark.parametrize("name", ["block", "mix", "batch_size", "ahead"])
def test_numbers_that_cannot_be_are_named(archive, name):
    for value in (-1, 1.5, "2"):
        with pytest.raises(ValueError, match=f"{name}={value!r}: expected a whole number"):
            Stream(Samples(archive), **{name: value})
    with pytest.raises(holdall.NotFoundError, match="misspelt.caf"):
        Stream("misspelt.caf", **{name: 1})
    for state in ({}, [], {"epoch": 1}, [{}]):
        with pytest.raises(ValueError, match="expected what state_dict"):
            Stream(Samples(archive)).load_state_dict(state)


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_processes_of_other_launchers_need_ranks(archive, monkeypatch, name):
    monkeypatch.setenv(name, "8")
    with pytest.raises(ValueError, match=f"{name}=8, but RANK and WORLD_SIZE are not in the environment"):
        Stream(Samples(archive))
    assert len(Stream(Samples(archive), rank=1, world=8)) == 125
    monkeypatch.setenv(name, "1")
    assert len(Stream(Samples(archive))) == 1000


@pytest.mark.parametrize("workers", [0, 1, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [7, 30, 125, 1000, 3000])
def test_a_loader_has_as_many_batches_as_it_says(archive, workers, drop_last, size):
    """With a rank whose samples are not whole batches."""
    stream = Stream(Samples(archive), rank=1, world=3, batch_size=size, block=10)
    loader = DataLoader(stream, size, num_workers=workers, drop_last=drop_last, collate_fn=len)
    got = list(loader)
    assert len(got) == len(loader) == (333 // size if drop_last else -(-333 // size))
    assert sum(got) == (333 // size * size if drop_last else 333)
    state = stream.state_after(1, size, workers, drop_last)
    assert left(state) == 333 - sum(got[:1])


@pytest.mark.parametrize("start", STARTS)
def test_workers_give_each_sample_once_an_epoch(archive, files, threads, start):
    """With a parent that has read before, and whose threads run."""
    samples = Samples(archive)
    assert dict(samples[i] for i in range(0, 1000, 7))
    stream = Stream(samples, block=20, mix=2)
    orders = set()
    for epoch in range(10 if start == "fork" else 2):
        stream.set_epoch(epoch)
        loader = DataLoader(stream, 17, num_workers=8, multiprocessing_context=start, collate_fn=list)
        got = [sample for batch in loader for sample in batch]
        assert len(got) == 1000 and dict(got) == files
        orders.add(tuple(names(got)))
    assert len(orders) > 1


@pytest.mark.parametrize("start", STARTS)
def test_workers_read_from_a_server(pack, files, serve, start):
    """With a parent whose connections are open."""
    archive = pack(files, "x.caf", index=True)
    samples = Samples(f"{serve(archive.parent)}/x.caf")
    assert samples[0][1] == files[samples[0][0]]
    loader = DataLoader(Stream(samples), 17, num_workers=3, multiprocessing_context=start, collate_fn=list)
    got = [sample for batch in loader for sample in batch]
    assert len(got) == 1000 and dict(got) == files
    assert samples[999][1] == files[samples[999][0]]


@pytest.mark.parametrize("start", STARTS)
def test_map_style_in_workers(archive, files, threads, start):
    samples = Samples(archive)
    sampler = Sampler(samples, seed=2)
    loader = DataLoader(samples, 32, sampler=sampler, num_workers=3, multiprocessing_context=start, collate_fn=list)
    got = [sample for batch in loader for sample in batch]
    assert dict(got) == files and len(got) == 1000
    assert names(got) == names(Stream(samples, seed=2))


def test_workers_that_live_on_count_epochs(archive):
    stream = Stream(Samples(archive), block=20)
    loader = DataLoader(stream, 17, num_workers=2, persistent_workers=True, collate_fn=names)
    passes = [[name for batch in loader for name in batch] for _ in range(3)]
    assert all(len(set(p)) == 1000 for p in passes)
    assert len(set(map(tuple, passes))) == 3


@pytest.mark.parametrize("start", STARTS)
def test_each_loop_over_a_loader_is_the_next_epoch(archive, start):
    samples = Samples(archive)
    want = []
    for epoch in range(4):
        stream = Stream(samples, seed=3, block=20)
        stream.set_epoch(epoch)
        want.append(names(stream))
    stream = Stream(samples, seed=3, block=20)
    loader = DataLoader(stream, 25, num_workers=1, collate_fn=names, multiprocessing_context=start)
    got = [[n for batch in loader for n in batch] for _ in range(3)]
    assert got == want[:3]
    stream.set_epoch(1)
    assert [n for batch in loader for n in batch] == want[1]
    # With other workers.
    for workers, epoch in [(3, 2), (2, 3)]:
        loader = DataLoader(stream, 25, num_workers=workers, collate_fn=names, multiprocessing_context=start)
        found = [n for batch in loader for n in batch]
        assert sorted(found) == sorted(want[0])
        assert stream.state_dict()["epoch"] == epoch + 1
        other = Stream(samples, seed=3, block=20)
        other.set_epoch(epoch)
        assert found == [n for batch in DataLoader(other, 25, num_workers=workers, collate_fn=names) for n in batch]


def test_workers_that_live_on_learn_of_the_epoch(archive):
    stream = Stream(Samples(archive), seed=3, block=20)
    loader = DataLoader(stream, 17, num_workers=2, persistent_workers=True, collate_fn=names)
    passes = []
    for epoch in [0, 1, 0, 5, 5]:
        stream.set_epoch(epoch)
        passes.append([n for batch in loader for n in batch])
    assert passes[0] == passes[2] != passes[1] and passes[3] == passes[4] and passes[3] not in passes[:3]


def test_a_stream_takes_what_samples_take(archive, files):
    assert dict(Stream(str(archive))) == files
    assert "1000 of" in repr(Stream(str(archive), rank=1, world=4).samples) and "rank 1 of 4" in repr(Stream(str(archive), rank=1, world=4))


def left(state):
    """How many samples are left in the epoch of a state."""
    return sum(stop - start for pieces in state["left"] for _, _, start, stop in pieces)


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loader_goes_on_with_any_number_of_workers(archive, drop_last):
    samples = Samples(archive)
    stream = Stream(samples, seed=8, block=10)
    got = []
    for workers, batches in [(3, 5), (1, 2), (8, 10), (2, 3), (0, 4), (4, 1000)]:
        loader = DataLoader(stream, 30, num_workers=workers, drop_last=drop_last, collate_fn=names)
        some = list(islice(loader, batches))
        got += [name for batch in some for name in batch]
        state = stream.state_after(len(some), 30, workers, drop_last) if workers else stream.state_dict()
        state = json.loads(json.dumps(state))
        assert left(state) == 1000 - len(got)
        stream = Stream(samples, seed=8, block=10)
        stream.load_state_dict(state)
    assert len(set(got)) == len(got) and (1000 - len(got) < 4 * 30 if drop_last else len(got) == 1000)


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_loader_goes_on_after_any_batch(archive, workers, drop_last):
    """state_after tells by the batches that came out what each worker has given."""

    def loader(stream):
        return DataLoader(stream, 30, num_workers=workers, drop_last=drop_last, collate_fn=names)

    samples = Samples(archive)
    whole = list(loader(Stream(samples, seed=8, block=10)))
    rest = []
    for batches in (0, 1, 2, 7, len(whole) - 1, len(whole)):
        stream = Stream(samples, seed=8, block=10)
        state = stream.state_after(batches, 30, workers, drop_last)
        assert left(state) == 1000 - sum(map(len, whole[:batches]))
        stream.load_state_dict(json.loads(json.dumps(state)))
        rest = list(loader(stream))
        assert sorted(n for b in whole[batches:] for n in b) == sorted(n for b in rest for n in b)
        # And once more, in what was resumed.
        again = stream.state_after(2, 30, workers, drop_last)
        later = Stream(samples, seed=8, block=10)
        later.load_state_dict(again)
        assert sorted(n for b in loader(later) for n in b) == sorted(n for b in rest[2:] for n in b)


TRAIN = """
import json, os, sys
sys.path[:0] = {path!r}
from torch.utils.data import DataLoader
from holdall.datasets import Samples, Stream

if __name__ == "__main__":
    archive, log, state, start = sys.argv[1:]
    stream = Stream(Samples(archive), seed=4, block=20)
    if os.path.exists(state):
        with open(state) as f:
            stream.load_state_dict(json.load(f))
    loader = DataLoader(stream, 16, num_workers=4, multiprocessing_context=start, collate_fn=list)
    for batches, batch in enumerate(loader, 1):
        with open(state + ".new", "w") as f:
            json.dump(stream.state_after(batches, 16, 4), f)
        with open(log, "a") as f:
            f.write("".join(name + "\\n" for name, _ in batch))
        os.replace(state + ".new", state)
        print("batch", flush=True)
    print("end", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signal kills here")
@pytest.mark.parametrize("start", STARTS)
def test_killed_and_resumed_no_sample_is_missing_or_twice(archive, files, tmp_path, start):
    script, log, state = tmp_path / "train.py", tmp_path / "log", tmp_path / "state"
    temporary = tempfile.TemporaryDirectory()  # of a name that is short enough for sockets
    script.write_text(TRAIN.format(path=sys.path))
    rnd, ended = random.Random(6), False
    while not ended:
        process = subprocess.Popen(
            [sys.executable, script, archive, log, state, start],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": temporary.name},
        )
        for line in islice(process.stdout, rnd.randint(15, 30)):
            ended = line == "end\n"
        # Once a batch was said it was also written down; the next one may be half in.
        os.killpg(process.pid, signal.SIGSTOP)
        done = state.read_text()
        seen = 1000 - left(json.loads(done))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        # A training that is killed goes back to what it kept with its state.
        kept = log.read_text().splitlines()[:seen]
        log.write_text("".join(name + "\n" for name in kept))
    got = log.read_text().split()
    assert len(got) == 1000 and set(got) == set(files)
    assert not any(found for _, _, files in os.walk(temporary.name) for found in files if "holdall" in found)
    temporary.cleanup()


def test_what_is_pickled_is_short(archive):
    samples = Samples(holdall.open(archive), grouped=True)
    assert len(pickle.dumps(samples)) < 200 + len(str(archive))
    out = io.BytesIO()
    pickle.Pickler(out).dump(Stream(samples))
    again = pickle.loads(out.getvalue())
    assert list(again) == list(Stream(samples))
