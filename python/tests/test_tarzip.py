"""Tars and zips of other programs, without an index."""

import io
import random
import tarfile
import zipfile

import pytest

import holdall


def contents(rnd):
    names = ["a", "d/b", "d/" + "long" * 40, "ü/é", "d e/f g", "x" * 101, "deep/" * 60 + "z"]
    return {name: rnd.randbytes(rnd.choice([0, 1, 511, 512, 513, 70_000])) for name in rnd.sample(names, 5)}


def tarred(files, form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as t:
        folder = tarfile.TarInfo("d")
        folder.type = tarfile.DIRTYPE
        t.addfile(folder)
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "a"
        t.addfile(link)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1.5 if form == tarfile.PAX_FORMAT else 1
            t.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files, method, streamed=False):
    out = io.BytesIO()
    target = out if not streamed else io.BufferedWriter(type("Pipe", (io.RawIOBase,), {"writable": lambda s: True, "write": lambda s, b: out.write(b)})())
    with zipfile.ZipFile(target, "w", method) as z:
        z.writestr("d/", b"")
        for name, content in files.items():
            z.writestr(name, content)
    target.flush()
    return out.getvalue()


WAYS = [lambda f: tarred(f, tarfile.PAX_FORMAT), lambda f: tarred(f, tarfile.GNU_FORMAT), lambda f: zipped(f, zipfile.ZIP_STORED),
        lambda f: zipped(f, zipfile.ZIP_DEFLATED), lambda f: zipped(f, zipfile.ZIP_DEFLATED, streamed=True)]  # fmt: skip


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_what_python_writes(tmp_path, way):
    rnd = random.Random(way)
    for i in range(20):
        files = contents(rnd)
        path = tmp_path / f"{i}.x"
        path.write_bytes(WAYS[way](files))
        a = holdall.open(path)
        assert dict(a) == files and a.index is None and a.format == ("tar" if way < 2 else "zip")
        assert a.read_many(list(files)) == list(files.values()) and a.verifies == (way >= 2)
        name = max(files, key=lambda n: len(files[n]))
        assert a.read(name, 1, 100) == files[name][1:100]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_no_damage_gives_other_names_or_bytes_that_are_compared(tmp_path, way):
    rnd = random.Random(way)
    files = contents(rnd)
    sound = WAYS[way](files)
    path = tmp_path / "x"
    for _ in range(300):
        data = bytearray(sound)
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
        path.write_bytes(data)
        try:
            a = holdall.open(path)
            for name in a:
                if way >= 2 and name in files:
                    assert a[name] == files[name]
                else:
                    len(a[name])
        except holdall.HoldallError:
            pass
    for length in rnd.sample(range(len(sound)), 100):
        path.write_bytes(sound[:length])
        try:
            assert all(files[name] == content for name, content in holdall.open(path).items())
        except holdall.HoldallError:
            pass


def odd_tars():
    for change in ["sparse", "twice", "up", "device", "latin"]:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as t:
            for name in {"twice": ["a", "a"], "up": ["../a"], "latin": ["ü"]}.get(change, ["a"]):
                info = tarfile.TarInfo(name)
                info.type = {"sparse": tarfile.GNUTYPE_SPARSE, "device": b"V"}.get(change, tarfile.REGTYPE)
                t.addfile(info)
        yield change, out.getvalue()


@pytest.mark.parametrize("change, data", list(odd_tars()))
def test_what_is_unusual_needs_an_index(tmp_path, change, data):
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    with pytest.raises(holdall.UnsupportedError, match="holdall index"):
        holdall.open(path)


def test_far_ones(tmp_path, serve):
    rnd = random.Random(1)
    files = contents(rnd)
    for way, make in enumerate(WAYS):
        (tmp_path / f"{way}.x").write_bytes(make(files))
        assert dict(holdall.open(f"{serve(tmp_path)}/{way}.x")) == files
