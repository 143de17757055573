"""Several archives as one."""

import os
import pickle
import shutil

import pytest

import holdall
from holdall import many
from holdall.datasets import Samples, Stream


def contents(first, count):
    return {f"d{i % 3}/{i:04}.bin": b"%d" % i * (i % 50 + 1) for i in range(first, first + count)}


@pytest.fixture
def chunks(pack, tmp_path):
    """Three archives, of which the second has no index."""
    files = {}
    for n, (first, count) in enumerate([(0, 40), (40, 25), (65, 35)]):
        some = contents(first, count)
        files |= some
        pack(some, f"d-{n + 1:05}.caf", index=n != 1)
        shutil.rmtree(tmp_path / f"d-{n + 1:05}.caf.files", ignore_errors=True)
    return files


@pytest.mark.parametrize("how", ["pattern", "list", "pathlib"])
def test_they_are_one_mapping(chunks, tmp_path, how):
    names = [tmp_path / f"d-0000{n}.caf" for n in (1, 2, 3)]
    what = {"pattern": str(tmp_path / "d-*.caf"), "list": list(map(str, names)), "pathlib": names}[how]
    a = holdall.open(what)
    assert isinstance(a, holdall.Archive) and len(a) == len(chunks) and dict(a) == chunks and a.verifies
    assert a.bytes == sum(map(len, chunks.values()))
    assert {a.name(i): a[i] for i in range(len(a))} == chunks
    name = a.name(41)
    assert a.info(41).number == 41 and a.info(41).name == name and a.size(name) == len(chunks[name])
    assert a.read(41, 1, 3) == chunks[name][1:3] and a[-1] == a[len(a) - 1]
    assert a.read_many([99, "d0/0000.bin", 50, 3]) == [a[99], chunks["d0/0000.bin"], a[50], a[3]]
    with a.open(name) as f:
        assert f.read() == chunks[name]
    assert set(a.glob("d1/*")) == {n for n in chunks if n.startswith("d1/")}
    b = pickle.loads(pickle.dumps(a))
    assert dict(b) == chunks
    for wrong in ["none", len(a), -len(a) - 1]:
        with pytest.raises(holdall.NotFoundError):
            a[wrong]
    assert "none" not in a and name in a
    a.close()


def test_the_last_of_a_name_is_found(pack, tmp_path):
    pack({"a": b"old", "b": b"1"}, "x1.caf")
    pack({"a": b"new"}, "x2.caf", index=True)
    a = holdall.open([tmp_path / "x1.caf", tmp_path / "x2.caf"])
    assert a["a"] == b"new" and a["b"] == b"1" and len(a) == 3 and a[0] == b"old"


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(holdall.NotFoundError, match="no archive has such a name"):
        holdall.open(str(tmp_path / "x-*.caf"))
    with pytest.raises(holdall.NotFoundError):
        holdall.open([str(tmp_path / "x.caf")])
    assert len(holdall.open([])) == 0


def test_an_archive_that_is_another_one_meanwhile_is_refused(chunks, pack, tmp_path):
    a = holdall.open(str(tmp_path / "d-*.caf"))
    path = tmp_path / "d-00003.caf"
    path.unlink()
    os.unlink(str(path) + ".holdall")
    pack({"other": b"1"}, "other.caf").rename(path)
    with pytest.raises(holdall.StaleIndexError, match="it has 1 files, but it had 35"):
        a[99]


def test_few_are_open_at_once(chunks, tmp_path, monkeypatch):
    monkeypatch.setattr(many, "MAX_OPEN", 1)
    a = holdall.open(str(tmp_path / "d-*.caf"))
    for i in [0, 99, 50, 1]:
        assert a[i] == chunks[a.name(i)]
        assert len(a._opened) == 1


@pytest.mark.parametrize("how", [{"shuffle": False}, {"seed": 1}, {"seed": 1, "exact": True}])
def test_samples_of_several(chunks, tmp_path, how):
    samples = Samples(str(tmp_path / "d-*.caf"))
    assert len(samples) == len(chunks) and dict(Stream(samples, **how)) == chunks
    parts = [list(Stream(samples, rank=r, world=3, **how)) for r in range(3)]
    assert sorted(sum(parts, [])) == sorted(chunks.items())
    some = Samples(str(tmp_path / "d-*.caf"), folder="d2")
    assert dict(Stream(some, **how)) == {n: c for n, c in chunks.items() if n.startswith("d2/")}
    assert dict(Stream(pickle.loads(pickle.dumps(samples)), **how)) == chunks


def test_a_group_may_lie_in_two_archives(pack, tmp_path):
    pack({"a.jpg": b"1", "a.json": b"2", "b.jpg": b"3"}, "g1.caf")
    pack({"b.json": b"4", "c.jpg": b"5"}, "g2.caf", index=True)
    samples = Samples(str(tmp_path / "g*.caf"), grouped=True)
    assert [samples[i] for i in range(len(samples))] == [
        {"__key__": "a", "jpg": b"1", "json": b"2"}, {"__key__": "b", "jpg": b"3", "json": b"4"}, {"__key__": "c", "jpg": b"5"}]  # fmt: skip


def test_many_far_archives(chunks, tmp_path, serve):
    address = serve(tmp_path)
    a = holdall.open([f"{address}/d-0000{n}.caf" for n in (1, 2, 3)])
    assert dict(a) == chunks
