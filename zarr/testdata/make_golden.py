"""Writes golden.json and blosc.json with the reference implementation.

Made with Python 3.11, zarr 2.18.7, numcodecs 0.15.2 (C-Blosc 1.21.6), numpy 2.4.6:

    python make_golden.py

golden.json: arrays, each with its keys (base64), the SHA-256 of what numpy.save
writes for it (npy), or its values as JSON (objects), or why there are none.
gzip stamps the time, so golden.json differs by a few bytes each time it is made.
../../internal/arrays/arraycodec/testdata/blosc.json: containers (base64), size and SHA-256 of what they decode to.
"""
import base64, hashlib, io, json, lzma, os, random
import numcodecs, numpy as np, zarr

HERE = os.path.dirname(os.path.abspath(__file__))
out = {}


def b64(b):
    return base64.b64encode(bytes(b)).decode()


def sha(b):
    return hashlib.sha256(b).hexdigest()


def canon(x):
    if isinstance(x, float) and not np.isfinite(x):
        return {"$float": "NaN" if np.isnan(x) else ("Infinity" if x > 0 else "-Infinity")}
    if isinstance(x, (list, tuple, np.ndarray)):
        return [canon(y) for y in x]
    if isinstance(x, dict):
        return {k: canon(v) for k, v in x.items()}
    if isinstance(x, (bytes, np.bytes_)):
        return {"$bytes": x.hex()}
    if isinstance(x, np.generic):
        return canon(x.item())
    return x


def add(name, data, chunks=None, drop=(), **kw):
    """Stores data, forgets the chunks in drop, and keeps what the reference then reads."""
    store = zarr.MemoryStore()
    data = np.asarray(data)
    z = zarr.create(data.shape, chunks=chunks or data.shape or True, dtype=kw.pop("dtype", data.dtype), store=store, **kw)
    if data.size:
        z[...] = data
    for k in drop:
        del store[k]
    keys = {k: bytes(store[k]) for k in store.keys() if k != ".zattrs"}
    keep(name, keys, zarr.open_array(store, mode="r"))


def keep(name, keys, z):
    e = {"keys": {k: b64(v) for k, v in sorted(keys.items())}}
    got = np.asarray(z[...])
    if got.dtype.kind == "O":
        e["values"] = canon(got.ravel().tolist())
    else:
        f = io.BytesIO()
        np.save(f, np.ascontiguousarray(got) if got.ndim else got)
        e["npy"] = sha(f.getvalue())
        e["descr"] = str(got.dtype)
    out[name] = e


rng = np.random.default_rng(20240506)
grid = (7, 5)
n = 35


def values(dt):
    dt = np.dtype(dt)
    k = dt.kind
    if k == "b":
        a = rng.integers(0, 2, n)
    elif k in "iu":
        i = np.iinfo(dt)
        a = rng.integers(i.min, i.max, n, dtype=dt.newbyteorder("="), endpoint=True)
    elif k == "f":
        a = rng.standard_normal(n) * 100
        a[:3] = np.nan, np.inf, -np.inf
    elif k == "c":
        a = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    elif k in "Mm":
        a = rng.integers(-10**6, 10**6, n).astype(dt)
        a[3] = "NaT"
    elif k == "S":
        a = np.array([b"abcdefgh"[: i % 6] for i in range(n)])
    elif k == "U":
        a = np.array(["a\u00e9\u4e2d\U0001f600z"[: i % 6] for i in range(n)])
    return a.astype(dt).reshape(grid)


# dtypes, edge chunks and chunks that are not there
for dt in ["|b1", "|i1", "|u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8", "<u8", ">u8",
           "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8", ">c8", "<c16", ">c16", "|S5", "<U5", ">U5",
           "<M8[ns]", ">M8[D]", "<M8[25s]", "<m8[us]", ">m8[h]"]:
    add("dtype " + dt, values(dt), (3, 2), drop=["0.1", "2.2"])
    add("dtype F " + dt, values(dt), (3, 2), order="F", drop=["1.0"])
add("dtype |V3", np.frombuffer(rng.bytes(105), dtype="V3").reshape(grid), (3, 2), drop=["1.1"])
rec = np.dtype([("a", "<i4"), ("b", ">f8"), ("it's", "|S3"), ("m", "<i2", (2, 3)), ("in", [("x", "|u1"), ("\u00fc", "<M8[s]")])])
recs = np.zeros(9, rec)
recs["a"], recs["b"], recs["it's"], recs["m"] = np.arange(9), np.linspace(0, 1, 9), b"xy", 7
recs["in"]["x"] = 3
add("structured", recs, (4,), drop=["1"])
add("structured, name beyond Latin-1", np.ones(3, [("\u0416", "<i4")]))

# fill values
for dt, fills in {"<f8": [float("nan"), float("inf"), -float("inf"), 0.1, -0.0, 3, None], "<f4": [0.1, 16777217], ">f2": [0.1, 1e-7, 65504],
                  "|b1": [True, False], "|i1": [-128, None], "<u8": [2**64 - 1], ">i8": [-2**63, 7], "<c16": [1 + 2j, complex("nan")],
                  "|S5": [b"ab\xff", b"", 0], "<U5": ["\u00e9\U0001f600", ""], ">U5": ["xyz"], "|V3": [b"abc"],
                  "<M8[s]": [np.datetime64(5, "s"), np.datetime64("NaT")], "<m8[s]": [np.timedelta64(-5, "s")]}.items():
    for f in fills:
        add(f"fill {dt} {f!r}", np.zeros(grid, dt), (3, 2), fill_value=f, drop=["0.0", "2.1"] if f is not None else [])  # without any it is undefined
add("fill structured", recs, (4,), fill_value=recs[3], drop=["0"])

# shapes
add("0-d", np.float64(3.5))
add("0-d missing", np.int32(3), fill_value=9, drop=["0"])
add("empty", np.zeros((0, 4)), (1, 4))
add("empty inside", np.zeros((3, 0, 2)), (2, 1, 2))
cube = np.arange(5 * 4 * 3 * 2, dtype="<i2").reshape(5, 4, 3, 2)
for order in "CF":
    add("4-d " + order, cube, (2, 3, 3, 1), order=order, drop=["1.1.0.1"])
    add("slash " + order, cube, (2, 4, 2, 2), order=order, dimension_separator="/", drop=["1/0/1/0"])
add("chunk larger than shape", np.arange(6), (10,))
add("plain", np.arange(100, dtype=">i4"), (30,), compressor=None)
add("many chunks", np.arange(3000, dtype="<u2"), (7,), drop=["5", "400"])

# compressors and filters
wave = np.round(np.sin(np.arange(400) / 9) * 1000).astype("<i4").reshape(20, 20)
compressors = {
    "zlib": numcodecs.Zlib(5), "gzip": numcodecs.GZip(5), "zstd": numcodecs.Zstd(3), "zstd sum": numcodecs.Zstd(1, checksum=True),
    "lz4": numcodecs.LZ4(), "bz2": numcodecs.BZ2(5), "lzma": numcodecs.LZMA(),
    "lzma crc32": numcodecs.LZMA(check=lzma.CHECK_CRC32), "lzma sha256": numcodecs.LZMA(check=lzma.CHECK_SHA256),
    "lzma no check": numcodecs.LZMA(check=lzma.CHECK_NONE), "lzma alone": numcodecs.LZMA(format=lzma.FORMAT_ALONE),
    "lzma raw": numcodecs.LZMA(format=lzma.FORMAT_RAW, filters=[dict(id=lzma.FILTER_LZMA2, preset=6)]),
    "shuffle": numcodecs.Shuffle(4), "fletcher32": numcodecs.Fletcher32(), "crc32": numcodecs.CRC32(), "adler32": numcodecs.Adler32(),
    "crc32 end": numcodecs.CRC32(location="end"), "base64": numcodecs.Base64(),
}
for c in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]:
    for s in (0, 1, 2, -1):
        compressors[f"blosc {c} {s}"] = numcodecs.Blosc(c, 5, s)
for name, c in compressors.items():
    add("compressor " + name, wave, (8, 8), compressor=c, drop=["1.1"])
noise = rng.integers(0, 256, 900, dtype="u1")
for name in ["zlib", "gzip", "zstd", "lz4", "bz2", "lzma", "blosc lz4 1"]:
    add("noise " + name, noise, (600,), compressor=compressors[name])
F = numcodecs
filters = {
    "hdf5": [F.Shuffle(4), F.Zlib(4), F.Fletcher32()], "fletcher32 odd": [F.Zlib(1), F.Fletcher32()],
    "delta": [F.Delta("<i4")], "delta i2": [F.Delta("<i4", "<i2")], "delta big": [F.Delta("<i4", ">i8")],
    "astype": [F.AsType("<i2", "<i4")], "scale": [F.FixedScaleOffset(offset=-1000, scale=2, dtype="<i4", astype="<u2")],
    "two": [F.Delta("<i4"), F.Shuffle(4)],
}
for name, f in filters.items():
    add("filters " + name, wave, (8, 8), filters=f, compressor=None if name == "hdf5" else F.Zlib(), drop=["0.1"])
real = np.sin(np.arange(100) / 9)
for dt in ["<f4", ">f8"]:
    for name, f in {"delta": F.Delta(dt), "delta i4": F.Delta(dt, "<i4"), "quantize": F.Quantize(3, dt, "<f4"), "bitround": F.BitRound(7),
                    "scale": F.FixedScaleOffset(1.5, 1000, dt, "|i1"), "scale float": F.FixedScaleOffset(offset=0.1, scale=3.7, dtype=dt, astype="<f4"),
                    "astype": F.AsType("<f4", dt)}.items():
        if name == "bitround" and dt[0] == ">":
            continue
        add(f"filters {name} {dt}", (real * 50).round(2).astype(dt) if "scale" not in name else real.astype(dt), (30,), filters=[f])
for size in (1, 8, 13):
    add(f"filters packbits {size}", rng.integers(0, 2, 29).astype(bool), (size,), filters=[F.PackBits()])

# objects
words = np.array(["alpha", "", "\u00e9\u4e2d\U0001f600", "tab\there", '"quoted"', "\ud800 lone", "c\x85\x00"], dtype=object)
mixed = np.empty((3, 3), dtype=object)
for i, v in enumerate([1, -2.5, None, True, float("nan"), float("-inf"), {"b": [1, {}], "a": "\u00fc"}, 12345678901234567890123, "x"]):
    mixed.flat[i] = v
rows = np.empty(3, dtype=object)
for i in range(3):
    rows[i] = [i, i / 3, f"r{i}", float("inf")]
J = numcodecs.JSON()
add("json2 words", words, (4,), object_codec=J, fill_value="none", dtype=object)
add("json2 missing", words[:5], (2,), object_codec=J, fill_value="none", dtype=object, drop=["1"])
for order in "CF":
    add("json2 grid " + order, mixed, (2, 2), object_codec=J, fill_value=0, dtype=object, order=order, drop=["1.0"])
add("json2 zlib", words, (7,), object_codec=J, compressor=F.Zlib(), dtype=object)
add("json2 fletcher32", words, (7,), object_codec=J, filters=[F.Fletcher32()], dtype=object)
add("vlen-utf8", words[:5], (3,), object_codec=F.VLenUTF8(), dtype=object)
add("vlen-bytes", np.array([b"a", b"\xff\x00", b""], dtype=object), (2,), object_codec=F.VLenBytes(), dtype=object)

# Blosc alone
streams = {}


def slow(size):
    """Bytes that change now and then."""
    r = random.Random(size)
    a, v = bytearray(), 0
    while len(a) < size:
        v = (v + r.choice([0, 0, 0, 1])) & 255
        a += bytes([v, (v >> 3) & 255, 0, 1]) * r.choice([1, 2, 3])
    return bytes(a[:size])


for c in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]:
    for s in (0, 1, 2):
        for ts in (1, 2, 3, 4, 8):
            for what, data, block in [("byte", b"\x07", 0), ("short", slow(90 * ts), 0), ("odd", slow(777), 0), ("blocks", slow(7000 + ts), 2048)]:
                if what in ("byte", "odd") and ts in (2, 8):
                    continue
                streams[f"{c} {s} {ts} {what}"] = (data, c, s, ts, block)
        streams[f"{c} {s} noise"] = (random.Random(1).randbytes(400), c, s, 4, 0)
    streams[f"{c} large"] = (b"".join((i // 40 * 3).to_bytes(8, "little") for i in range(60000)), c, 1, 8, 0)
    streams[f"{c} far"] = (random.Random(2).randbytes(700) + b"\0" * 20000 + random.Random(2).randbytes(700), c, 0, 1, 0)


def blosc(data, cname, shuffle, ts, block):
    usable = data if len(data) % ts == 0 else data[: len(data) // ts * ts] or data[:1]
    arr = np.frombuffer(usable, dtype="u1")
    if len(usable) % ts == 0:
        arr = arr.view(f"V{ts}") if ts not in (1, 2, 4, 8) else arr.view(f"u{ts}")
    enc = numcodecs.blosc.compress(arr, cname.encode(), 9 if cname == "blosclz" else 5, shuffle, block)
    return usable, enc


blobs = {}
for name, (data, c, s, ts, block) in streams.items():
    data, enc = blosc(data, c, s, ts, block)
    blobs[name] = {"data": b64(enc), "size": len(data), "sha256": sha(data)}

with open(os.path.join(HERE, "golden.json"), "w") as f:
    json.dump(out, f, indent=0, sort_keys=True)
    f.write("\n")
with open(os.path.join(HERE, "../../internal/arrays/arraycodec/testdata/blosc.json"), "w") as f:
    json.dump(blobs, f, indent=0, sort_keys=True)
    f.write("\n")
print(len(out), "arrays,", len(blobs), "containers")
