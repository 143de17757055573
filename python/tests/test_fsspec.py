"""Archives by address: what others read by fsspec they read out of an archive."""

import pickle

import pytest

fsspec = pytest.importorskip("fsspec")

import holdall  # noqa: E402
from holdall.fsspec import HoldallFileSystem  # noqa: E402

FILES = {
    "a.txt": b"alpha",
    "d/b.txt": b"beta " * 1000,
    "d/e/c.bin": bytes(range(256)) * 300,
    "d-x/f": b"f",
    "d/empty": b"",
    "über/ß [1].txt": b"unicode",
}


@pytest.fixture(params=["caf", "tar"])
def archive(request, pack, holdall_command):
    return pack(FILES, f"x.{request.param}", index=True)


@pytest.fixture(params=["path", "file", "http", "memory"])
def address(request, archive, serve, pack):
    if request.param == "path":
        return str(archive)
    if request.param == "file":
        return f"file://{archive}"
    if request.param == "http":
        pytest.importorskip("aiohttp")
        return f"{serve(archive.parent)}/{archive.name}"
    # An index is of an archive of one time, which a copy in memory has not.
    archive = pack(FILES, "y.caf")
    fsspec.filesystem("memory").pipe("/y.caf", archive.read_bytes())
    return "memory://y.caf"


def test_contents_by_address(address):
    for name in ("a.txt", "d/b.txt", "d/e/c.bin", "d/empty"):
        with fsspec.open(f"holdall://{name}::{address}") as f:
            assert f.read() == FILES[name]
        with fsspec.open(f"holdall://{name}::{address}") as f:
            f.seek(2)
            assert f.read(3) == FILES[name][2:5]
            f.seek(max(0, len(FILES[name]) - 3))
            assert f.read() == FILES[name][-3:]
    files = fsspec.open_files(f"holdall://d/**/*.*::{address}")
    assert [f.path for f in files] == ["d/b.txt", "d/e/c.bin"]


def test_a_file_system_has_what_the_archive_has(address):
    fs, path = fsspec.url_to_fs(f"holdall::{address}")
    assert path == "" and isinstance(fs, HoldallFileSystem)
    assert fs.find("") == sorted(FILES)
    assert fs.ls("", detail=False) == ["a.txt", "d", "d-x", "über"]
    assert fs.ls("d", detail=False) == ["d/b.txt", "d/e", "d/empty"]
    assert fs.ls("/d/") == fs.ls("holdall://d")
    assert fs.ls("a.txt", detail=False) == ["a.txt"]
    assert fs.info("d") == {"name": "d", "size": 0, "type": "directory"}
    assert fs.info("d/b.txt") == {"name": "d/b.txt", "size": 5000, "type": "file"}
    assert fs.isdir("d/e") and not fs.isdir("a.txt") and fs.isfile("a.txt") and not fs.isfile("d")
    assert fs.exists("d/e/c.bin") and not fs.exists("d/e/c") and not fs.exists("e")
    assert fs.glob("d*/*") == ["d-x/f", "d/b.txt", "d/e", "d/empty"]
    assert fs.glob("**/*.txt") == ["a.txt", "d/b.txt", "über/ß [1].txt"]
    assert fs.du("") == sum(map(len, FILES.values()))
    assert [(top, sorted(dirs), sorted(files)) for top, dirs, files in fs.walk("d")] == [
        ("d", ["e"], ["b.txt", "empty"]),
        ("d/e", [], ["c.bin"]),
    ]
    assert fs.find("d", maxdepth=1) == ["d/b.txt", "d/empty"]
    assert fs.find("d", withdirs=True) == ["d", "d/b.txt", "d/e", "d/e/c.bin", "d/empty"]
    assert fs.find("d/b.txt") == ["d/b.txt"] and fs.find("nowhere") == []


def test_cat(address):
    fs = fsspec.url_to_fs(f"holdall::{address}")[0]
    assert fs.cat("a.txt") == b"alpha"
    assert fs.cat_file("a.txt", 1, 3) == b"lp" and fs.cat_file("a.txt", start=-2) == b"ha"
    assert fs.cat(["a.txt"]) == {"a.txt": b"alpha"}
    assert fs.cat("d", recursive=True) == {name: FILES[name] for name in FILES if name.startswith("d/")}
    some = fs.cat(["d/b.txt", "nowhere", "a.txt"], on_error="return")
    assert isinstance(some.pop("nowhere"), FileNotFoundError)
    assert some == {"d/b.txt": FILES["d/b.txt"], "a.txt": b"alpha"}
    assert fs.cat(["nowhere", "a.txt"], on_error="omit") == {"a.txt": b"alpha"}
    with pytest.raises(FileNotFoundError):
        fs.cat(["nowhere", "a.txt"])
    assert fs.cat_ranges(["a.txt", "d/b.txt"], [0, 5], [2, 9]) == [b"al", b"beta"]


def test_what_is_not_there(address):
    fs = fsspec.url_to_fs(f"holdall::{address}")[0]
    for ask in (fs.info, fs.ls, fs.cat, fs.cat_file, fs.open):
        with pytest.raises(FileNotFoundError):
            ask("nowhere")
    with pytest.raises(IsADirectoryError):
        fs.open("d")
    with pytest.raises(OSError, match="[Rr]ead-only"):
        fs.open("a.txt", "wb")


def test_many_files_are_read_together(pack, serve):
    pytest.importorskip("aiohttp")
    archive = pack({f"{n:03}": b"%d" % n * 100 for n in range(300)}, "x.caf", index=True)
    fs = fsspec.url_to_fs(f"holdall::{serve(archive.parent)}/x.caf")[0]
    fs.cat("000")
    serve.asked.clear()
    assert len(fs.cat([f"{n:03}" for n in range(300)])) == 300
    assert len(serve.asked) < 10


def test_damage_is_an_error(pack):
    archive = pack({"a": b"a" * 100, "b": b"b" * 100}, "x.caf")
    damaged = bytearray(archive.read_bytes())
    damaged[damaged.index(b"aaa")] ^= 1
    archive.write_bytes(damaged)
    fs = HoldallFileSystem(str(archive))
    if not fs.archive.verifies:
        pytest.skip("contents are not compared without blake3")
    with pytest.raises(holdall.DamagedError):
        fs.cat("a")
    with pytest.raises(holdall.DamagedError):
        fs.cat(["a", "b"])
    some = fs.cat(["a", "b"], on_error="return")
    assert isinstance(some["a"], holdall.DamagedError) and some["b"] == b"b" * 100


def test_a_file_system_goes_to_other_processes(address):
    fs = fsspec.url_to_fs(f"holdall::{address}")[0]
    again = pickle.loads(pickle.dumps(fs))
    assert again.find("") == fs.find("") and again.cat("a.txt") == b"alpha"
    assert again.ukey("a.txt") == fs.ukey("a.txt") != fs.ukey("d/b.txt")
    mapper = pickle.loads(pickle.dumps(fsspec.get_mapper(f"holdall://d::{address}")))
    assert sorted(mapper) == ["b.txt", "e/c.bin", "empty"]
    assert mapper["b.txt"] == FILES["d/b.txt"] and mapper.getitems(["empty"]) == {"empty": b""}


def test_names_that_are_no_paths_are_left_out():
    class Archive(dict):
        names = ["../up", "/abs", "a", "b//c", "d/e"]

        def __len__(self):
            return len(self.names)

        def name(self, number):
            return self.names[number]

        def info(self, which):
            return holdall.Info(self.names[which], "file", 1, which)

    fs = HoldallFileSystem.__new__(HoldallFileSystem)
    from holdall.tree import Tree

    fs.archive = Archive()
    fs._tree = Tree(fs.archive)
    assert fs.find("") == ["a", "d/e"] and fs.ls("", detail=False) == ["a", "d"]


def test_pandas_and_pyarrow_read_tables(pack, serve, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("aiohttp")
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    frame = pandas.DataFrame({"n": range(200_000), "x": [f"text {n % 977}" for n in range(200_000)]})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=20_000)
    frame[:100].to_csv(tmp_path / "t.csv", index=False)
    files = {f"tables/t.{kind}": (tmp_path / f"t.{kind}").read_bytes() for kind in ("parquet", "csv")}
    archive = pack(files, "x.caf", index=True)
    address = f"{serve(archive.parent)}/x.caf"

    assert pandas.read_parquet(f"holdall://tables/t.parquet::{address}").equals(frame)
    assert pandas.read_csv(f"holdall://tables/t.csv::{archive}").equals(frame[:100])
    fs = fsspec.url_to_fs(f"holdall::{address}")[0]
    serve.asked.clear()
    part = parquet.ParquetFile(fs.open("tables/t.parquet")).read_row_group(3, columns=["n"])
    assert part["n"].to_pylist() == list(range(60_000, 80_000))
    read = sum(int(r.split("-")[1]) - int(r.removeprefix("bytes=").split("-")[0]) + 1 for _, r in serve.asked if r)
    assert read < len(files["tables/t.parquet"]) / 2, "read by ranges"
    table = parquet.read_table("tables/t.parquet", filesystem=PyFileSystem(FSSpecHandler(fs)))
    assert table.num_rows == 200_000


def test_dask_reads_tables(pack):
    dataframe = pytest.importorskip("dask.dataframe")
    archive = pack({f"part-{n}.csv": b"n\n" + b"".join(b"%d\n" % i for i in range(100 * n, 100 * n + 100)) for n in range(4)}, "x.caf")
    assert dataframe.read_csv(f"holdall://part-*.csv::{archive}")["n"].sum().compute(scheduler="synchronous") == sum(range(400))
