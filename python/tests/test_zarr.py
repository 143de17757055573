"""Arrays in archives, with zarr 3 by a store and with zarr 2 by fsspec."""

import asyncio
import pickle
import subprocess

import pytest

zarr = pytest.importorskip("zarr")
np = pytest.importorskip("numpy")

import holdall  # noqa: E402

ZARR3 = int(zarr.__version__.split(".")[0]) >= 3
zarr3 = pytest.mark.skipif(not ZARR3, reason="of zarr 3")

X = np.arange(60_000, dtype="f4").reshape(300, 200)
TEXT = "mind the gap"


def written(folder, version):
    """A hierarchy with an array in a group, as files."""
    if ZARR3:
        group = zarr.create_group(str(folder), zarr_format=version, attributes={"title": TEXT})
        group.create_array("sub/x", data=X, chunks=(50, 50))
    else:
        group = zarr.open_group(str(folder), mode="w")
        group.attrs["title"] = TEXT
        group.create_dataset("sub/x", data=X, chunks=(50, 50))
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(params=[2, 3] if ZARR3 else [2])
def files(request, tmp_path):
    return written(tmp_path / "hierarchy", request.param)


@pytest.fixture(params=["path", "http"])
def where(request, serve):
    if request.param == "http":
        pytest.importorskip("aiohttp")
    return (lambda path: str(path)) if request.param == "path" else lambda path: f"{serve(path.parent)}/{path.name}"


@pytest.fixture
def lindi(tmp_path, holdall_command):
    """A LINDI archive of a zarr 2 hierarchy."""
    written(tmp_path / "v2", 2)
    command = [holdall_command, "pack", "--no-sync", "-q", "-f", "lindi", "-o", str(tmp_path / "x.lindi.tar"), str(tmp_path / "v2")]
    subprocess.run(command, check=True)
    return tmp_path / "x.lindi.tar"


def same(group):
    assert group.attrs["title"] == TEXT
    x = group["sub/x"]
    assert x.shape == X.shape and (x[:] == X).all() and (x[17:63, 3] == X[17:63, 3]).all()


@zarr3
@pytest.mark.parametrize("index", [False, True])
def test_arrays_by_a_store(pack, files, where, index):
    from holdall.zarr import Store

    store = Store(where(pack(files, "x.caf", index=index)))
    same(zarr.open_group(store, mode="r"))
    assert [name for name, _ in zarr.open_group(store, mode="r").members()] == ["sub"]
    same(zarr.open_group(pickle.loads(pickle.dumps(store)), mode="r"))
    with pytest.raises(ValueError):
        zarr.open_group(store, mode="a").attrs["title"] = "other"


@zarr3
def test_shards_are_read_by_ranges(pack, tmp_path, serve):
    from holdall.zarr import Store

    zarr.create_array(str(tmp_path / "z"), data=X, chunks=(10, 10), shards=(300, 200), compressors=None)
    archive = pack({str(p.relative_to(tmp_path / "z")): p.read_bytes() for p in (tmp_path / "z").rglob("*") if p.is_file()}, "x.caf", index=True)
    x = zarr.open_array(Store(f"{serve(archive.parent)}/x.caf", verify=False), mode="r")
    serve.asked.clear()
    assert (x[20:25, 30:35] == X[20:25, 30:35]).all()
    read = sum(int(r.split("-")[1]) - int(r.removeprefix("bytes=").split("-")[0]) + 1 for _, r in serve.asked if r)
    assert read < X.nbytes / 10


@zarr3
def test_a_store_has_what_the_archive_has(pack, where):
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import default_buffer_prototype

    from holdall.zarr import Store

    files = {"zarr.json": b"{}", "a/zarr.json": b"{}", "a/c/0/0": b"0123456789", "a/c/0/1": b"", "ab/c": b"c"}
    archive = where(pack({f"top/{name}": content for name, content in files.items()} | {"other": b""}, "x.caf", index=True))
    store = Store(archive, "top")
    proto = default_buffer_prototype()

    async def all(keys):
        return sorted([key async for key in keys])

    async def look():
        async def get(key, some=None):
            got = await store.get(key, proto, some)
            return None if got is None else got.to_bytes()

        for name, content in files.items():
            assert await get(name) == content and await store.exists(name)
            assert await store.getsize(name) == len(content)
        assert await get("a") is None and await get("a/c/1/0") is None and not await store.exists("a/c")
        assert await get("a/c/0/0", RangeByteRequest(2, 5)) == b"234"
        assert await get("a/c/0/0", OffsetByteRequest(7)) == b"789"
        assert await get("a/c/0/0", SuffixByteRequest(4)) == b"6789"
        assert await get("a/c/0/0", SuffixByteRequest(40)) == b"0123456789"
        assert await get("a/c/0/0", RangeByteRequest(8, 50)) == b"89"
        some = await store.get_partial_values(proto, [("a/c/0/0", RangeByteRequest(0, 2)), ("no", None), ("ab/c", None)])
        assert [b and b.to_bytes() for b in some] == [b"01", None, b"c"]
        with pytest.raises(FileNotFoundError):
            await store.getsize("no")
        assert await all(store.list()) == sorted(files)
        assert await all(store.list_prefix("a/")) == ["a/c/0/0", "a/c/0/1", "a/zarr.json"]
        assert await all(store.list_prefix("a")) == ["a/c/0/0", "a/c/0/1", "a/zarr.json", "ab/c"]
        assert await all(store.list_dir("")) == ["a", "ab", "zarr.json"]
        assert await all(store.list_dir("a")) == await all(store.list_dir("a/")) == ["c", "zarr.json"]
        assert await all(store.list_dir("a/c/0")) == ["0", "1"] and await all(store.list_dir("b")) == []
        assert not await store.is_empty("a") and await store.is_empty("b")
        assert await store.getsize_prefix("a/") == 12
        for write in (store.set("a", proto.buffer.from_bytes(b"")), store.delete("zarr.json")):
            with pytest.raises(ValueError):
                await write

    asyncio.run(look())
    assert store.read_only and store == Store(archive, "top") == pickle.loads(pickle.dumps(store)) != Store(archive)
    with pytest.raises(ValueError):
        store.with_read_only(False)


@zarr3
@pytest.mark.parametrize("index", [False, True])
def test_lindi_by_a_store(lindi, where, holdall_command, index):
    from holdall.zarr import Store

    if index:
        subprocess.run([holdall_command, "index", "-q", "--view", "zarr", str(lindi)], check=True)
    same(zarr.open_group(Store(where(lindi), view="zarr"), mode="r"))


def test_damaged_chunks_are_errors(pack, tmp_path):
    files = written(tmp_path / "z", 2)
    archive = pack(files, "x.caf")
    chunk = max(files.values(), key=len)
    archive.write_bytes(archive.read_bytes().replace(chunk, chunk[:-1] + bytes([chunk[-1] ^ 1])))
    a = holdall.open(archive)
    if not a.verifies:
        pytest.skip("contents are not compared without blake3")
    if ZARR3:
        from holdall.zarr import Store

        group = zarr.open_group(Store(a), mode="r")
    else:
        group = zarr.open_group(fsspec.get_mapper(f"holdall::{archive}"), mode="r")
    with pytest.raises(holdall.DamagedError):
        group["sub/x"][:]


fsspec = pytest.importorskip("fsspec")


@pytest.mark.skipif(ZARR3, reason="of zarr 2")
def test_arrays_by_fsspec(pack, files, where):
    mapper = fsspec.get_mapper(f"holdall::{where(pack(files, 'x.caf', index=True))}")
    same(zarr.open_group(mapper, mode="r"))
    assert list(zarr.open_group(mapper, mode="r")) == ["sub"]
    with pytest.raises((zarr.errors.ReadOnlyError, OSError, NotImplementedError)):
        zarr.open_group(mapper, mode="r")["sub/x"][0] = 1


@pytest.mark.skipif(ZARR3, reason="of zarr 2")
def test_lindi_by_fsspec(lindi, where):
    same(zarr.open_group(fsspec.get_mapper(f"holdall::{where(lindi)}", view="zarr"), mode="r"))


@zarr3
def test_xarray_by_address(pack, tmp_path, serve):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("aiohttp")
    data = xarray.Dataset({"t": (("y", "x"), X)}, {"y": np.arange(300)})
    data.to_zarr(tmp_path / "z", consolidated=True)
    files = {str(p.relative_to(tmp_path / "z")): p.read_bytes() for p in (tmp_path / "z").rglob("*") if p.is_file()}
    archive = pack(files, "x.caf", index=True)
    address = f"{serve(archive.parent)}/x.caf"
    from holdall.zarr import Store

    for got in (xarray.open_zarr(Store(address)), xarray.open_zarr(f"holdall::{address}")):
        assert (got["t"].sel(y=17).values == X[17]).all()
        xarray.testing.assert_identical(got.load(), data)


@zarr3
def test_zarr_3_by_fsspec(lindi, where):
    """Without our store."""
    store = zarr.storage.FsspecStore.from_url(f"holdall::{where(lindi)}", storage_options={"view": "zarr"}, read_only=True)
    same(zarr.open_group(store, mode="r"))


@zarr3
def test_a_catalogue_as_a_store(files, pack, holdall_command, tmp_path):
    from holdall.zarr import Store

    archive, at = pack(files, "x.caf"), tmp_path / "x.catalog"
    for args in (["init"], ["add", archive]):
        subprocess.run([holdall_command, "catalog", *map(str, args), "--catalog", str(at)], check=True)
    store = Store(str(at))
    same(zarr.open_group(store, mode="r"))
    assert set(asyncio.run(listed(store.list()))) == set(files)
    assert set(asyncio.run(listed(store.list_dir("sub")))) == {n.split("/")[1] for n in files if n.startswith("sub/")}


async def listed(names):
    return [name async for name in names]
