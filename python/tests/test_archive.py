"""Archives as a program has them: every function, of each format, with and without an index."""

import gc
import io
import os
import pathlib
import pickle
import random
import subprocess
import weakref
from contextlib import suppress

import pytest

import holdall

FORMATS = ["x.caf", "x.lindi.tar", "x.tar", "x.tar.gz", "x.tar.zst", "x.tar.bz2", "x.zip", "x.rvn", "x.bundle"]


def some_files(seed, count=60):
    """Files whose names and contents are of many kinds."""
    rnd = random.Random(seed)
    files = {}
    for i in range(count):
        depth = rnd.randrange(4)
        name = "/".join(rnd.choice(["a", "b", "long-directory-name", "ü", "x.y"]) for _ in range(depth))
        name = f"{name}/f{rnd.randrange(10**rnd.randrange(1, 7))}.{rnd.choice(['jpg', 'json', 'ä'])}".lstrip("/")
        size = rnd.choice([0, 1, 10, 999, 1000, 4096, 70_000])
        kind = rnd.randrange(3)
        files[name] = rnd.randbytes(size) if kind == 0 else bytes(size) if kind == 1 else (b"%d " % i * size)[:size]
    return files


@pytest.fixture
def index(holdall_command):
    def make(path, *flags):
        subprocess.run([holdall_command, "index", "-q", *flags, str(path)], check=True)
        return path

    return make


def pack_any(pack, holdall_command, files, name):
    """An archive of any format; those that are only read are made by Python."""
    if not name.endswith(".bz2"):
        return pack(files, name)
    import tarfile

    path = pack(files, "for-bz2.caf").parent / name
    with tarfile.open(path, "w:bz2") as tar:
        for file, content in files.items():
            info = tarfile.TarInfo(file)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_format_gives_back_what_was_packed(pack, index, holdall_command, name, seed):
    files = some_files(seed)
    path = index(pack_any(pack, holdall_command, files, name))
    ways = [{}, {"verify": False}] + [{"index": False}] * name.startswith(("x.caf", "x.lindi"))
    for how in ways:
        a = holdall.open(path, **how)
        internal = {".tar_entry.json", ".tar_index.json", "lindi.json"} if a.format == "lindi" else set()
        assert set(a) == set(files) | internal
        assert len(a) == len(list(a))
        assert a.bytes == sum(a.size(i) for i in range(len(a)))
        for name_, content in files.items():
            assert name_ in a
            assert a[name_] == content
            number = a.info(name_).number
            assert a.name(number) == name_
            assert a[number] == content
            assert a.info(number)[:4] == (name_, "file", len(content), number)
            assert a.size(name_) == len(content)
        names = list(files) * 2
        random.Random(seed).shuffle(names)
        assert a.read_many(names) == [files[n] for n in names]
        assert a.read_many([]) == []
        assert a.read_many(a.info(n).number for n in names) == [files[n] for n in names]
        assert sorted(a.stored()) == list(range(len(a)))
        assert a.index == (None if "index" in how else str(path) + ".holdall")


@pytest.mark.parametrize("name", FORMATS)
def test_parts_and_seeks(pack, index, holdall_command, name):
    rnd = random.Random(5)
    files = {"a/big.bin": rnd.randbytes(3 << 20), "a/text.txt": b"0123456789" * 5000, "empty": b"", "one": b"1"}
    a = holdall.open(index(pack_any(pack, holdall_command, files, name)))
    for file, content in files.items():
        with a.open(file) as f:
            assert f.readable() and f.seekable() and not f.writable()
            assert f.name == file
            for _ in range(20):
                start, n = rnd.randrange(len(content) + 2), rnd.randrange(1, 200_000)
                f.seek(start)
                assert f.read(n) == content[start : start + n]
                assert f.tell() == min(start + n, max(len(content), start))
                assert a.read(file, start, start + n) == content[start : start + n]
            f.seek(0)
            assert f.read() == content
            f.seek(-1 if content else 0, os.SEEK_END)
            assert f.read() == content[-1:]
        assert a.read(file, -5) == content[-5:]
        assert a.read(file, 2, -2) == content[2:-2]
        assert a.read(file) == content
    raw = a.open("a/text.txt").detach()
    assert raw.readall() == files["a/text.txt"]
    raw.seek(7)
    assert raw.seek(3, os.SEEK_CUR) == 10
    with pytest.raises(ValueError):
        raw.seek(-1)
    raw.close()
    with pytest.raises(ValueError):
        raw.read(1)
    assert io.TextIOWrapper(a.open("a/text.txt")).read(10) == "0123456789"


@pytest.mark.parametrize("how", [{}, {"index": False}])
def test_what_is_not_there(pack, index, how):
    a = holdall.open(index(pack({"d/a": b"1", "b": b"2"}, "x.caf")), **how)
    for name in ["", "c", "d", "d/", "d/a/", "/b", "d/\0", "ü", "\ud800", "\udcff", "d" * 10_000]:
        assert name not in a
        assert a.get(name) is None
        with pytest.raises(holdall.NotFoundError) as err:
            a[name]
        assert err.value.name == name and str(a.address) in str(err.value)
        with pytest.raises(KeyError):
            a.read_many(["b", name])
        with pytest.raises(holdall.HoldallError):
            a.info(name)
    assert 5 not in a and None not in a
    for number in [2, -3, 10**30]:
        with pytest.raises(holdall.NotFoundError):
            a[number]
    assert a[-1] == a[1]
    with pytest.raises(TypeError):
        a[1.5]
    with pytest.raises(TypeError):
        a[None]


def test_numbers_go_by_directory_and_name(pack, index):
    files = {n: n.encode() for n in ["z", "a/z", "a.b", "a/b/c", "b", "a-", "a/a", "aa/x"]}
    path = index(pack(files, "x.caf"))
    want = ["a-", "a.b", "b", "z", "a/a", "a/z", "a/b/c", "aa/x"]
    assert list(holdall.open(path)) == want
    assert list(holdall.open(path, index=False)) == want


@pytest.mark.parametrize(
    "pattern, want",
    [
        ("*", ["a.jpg", "z"]),
        ("**", ["a.jpg", "z", "d/b.jpg", "d/e/c.jpg", "d/e/f.json"]),
        ("**/*.jpg", ["a.jpg", "d/b.jpg", "d/e/c.jpg"]),
        ("d/*.jpg", ["d/b.jpg"]),
        ("d/**", ["d/b.jpg", "d/e/c.jpg", "d/e/f.json"]),
        ("d/**/c.jpg", ["d/e/c.jpg"]),
        ("d/**/b.jpg", ["d/b.jpg"]),
        ("*/*/?.j[a-p]*", ["d/e/c.jpg"]),
        ("?", ["z"]),
        ("[!a]", ["z"]),
        ("[^a-y]", ["z"]),
        ("d**.jpg", []),
        ("a.jpg", ["a.jpg"]),
        ("a?jpg", ["a.jpg"]),
        ("[", []),
        ("a[.]jpg", ["a.jpg"]),
        ("", []),
    ],
)
def test_glob(pack, pattern, want):
    files = dict.fromkeys(["a.jpg", "d/b.jpg", "d/e/c.jpg", "d/e/f.json", "z"], b"")
    assert list(holdall.open(pack(files, "x.caf")).glob(pattern)) == want


def test_its_life(pack, index):
    path = index(pack({"a": b"1"}, "x.caf"))
    with holdall.open(path) as a:
        assert a["a"] == b"1"
        assert repr(a) == f"<holdall.Archive {str(path)!r}>"
        assert a == a and a != holdall.open(path) and {a: 1}[a] == 1
        f = a.open("a")
    a.close()
    for use in [lambda: a["a"], lambda: a[0], lambda: len(a), lambda: list(a), lambda: "a" in a, lambda: a.read_many([0]), lambda: a.name(0), f.read]:
        with pytest.raises(holdall.HoldallError, match="closed"):
            use()


def test_nothing_is_left_of_what_nobody_has(pack, index):
    """No cycle keeps an archive, its file and its map."""
    path = index(pack({"a": b"1"}, "x.caf"))
    gc.disable()
    try:
        for how in [{"verify": False}, {}, {"index": False}]:
            a = holdall.open(path, **how)
            a["a"], a.open("a").read(), list(a)
            gone = weakref.ref(a.source)
            del a
            assert gone() is None
    finally:
        gc.enable()


def test_what_can_be_opened(pack, index, tmp_path, monkeypatch):
    path = index(pack({"a": b"1"}, "x.caf"))
    monkeypatch.chdir(tmp_path)
    for what in [path, str(path), os.fsencode(path), "x.caf", f"file://{path}"]:
        a = holdall.open(what)
        assert a["a"] == b"1" and a.index is not None
    with path.open("rb") as f:
        assert holdall.open(f)["a"] == b"1"
        assert holdall.open(f, index=str(path) + ".holdall")["a"] == b"1"
    a = holdall.open(io.BytesIO(path.read_bytes()), index=io.BytesIO((tmp_path / "x.caf.holdall").read_bytes()))
    assert a["a"] == b"1" and list(a) == ["a"] and a.read_many(["a"]) == [b"1"]
    with pytest.raises(TypeError):
        holdall.open(5)
    with pytest.raises(TypeError, match="open the archive by its path"):
        pickle.dumps(a)
    with pytest.raises(holdall.NotFoundError):
        holdall.open(tmp_path / "nothing.caf")
    with pytest.raises(holdall.UnsupportedError):
        holdall.open(tmp_path)
    with pytest.raises(holdall.HoldallError):
        holdall.open("no-such-scheme://x/y.caf")
    for encrypted in ("age:x.caf", "age:s3://bucket/x.caf"):
        with pytest.raises(holdall.UnsupportedError, match="encrypted is read by the command: holdall serve"):
            holdall.open(encrypted)


def test_fsspec_files(pack, index):
    fsspec = pytest.importorskip("fsspec")
    path = index(pack(some_files(3), "x.caf"))
    want = dict(holdall.open(path))
    fs = fsspec.filesystem("memory")
    for name in [path.name, path.name + ".holdall"]:
        fs.pipe(f"/archives/{name}", (path.parent / name).read_bytes())
    for what in [fsspec.open("memory://archives/x.caf"), "memory://archives/x.caf"]:
        assert holdall.open(what).index is not None or not isinstance(what, str)
        a = holdall.open(what, verify=False, index=False)
        assert dict(a) == want
        assert a.read_many(list(want)) == list(want.values())
    b = pickle.loads(pickle.dumps(a))
    assert b[0] == a[0]
    with pytest.raises(holdall.NotFoundError):
        holdall.open("memory://archives/y.caf")
    assert holdall.open(fsspec.open(f"file://{path}")).index is not None


@pytest.mark.parametrize("index_too", [True, False])
def test_pickles_are_addresses(pack, index, tmp_path, monkeypatch, index_too):
    path = pack({"a": b"1", "b": b"2"}, "x.caf")
    if index_too:
        index(path)
    monkeypatch.chdir(tmp_path)
    a = holdall.open("x.caf", verify=False)
    data = pickle.dumps(a)
    assert len(data) <= 100 + len(str(path))
    assert len(pickle.dumps(holdall.open("x.caf"))) <= 62 + len(str(path))
    monkeypatch.chdir("/")
    how = {"index": tmp_path / "x.caf.holdall"} if index_too else {"external": True}
    assert pickle.loads(pickle.dumps(holdall.open(path, **how)))["a"] == b"1"
    b = pickle.loads(data)
    assert "_rows" not in b.__dict__  # it opens when it is used
    assert pickle.dumps(b) == data
    assert b[1] == b"2" and not b.verifies


@pytest.mark.parametrize("name", ["x.rvn", "x.tar.gz"])
def test_only_some_are_read_without_an_index(pack, name):
    path = pack({"a": b"1"}, name)
    for how in [{}, {"index": False}]:
        with pytest.raises(holdall.UnsupportedError, match="holdall index"):
            holdall.open(path, **how)


def test_an_index_of_an_older_holdall(pack):
    old = pathlib.Path(__file__).parent.parent.parent / "internal/read/kept/testdata/edition2/plain.holdall"
    for name in ["x.caf", "y.tar"]:
        path = pack({"a": b"1"}, name)
        beside = path.parent / (name + ".holdall")
        beside.write_bytes(old.read_bytes())
        with pytest.raises(holdall.UnsupportedError, match="older holdall"):
            holdall.open(path, index=beside)
        if name == "x.caf":
            a = holdall.open(path)
            assert a.index is None and a["a"] == b"1"
        else:
            assert holdall.open(path)["a"] == b"1"


def test_stale_indexes_are_refused(pack, index, tmp_path):
    path = index(pack({"a": b"1" * 10_000, "b": b"2" * 10_000}, "x.caf"))
    named = str(path) + ".holdall"
    before, stat = path.read_bytes(), path.stat()

    def refused(match):
        with pytest.raises(holdall.StaleIndexError, match=match):
            holdall.open(path, index=named)
        with pytest.warns(holdall.StaleIndexWarning, match=match):
            a = holdall.open(path)
        assert a.index is None and list(a) == ["a", "b"]

    path.write_bytes(b"0" + before)
    refused("bytes")
    path.write_bytes(b"0" + before[1:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    refused("another beginning")
    path.write_bytes(before[:15_000] + b"0" + before[15_001:])
    refused("other content")
    path.write_bytes(before)  # a short archive is compared whole
    assert holdall.open(path).index is not None
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns // 10**9 * 10**9))
    assert holdall.open(path).index is not None  # a store that knows seconds only
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert holdall.open(path).index is not None
    other = index(pack({"c": b"3"}, "y.tar"))
    with pytest.raises(holdall.StaleIndexError):
        holdall.open(other, index=named)
    with (tmp_path / "y.tar").open("ab") as f:
        f.write(bytes(512))
    with pytest.warns(holdall.StaleIndexWarning):
        assert holdall.open(other).index is None


@pytest.mark.parametrize("name", ["x.caf", "x.tar", "x.zip", "x.rvn", "x.lindi.tar", "x.bundle"])
def test_an_archive_can_be_copied_with_its_index(pack, index, tmp_path, name):
    pytest.importorskip("blake3")
    files = some_files(4) | {"long": os.urandom(2 << 20)}
    path = index(pack(files, name), "--chunk-digests=64KiB")
    later = path.parent / (name + ".holdall")
    os.utime(later, (later.stat().st_atime, later.stat().st_mtime + 100))
    for p in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(p)
    a = holdall.open(path)
    assert a.index is not None and a.verifies
    assert {n: a[n] for n in a if n in files} == files and a.read_many(list(files)) == list(files.values())
    assert a.read("long", 70_000, 70_010) == files["long"][70_000:70_010]
    if not path.is_dir():
        data = bytearray(path.read_bytes())
        for at in range(10_000, len(data) - 10_000, len(data) // 20):
            data[at] ^= 4
            path.write_bytes(data)
            data[at] ^= 4
            b = holdall.open(path)
            for n in files:
                with suppress(holdall.HoldallError):
                    assert b[n] == files[n]
        path.write_bytes(data)
    os.utime(path / "shard-00000000" if path.is_dir() else path, (1e10, 1e10))
    if name in ("x.caf", "x.lindi.tar", "x.tar", "x.zip"):
        with pytest.warns(holdall.StaleIndexWarning, match="the archive is newer"):
            assert holdall.open(path)["long"] == files["long"]
    else:
        with pytest.raises(holdall.StaleIndexError, match="the archive is newer"):
            holdall.open(path)


def test_of_a_copy_only_what_is_proven_is_read(pack, index):
    path = index(pack({"a": b"1", "long": os.urandom(2 << 20)}, "x.tar"))
    os.utime(path)
    os.utime(str(path) + ".holdall")
    with pytest.raises(holdall.StaleIndexError, match="cannot be compared"):
        holdall.open(path, index=str(path) + ".holdall")


def test_folders_are_told_from_what_they_were(pack, index):
    path = index(pack(some_files(4), "x.bundle"))
    assert holdall.open(path).format == "databundle"
    shard = next(path.glob("shard-*"))
    stat = shard.stat()
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**12))
    with pytest.raises(holdall.StaleIndexError, match="the archive is newer"):
        holdall.open(path)
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    holdall.open(path)
    (path / "more").write_bytes(b"")
    with pytest.raises(holdall.StaleIndexError, match="/more is new"):
        holdall.open(path)
    (path / "more").unlink()
    shard.unlink()
    with pytest.raises(holdall.StaleIndexError, match="is gone"):
        holdall.open(path)


def test_views(pack, index):
    zarr = {".zgroup": b'{"zarr_format": 2}', "x/.zarray": b"{}", "x/0": bytes(range(256)) * 10, "x/1": b"\x80short"}
    path = pack(zarr, "x.lindi.tar")
    members = holdall.open(path)
    assert members.view == "members" and "lindi.json" in members and "blobs/x/0" in members
    keys = holdall.open(path, view="zarr")
    assert keys.view == "zarr"
    assert dict(keys) == zarr
    assert keys.read_many(list(keys)) == [zarr[k] for k in keys]
    index(path)
    assert dict(holdall.open(path, view="zarr")) == zarr  # the index is of members
    assert holdall.open(path, view="members").index is not None
    with pytest.raises(holdall.UnsupportedError, match="view"):
        holdall.open(path, index=str(path) + ".holdall", view="zarr")
    index(path, "--view", "zarr")
    a = holdall.open(path, view="zarr")
    assert a.index is not None and dict(a) == zarr
    assert holdall.open(path).view == "members"
    with pytest.raises(holdall.UnsupportedError, match="view"):
        holdall.open(path, view="nonsense")
    with pytest.raises(holdall.UnsupportedError, match="view"):
        holdall.open(pack({"a": b""}, "y.caf"), view="zarr")


def test_a_notebook_shows_what_is_in_it(pack):
    files = {f"pictures/{i:03}.png": bytes(1000) for i in range(50)} | {f"sub{i}/x.txt": b"text" for i in range(15)}
    files |= {"<script>alert(1)</script>&.txt": b"x", "line\u2028break": b"y", "zarr/0.0": bytes(300)}
    with holdall.open(pack(files, "x.caf", index=True)) as a:
        page = a._repr_html_()
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;" in page and "line\\u2028break" in page and "\u2028" not in page
    assert f"{len(files):,} files" in page and "pictures" in page and "arrays" in page and "and 30 more" in page
    assert page.count("<details") == page.count("</details>") <= 12 and page.count("<div") == page.count("</div>")
    assert len(page) < 40_000
    with holdall.open(pack({}, "empty.caf")) as a:
        assert "0 files" in a._repr_html_()
    with holdall.open(pack({f"{i}/{k}": b"1" for i in range(100) for k in range(20)}, "many.caf", index=True)) as a:
        page = a._repr_html_()
    assert len(page) < 40_000 and "and more" in page
