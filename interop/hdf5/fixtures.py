"""Makes the files of hdf5/testdata, and what h5py reads of them.

    "$(interop/install hdf5)" interop/hdf5/fixtures.py hdf5/testdata [SEED]

NAME.h5 and NAME.jsonl are gzipped, since most of a small file is empty. In NAME.jsonl is what
describe.py says of the file; of more than 500 chunks it is only their number.
"""
import ctypes, glob, gzip, json, os, sys

import h5py
import hdf5plugin
import numpy as np

from describe import describe

OUT = os.path.abspath(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 7
VERSIONS = {"earliest": ("earliest", "v108"), "v108": ("v108", "v108"), "v110": ("v110", "v110"), "v112": ("v112", "v112"), "latest": ("latest", "latest")}
# What h5py has no function for.
LIB = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), "..", "h5py.libs", "libhdf5-*"))[0])
LIB.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
LIB.H5Pset_nbit.argtypes = [ctypes.c_int64]
LIB.H5Pset_istore_k.argtypes = [ctypes.c_int64, ctypes.c_uint]
LIB.H5Pset_sym_k.argtypes = [ctypes.c_int64, ctypes.c_uint, ctypes.c_uint]
LIB.H5Pset_shared_mesg_nindexes.argtypes = [ctypes.c_int64, ctypes.c_uint]
LIB.H5Pset_shared_mesg_index.argtypes = [ctypes.c_int64] + 3 * [ctypes.c_uint]

rng = np.random.default_rng(SEED)


def shared(path, libver):
    """A file whose object headers share messages, in two heaps."""
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    LIB.H5Pset_shared_mesg_nindexes(create.id, 2)
    LIB.H5Pset_shared_mesg_index(create.id, 0, 1 << 12, 20)  # attributes
    LIB.H5Pset_shared_mesg_index(create.id, 1, 1 << 1 | 1 << 3 | 1 << 5 | 1 << 11, 5)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    bound = {"v108": h5py.h5f.LIBVER_V18, "latest": h5py.h5f.LIBVER_LATEST}
    access.set_libver_bounds(*[bound[v] for v in libver])
    return h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, create, access))


def odd(path, libver):
    """A file of short addresses, whose B-trees have small nodes."""
    create = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    create.set_sizes(4, 4)
    LIB.H5Pset_istore_k(create.id, 3)
    LIB.H5Pset_sym_k(create.id, 2, 3)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    bound = {"earliest": h5py.h5f.LIBVER_EARLIEST, "v108": h5py.h5f.LIBVER_V18}
    access.set_libver_bounds(*[bound[v] for v in libver])
    return h5py.File(h5py.h5f.create(path.encode(), h5py.h5f.ACC_TRUNC, create, access))


def write(name, fill, make=None, **options):
    path = os.path.join(OUT, name + ".h5")
    with make(path, **options) if make else h5py.File(path, "w", **options) as f:
        fill(f)
    with open(path, "rb") as f:
        compress(name + ".h5", f.read())
    lines = list(describe(path))
    for line in lines:
        if len(line.get("pieces", [])) > 500:
            line["pieces"] = len(line["pieces"])
    compress(name + ".jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    os.remove(path)


def compress(name, content):
    with open(os.path.join(OUT, name + ".gz"), "wb") as f:
        f.write(gzip.compress(content, 9, mtime=0))


def kinds(f):
    """Types, spaces and layouts that do not lie in chunks."""
    for dt in ["i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", ">u8", "<f2", ">f4", "<f8", "?", "<c8", ">c16", "S5", "V3"]:
        t = np.dtype(dt)
        raw = rng.integers(0, 255, 6 * t.itemsize, dtype="u1").tobytes()
        v = np.frombuffer(raw, t) if t.kind not in "b" else np.array([1, 0, 1, 1, 0, 0], "?")
        f[f"types/{dt.replace('<', 'le_').replace('>', 'be_').replace('?', 'bool')}"] = v.reshape(2, 3)
    f["types/nan"] = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.5, 65504])
    f["types/longdouble"] = np.array([1.5, -0.1, 1e300, 0, np.inf], "g")
    f["types/vlen_str"] = np.array(["", "a", "µ∂é", "x" * 300], object)
    f["types/vlen_bytes"] = np.array([b"", b"\xff\xfe", b"zz"], object)
    d = f.create_dataset("types/ragged", (4,), h5py.vlen_dtype("<i2"))
    for i, n in enumerate([0, 3, 1, 40]):
        d[i] = np.arange(n)
    d = f.create_dataset("types/ragged_str", (2,), np.dtype([("a", h5py.string_dtype()), ("b", "<i4", (2,)), ("c", h5py.vlen_dtype("<f4"))]))
    d[0] = ("one", [1, 2], np.arange(3, dtype="<f4"))
    d[1] = ("", [3, 4], np.arange(0, dtype="<f4"))
    e = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": -5}, "i2")
    f.create_dataset("types/enum", data=np.array([0, 1, -5], "i2"), dtype=e)
    inner = np.dtype([("x", "<f8"), ("y", ">i2", (2, 2))])
    f["types/compound"] = np.frombuffer(rng.integers(0, 99, 3 * (inner.itemsize + 9), dtype="u1").tobytes(), np.dtype([("p", inner), ("name", "S8"), ("k", "u1")]))
    f["types/padded"] = np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["u1", "<i8"], "offsets": [3, 16], "itemsize": 32}))
    f["types/utf8_fixed"] = np.array(["é".encode(), b"b"], h5py.string_dtype("utf-8", 7))
    f["spaces/scalar"] = np.float32(2.5)
    f["spaces/string"] = "hello"
    f.create_dataset("spaces/null", data=h5py.Empty("f4"))
    f.create_dataset("spaces/empty", (0, 3), "i4")
    f.create_dataset("spaces/never_written", (4, 5), "i4", fillvalue=-7)
    f.create_dataset("spaces/rank5", data=np.arange(2 * 1 * 3 * 2 * 2, dtype="u2").reshape(2, 1, 3, 2, 2))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    s = h5py.h5s.create_simple((3, 4))
    h5py.h5d.create(f["spaces"].id, b"compact", h5py.h5t.STD_I32BE, s, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(12, dtype="i4"))
    f["types/committed"] = np.dtype("<f4")
    f.create_dataset("uses_committed", data=np.arange(3, dtype="f4"), dtype=f["types/committed"])
    f["uses_committed"].attrs.create("also", np.float32(9), dtype=f["types/committed"])
    f["refs/objects"] = np.array([f["types"].ref, f["spaces/rank5"].ref, h5py.Reference()], h5py.ref_dtype)
    d = f["spaces/rank5"]
    f.create_dataset("refs/regions", data=np.array([d.regionref[0:1, :, 1:3], h5py.RegionReference()], h5py.regionref_dtype), dtype=h5py.regionref_dtype)
    plain = h5py.h5t.FLOAT if hasattr(h5py.h5t, "FLOAT") else None
    t = h5py.h5t.STD_I32LE.copy()
    t.set_precision(13)
    t.set_offset(5)
    h5py.h5d.create(f["types"].id, b"few_bits", t, s).write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(-6, 6, dtype="i4"))
    t = h5py.h5t.STD_B16BE
    space = h5py.h5s.create_simple((3,))
    h5py.h5d.create(f["types"].id, b"bitfield", t, space)


def attributes(f):
    f.attrs["string"] = "text"
    f.attrs["bytes"] = np.bytes_(b"fixed")
    f.attrs["number"] = 42
    f.attrs["nan"] = float("nan")
    f.attrs["list"] = np.arange(10, dtype=">i2").reshape(2, 5)
    f.attrs["strings"] = ["a", "", "ccc"]
    f.attrs["null"] = h5py.Empty("i4")
    f.attrs["flag"] = True
    f.attrs["row"] = np.array((1, 2.5), np.dtype([("a", "i4"), ("b", "f8")]))
    g = f.create_group("many")
    f.attrs["group"] = g.ref
    for i in range(60):
        g.attrs[f"a{i:03}"] = i if i % 3 else f"value {i}"
    h = f.create_group("ordered", track_order=True)
    for name in "zyxabc":
        h.attrs[name] = name * 3
    if f.libver[0] != "earliest":
        f.create_group("large").attrs["long"] = rng.integers(0, 9, 6000, dtype="u1")
    f.create_group("µ").attrs["naïve"] = "ü"


def links(f):
    g = f.create_group("a/b/c")
    g["data"] = np.arange(4)
    f["hard"] = g["data"]
    f["soft"] = h5py.SoftLink("/a/b/c/data")
    f["relative"] = h5py.SoftLink("a/b/../nothing")
    f["a/up"] = h5py.SoftLink("b/c/data")
    f["loop1"] = h5py.SoftLink("loop2")
    f["loop2"] = h5py.SoftLink("/loop1")
    f["a/b/cycle"] = f["a"]
    f["outside"] = h5py.ExternalLink("other.h5", "/x/y")
    many = f.create_group("many")
    for i in range(300):
        many[f"soft link number {i:05}"] = h5py.SoftLink(f"/target/{i}")
    for i in range(40):
        many.create_group(f"g{i}")
    order = f.create_group("ordered", track_order=True)
    for n in ["zz", "b", "aa", "long " * 120]:
        order[n] = h5py.SoftLink(n)
    if f.libver[0] != "earliest":
        huge = f.create_group("huge")
        for i in range(12):
            huge[f"{i}" + "n" * 5000] = h5py.SoftLink("t")
    f.create_group("empty")


def chunks(f):
    """Every index of chunks."""
    def make(name, shape, chunk, dtype="<i4", maxshape=None, **o):
        d = f.create_dataset(name, shape, dtype, chunks=chunk, maxshape=maxshape, **o)
        d[...] = (np.arange(int(np.prod(shape)), dtype="i8") * 7 % 1000).reshape(shape).astype(dtype)
        return d

    make("single", (7, 5), (7, 5))
    make("single_gzip", (7, 5), (7, 5), compression="gzip")
    make("fixed", (20, 30), (3, 7))
    make("fixed_gzip", (20, 30), (3, 7), compression="gzip", shuffle=True, fletcher32=True)
    make("fixed_max", (9, 10), (4, 4), maxshape=(20, 30))
    make("growing", (50, 6), (1, 4), maxshape=(None, 6))
    make("growing_gzip", (80, 6), (1, 4), maxshape=(None, 6), compression="gzip")
    make("growing_last", (3, 2, 40), (2, 1, 3), maxshape=(5, 3, None))
    make("growing_both", (30, 30), (4, 5), maxshape=(None, None))
    make("growing_both_gzip", (30, 30), (4, 5), maxshape=(None, None), compression="gzip")
    make("big_endian", (17,), (4,), ">f8", shuffle=True)
    d = f.create_dataset("sparse", (1000, 1000), "<i2", chunks=(10, 10), fillvalue=5)
    d[500:511, 3] = 1
    d[0, 0] = 2
    d = f.create_dataset("sparse_growing", (100000,), "<i2", chunks=(10,), maxshape=(None,), fillvalue=-1)
    d[5] = 1
    d[99995] = 2
    f.create_dataset("nothing_written", (10,), "<f4", chunks=(3,), fillvalue=np.nan)
    shrunk = make("shrunk", (20,), (3,), maxshape=(None,))
    shrunk.resize((8,))
    d = f.create_dataset("strings", (10,), h5py.string_dtype(), chunks=(4,))
    d[2:9] = [f"s{i}" * i for i in range(7)]
    space = h5py.h5s.create_simple((10, 6))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 4))
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    h5py.h5d.create(f.id, b"implicit", h5py.h5t.STD_I16LE, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(60, dtype="i2"))
    if f.libver[0] not in ("earliest", "v108"):
        # Chunks at the edges are not filtered.
        for name, maxshape in [("plain_edges", (10, 6)), ("plain_edges_growing", (h5py.h5s.UNLIMITED, 6)), ("plain_edges_both", 2 * (h5py.h5s.UNLIMITED,))]:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((4, 4))
            plist.set_deflate(4)
            LIB.H5Pset_chunk_opts(plist.id, 2)
            space = h5py.h5s.create_simple((10, 6), maxshape)
            h5py.h5d.create(f.id, name.encode(), h5py.h5t.STD_I16LE, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(60, dtype="i2"))


def paged(f):
    """Arrays whose indexes have pages, and trees of some levels."""
    for name, maxshape in [("fixed", None), ("growing", (None,)), ("both", (None, None))]:
        shape = (3000, 1) if name == "both" else (3000,)
        chunk = (1, 1) if name == "both" else (1,)
        d = f.create_dataset(name, shape, "u1", chunks=chunk, maxshape=maxshape)
        d[...] = (np.arange(3000) % 251).astype("u1").reshape(shape)
    # Far apart, so that pages between are missing.
    for name, n, maxshape in [("holes", 9000, None), ("growing_holes", 140000, (None,))]:
        d = f.create_dataset(name, (n,), "u1", chunks=(1,), maxshape=maxshape)
        d[3] = d[n // 2] = d[n - 1] = 9


def far(f):
    """The nodes of a tree of 10,000 chunks lie between these."""
    f.create_dataset("x", data=np.zeros((10000, 90)), chunks=(1, 90))


def sharing(f):
    for i in range(30):
        d = f.create_dataset(f"d{i}", data=np.arange(i % 5 + 2), fillvalue=i % 3, chunks=(2,), compression="gzip")
        d.attrs["same"] = "a text of all " * 3
        d.attrs["list"] = np.arange(20)
    for i in range(20):
        f["d0"].attrs[f"list {i}"] = np.arange(20) * (i % 4)
        f["d0"].attrs[f"short {i}"] = np.int8(i)


def filters(f):
    v = (np.arange(3000, dtype="<i4") * 3 // 10).reshape(60, 50)
    for name, o in {
        "gzip": dict(compression="gzip"), "gzip_shuffle": dict(compression="gzip", shuffle=True), "fletcher32": dict(fletcher32=True),
        "all": dict(compression="gzip", shuffle=True, fletcher32=True), "lzf": dict(compression="lzf"), "lzf_shuffle": dict(compression="lzf", shuffle=True),
        "lz4": hdf5plugin.LZ4(), "lz4_blocks": hdf5plugin.LZ4(nbytes=512), "zstd": hdf5plugin.Zstd(), "bzip2": hdf5plugin.BZip2(),
        "blosc_lz4": hdf5plugin.Blosc(cname="lz4"), "blosc_zstd": hdf5plugin.Blosc(cname="zstd", shuffle=2), "blosc_blosclz": hdf5plugin.Blosc(cname="blosclz"),
        "blosc_zlib": hdf5plugin.Blosc(cname="zlib", shuffle=0), "blosc2": hdf5plugin.Blosc2(), "blosc2_bits": hdf5plugin.Blosc2(cname="zstd", filters=2), "blosc2_delta": hdf5plugin.Blosc2(cname="lz4", filters=3),
        "bitshuffle": hdf5plugin.Bitshuffle(), "bitshuffle_zstd": hdf5plugin.Bitshuffle(cname="zstd", nelems=64), "bitshuffle_plain": hdf5plugin.Bitshuffle(cname="none"),
        "szip": dict(compression="szip"), "szip_coded": dict(compression="szip", compression_opts=("ec", 16)), "scaleoffset": dict(scaleoffset=0), "scaleoffset_filled": dict(scaleoffset=0, fillvalue=30),
    }.items():
        f.create_dataset(name, data=v, chunks=(25, 20), **o)
    noise = rng.integers(0, 256, 1500, dtype="u1")
    for name, o in {"noise_lzf": dict(compression="lzf"), "noise_lz4": hdf5plugin.LZ4(), "noise_gzip": dict(compression="gzip"), "noise_blosc": hdf5plugin.Blosc()}.items():
        f.create_dataset(name, data=noise, chunks=(499,), **o)
    f.create_dataset("szip_wide", data=v.astype(">f8") / 7, chunks=(25, 20), compression="szip")
    f.create_dataset("scaleoffset_float", data=v.astype("f4") / 8, chunks=(25, 20), scaleoffset=2)
    f.create_dataset("scaleoffset_signed", data=(v - 500).astype(">i2"), chunks=(25, 20), scaleoffset=0)
    f.create_dataset("blosc2_row", data=v.ravel(), chunks=(700,), **hdf5plugin.Blosc2(cname="blosclz"))
    f.create_dataset("blosc2_same", data=np.full(3000, 7, "<i4"), chunks=(700,), **hdf5plugin.Blosc2())
    nbit = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    nbit.set_chunk((25, 20))
    LIB.H5Pset_nbit(nbit.id)
    number, row = h5py.h5t.STD_I32BE.copy(), h5py.h5t.create(h5py.h5t.COMPOUND, 24)
    number.set_precision(19)
    number.set_offset(3)
    row.insert(b"a", 2, number)
    row.insert(b"b", 8, h5py.h5t.array_create(number, (2,)))
    row.insert(b"c", 18, h5py.h5t.py_create(np.dtype("S5")))
    for name, t, value in [("nbit", number, v), ("nbit_row", row, np.array([(i, [i, -i], b"text") for i in range(3000)], [("a", "<i4"), ("b", "<i4", 2), ("c", "S5")]).reshape(60, 50))]:
        d = h5py.h5d.create(f.id, name.encode(), t, h5py.h5s.create_simple((60, 50)), nbit)
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, value)
    # A chunk that was written past the filters.
    d = f.create_dataset("masked", (4, 4), "u1", chunks=(2, 4), compression="gzip", shuffle=True)
    d[...] = 7
    d.id.write_direct_chunk((0, 0), bytes(range(8)), filter_mask=3)
    import zlib as z
    d.id.write_direct_chunk((2, 0), z.compress(bytes(range(8, 16))), filter_mask=1)


def refused(f):
    f["source"] = np.arange(10)
    if f.libver[0] != "earliest":
        layout = h5py.VirtualLayout((10,), "i8")
        layout[:] = h5py.VirtualSource(f["source"])
        f.create_virtual_dataset("virtual", layout)
    f.create_dataset("external", (10,), "i4", external=[("elsewhere.bin", 0, 40)])
    f["good"] = np.arange(5)


os.makedirs(OUT, exist_ok=True)
for v, bounds in VERSIONS.items():
    write("kinds_" + v, kinds, libver=bounds)
    write("attributes_" + v, attributes, libver=bounds)
    if v != "v112":
        write("links_" + v, links, libver=bounds)
        write("chunks_" + v, chunks, libver=bounds)
for v in ["earliest", "latest"]:
    write("paged_" + v, paged, libver=VERSIONS[v])
    write("shared_" + ("v108" if v == "earliest" else v), sharing, shared, libver=("v108", "v108") if v == "earliest" else ("latest", "latest"))
    write("filters_" + v, filters, libver=VERSIONS[v])
    write("far_" + v, far, libver=VERSIONS[v])
    write("refused_" + v, refused, libver=VERSIONS[v])
write("odd_earliest", links, odd, libver=VERSIONS["earliest"])
write("odd_v108", chunks, odd, libver=VERSIONS["v108"])
write("user_block_earliest", attributes, libver=VERSIONS["earliest"], userblock_size=512)
write("user_block_latest", chunks, libver=VERSIONS["latest"], userblock_size=2048)
