"""The files of a catalogue by number: as samples, in any number of processes, as of the commit that was opened."""

import os
import pickle
import shutil
from itertools import islice

import pytest
from torch.utils.data import DataLoader

import holdall
from holdall import catalog
from holdall.datasets import Samples, Stream
from holdall.listing import text
from test_catalog import VECTORS, command, vector  # noqa: F401
from test_datasets import names


@pytest.fixture
def several(pack, command, tmp_path):
    """A catalogue of several runs, in which names were overwritten and deleted, and what it has."""
    at, files = tmp_path / "x.catalog", {}
    command("catalog", "init", "--catalog", at)
    for k in range(4):
        some = {f"d{i % 3}/{i:03}.{ext}": b"%d %d %b" % (k, i, ext.encode()) * (i % 9) for i in range(40 * k, 40 * k + 80) for ext in ("jpg", "txt")}
        archive = pack(some, f"{k}.{'caf' if k % 2 else 'tar'}", index=k == 2)
        command("catalog", "add", "--catalog", at, archive)
        files |= some
    deleted = [n for i, n in enumerate(sorted(files)) if i % 50 == 7]
    command("catalog", "rm", "--files", "--catalog", at, *deleted)
    return at, {n: c for n, c in sorted(files.items()) if n not in deleted}


@pytest.fixture(params=[1, 3, 64])
def group(request, monkeypatch):
    monkeypatch.setattr(catalog, "GROUP", request.param)
    monkeypatch.setattr(catalog, "MAX_GROUPS", 4)


@pytest.mark.parametrize("name", ["small", "many", "fleet"])
def test_numbers_of_the_vectors(group, name):
    at = VECTORS / f"{name}.catalog"
    a = holdall.open(at)
    every = [text(n) for n, f in sorted(vector(name).items()) if f["kind"] in ("file", "property")]
    assert [a.name(i) for i in range(len(a))] == list(a) == every and a.name(-1) == every[-1]
    rows = a._rows
    raw = [n.encode("utf-8", "surrogateescape") for n in every]
    for n in [b"", b"\xff\xff", *raw, *(n + b"\0" for n in raw), *(n[:-1] for n in raw)]:
        assert rows.first(n) == sum(other < n for other in raw)
    with pytest.raises(holdall.NotFoundError, match=f"no file {len(a)} of"):
        a.name(len(a))


def test_files_by_number(several, command, group):
    at, files = several
    a = holdall.open(at)
    assert len(a._rows._runs) > 1
    assert command("catalog", "ls", "-R", "--catalog", at).decode().split("\n")[:-1] == [*files]
    assert [a.name(i) for i in range(len(a))] == [*files] and a.read_many(range(len(a))) == [*files.values()]
    assert (a[5], a[-1], a.size(5), a.stored()) == ([*files.values()][5], [*files.values()][-1], len(a[5]), range(len(files)))
    samples = Samples(at, folder="d1")
    assert dict(samples[i] for i in range(len(samples))) == {n: c for n, c in files.items() if n.startswith("d1/")}
    with pytest.raises(holdall.NotFoundError, match="no files in this folder"):
        Samples(at, folder="d")


def test_grouped_samples(several):
    at, files = several
    groups = {}
    for n, c in files.items():
        key, kind = n.split(".")
        groups.setdefault(key, {"__key__": key})[kind] = c
    samples = Samples(at, grouped=True)
    assert [samples[i] for i in range(len(samples))] == [*groups.values()]
    got = list(Stream(Samples(at, grouped=True, folder="d2"), seed=1))
    assert sorted(got, key=lambda s: s["__key__"]) == [g for k, g in groups.items() if k.startswith("d2/")]


def test_a_folder_between_the_files_of_a_sample(pack, command, tmp_path):
    at = tmp_path / "x.catalog"
    command("catalog", "init", "--catalog", at)
    command("catalog", "add", "--catalog", at, pack({"a.jpg": b"1", "a.parts/1.png": b"2", "a.txt": b"3"}, "x.caf"))
    assert len(Samples(at)) == 3 and len(Samples(at, folder="a.parts", grouped=True)) == 1
    with pytest.raises(holdall.UnsupportedError, match="'a': a folder is between"):
        Samples(at, grouped=True)


@pytest.mark.parametrize("how", [{"shuffle": False}, {"seed": 1, "block": 7}, {"seed": 1, "exact": True}])
def test_each_sample_once(several, how):
    at, files = several
    samples = Samples(at)
    assert list(Stream(samples, shuffle=False)) == [*files.items()]
    parts = []
    for rank in range(3):
        stream = Stream(samples, rank=rank, world=3, **how)
        parts += [n for batch in DataLoader(stream, batch_size=5, num_workers=2, collate_fn=names) for n in batch]
    assert sorted(parts) == [*files]
    stream = Stream(samples, **how)
    taken = [n for n, _ in islice(stream, 100)]
    again = Stream(Samples(at), **how)
    again.load_state_dict(stream.state_dict())
    assert sorted(taken + [n for n, _ in again]) == [*files]


def test_a_later_commit_changes_nothing(several, pack, command, serve, tmp_path):
    at, files = several
    opened = [holdall.open(at), holdall.open(f"{serve(tmp_path)}/{at.name}")]
    streams = [Stream(Samples(a), seed=1, ahead=0) for a in opened]
    orders = [[n for n, _ in stream] for stream in streams]
    command("catalog", "add", "--catalog", at, pack({f"d0/{i:03}.jpg": b"new" for i in range(40)} | {"e": b"new"}, "new.caf"))
    (at / "states").mkdir(exist_ok=True)
    shutil.copy(at / "head", at / f"states/{holdall.open(at)._rows.shelf.commit:016}")
    command("catalog", "rm", "--files", "--catalog", at, "d0/003.txt")
    newest = holdall.open(at)
    assert newest["e"] == newest["d0/000.jpg"] == b"new" and "d0/003.txt" in {*files} - {*newest}
    for without in ("", "head", "states"):
        for a, stream, order in zip(opened, streams, orders, strict=True):
            other = pickle.loads(pickle.dumps(stream))
            other.set_epoch(0)
            assert [n for n, _ in other] == order and dict(other.samples.archive) == files == dict(a)
            b = pickle.loads(pickle.dumps(other.samples.archive))
            assert len(b) == len(files) and b.address == a.address and b._rows.shelf.commit == a._rows.shelf.commit
        if without == "":
            (at / "head").unlink()
        elif without == "head":
            shutil.rmtree(at / "states")


def test_a_pickled_catalogue_is_not_counted_again(several, monkeypatch):
    at, files = several
    a = holdall.open(at)
    assert len(a) == len(files)
    b = pickle.loads(pickle.dumps(a))
    monkeypatch.setattr(catalog.Catalog, "_after", None)
    assert len(b) == len(files) and b.bytes == sum(map(len, files.values()))


def test_catalogues_among_several_archives(several, pack, command):
    at, files = several
    both = holdall.open([at, pack({"z": b"1"}, "z.caf")])
    assert list(both) == [*files, "z"] and both[len(files)] == b"1" and both.info(3).number == -1
    assert dict(Stream(Samples([os.fspath(at)]), seed=1)) == files
    command("catalog", "add", "--catalog", at, pack({n: b"new" for n in list(files)[:5]}, "new.caf"))
    assert dict(holdall.open(at)) != files
    assert {**both} == {**pickle.loads(pickle.dumps(both))} == files | {"z": b"1"}
