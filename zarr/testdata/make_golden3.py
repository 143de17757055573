"""Writes golden3.json with the reference implementation of version 3.

Made with Python 3.11, zarr 3.1.6, numcodecs 0.16.6, numpy 2.4.6:

    python make_golden3.py

golden3.json: arrays, each with its keys (base64), and the SHA-256 of what numpy.save writes for it (npy),
or its values as JSON (objects). Big-endian numbers are saved as such.
"""
import base64, hashlib, io, json, os, warnings
import numpy as np, zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.codecs import numcodecs as nc
from zarr.storage import MemoryStore

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(24)
out = {}


def canon(x):
    if isinstance(x, (list, tuple, np.ndarray)):
        return [canon(y) for y in x]
    if isinstance(x, bytes):
        return {"$bytes": x.hex()}
    return x


def add(name, data, chunks, drop=(), big=False, dtype=None, **kw):
    """Stores data, forgets the keys in drop, and keeps what the reference then reads."""
    store = MemoryStore()
    data = np.asarray(data)
    z = zarr.create_array(store, shape=data.shape, chunks=chunks, dtype=dtype or data.dtype, zarr_format=3, **kw)
    if data.size:
        z[...] = data
    for key in drop:
        del store._store_dict[key]
    keys = {k: base64.b64encode(v.to_bytes()).decode() for k, v in sorted(store._store_dict.items())}
    e = out[name] = {"keys": keys}
    got = np.asarray(zarr.open_array(store, mode="r")[...])
    if got.dtype.kind in "OT":
        e["values"] = canon(got.ravel().tolist())
        return
    if big:
        got = got.astype(got.dtype.newbyteorder(">"))
    f = io.BytesIO()
    np.save(f, np.ascontiguousarray(got).reshape(got.shape))
    e["npy"] = hashlib.sha256(f.getvalue()).hexdigest()


def odd(shape, dtype="f8"):
    return rng.integers(-1000, 1000, shape).astype(dtype)


for t in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]:
    add(f"plain {t}", odd((5, 4)).astype(t), (2, 3), compressors=None)
    add(f"missing {t}", odd(7).astype(t), (3,), drop=["c/1"], fill_value=7, compressors=None)
    if t not in ("i1", "u1"):
        add(f"big {t}", odd((5, 4)).astype(t), (2, 3), big=True, serializer=BytesCodec(endian="big"), compressors=None)
add("bool", rng.random(9) > 0.5, (4,), drop=["c/0"], fill_value=True)
add("S", np.array([b"a", b"bcd", b""], "S3"), (2,))
add("U", np.array(["ä", "bcd", ""], "U3"), (2,), drop=["c/0"], fill_value="x☃")
add("U big", np.array(["ä", "bcd", ""], "U3"), (2,), big=True, serializer=BytesCodec(endian="big"))
add("V", np.array([b"ab", b"cd", b"ef"], "V2"), (2,))
add("moments", np.array(["2024-02-29T01:02:03", "NaT", "1969-12-31"], "M8[s]"), (2,), drop=["c/1"])
add("spans", np.array([1, -2, 3], "m8[25us]"), (2,))
add("fields", np.array([(1, 2.5, b"xy"), (3, -4.5, b"z")], [("a", "<i4"), ("b", "<f8"), ("s", "S3")]), (1,), drop=["c/1"])
add("fields in fields", np.array([(1, (2, 3)), (4, (5, 6))], [("a", "u1"), ("n", [("x", "<u2"), ("y", "<i8")])]), (2,))
add("nan", odd(5), (2,), drop=["c/1"], fill_value=float("nan"))
add("-inf", odd(5, "f4"), (2,), drop=["c/1"], fill_value=float("-inf"))
add("complex fill", odd(5, "c8"), (2,), drop=["c/1"], fill_value=complex(1.5, float("nan")))
add("scalar", np.float64(2.5), ())
add("empty", np.zeros((0, 3)), (1, 3))
for name, keys in {"v2 .": {"name": "v2", "separator": "."}, "v2 slash": {"name": "v2", "separator": "/"}, "default .": {"name": "default", "separator": "."}}.items():
    add(f"keys {name}", odd((5, 4)), (2, 3), chunk_key_encoding=keys)
    add(f"scalar keys {name}", np.int32(7), (), chunk_key_encoding=keys)
for name, codecs in {
    "gzip": [GzipCodec(level=3)], "zstd": [ZstdCodec(level=3, checksum=True)], "crc32c": [Crc32cCodec()], "zstd and crc32c": [ZstdCodec(), Crc32cCodec()],
    "blosc": [BloscCodec(cname="lz4", shuffle="bitshuffle")], "blosc zlib": [BloscCodec(cname="zlib", shuffle="noshuffle")], "blosc zstd": [BloscCodec(cname="zstd")],
    "numcodecs lz4": [nc.LZ4()], "numcodecs zlib": [nc.Zlib(level=2)], "numcodecs bz2": [nc.BZ2()], "numcodecs lzma": [nc.LZMA()], "numcodecs blosc": [nc.Blosc(cname="lz4hc")],
    "numcodecs shuffle": [nc.Shuffle(elementsize=8), nc.Zlib()], "numcodecs gzip": [nc.GZip()], "numcodecs zstd": [nc.Zstd()],
    "numcodecs fletcher32": [nc.Fletcher32()], "numcodecs crc32": [nc.CRC32()], "numcodecs adler32": [nc.Adler32()],
}.items():
    add(f"codec {name}", odd((5, 40)), (2, 30), compressors=codecs)
for name, filters in {
    "delta": [nc.Delta(dtype="<f8")], "scale": [nc.FixedScaleOffset(offset=1, scale=2, dtype="<f8", astype="<i4")], "astype": [nc.AsType(encode_dtype="<f4", decode_dtype="<f8")],
    "quantize": [nc.Quantize(digits=2, dtype="<f8")], "bitround": [nc.BitRound(keepbits=9)],
    "transpose": [TransposeCodec(order=(1, 0, 2))], "transpose F": [TransposeCodec(order=(2, 1, 0))], "transpose round": [TransposeCodec(order=(1, 2, 0))],
    "transpose twice": [TransposeCodec(order=(1, 2, 0)), TransposeCodec(order=(0, 2, 1))],
}.items():
    add(f"filter {name}", odd((5, 4, 3)), (2, 3, 2), filters=filters)
for where in "start", "end":
    for summed in True, False:
        shards = {"shape": (4, 6), "index_location": where, "index_codecs": [BytesCodec(), Crc32cCodec()] if summed else [BytesCodec()]}
        name = f"shards {where} {'summed' if summed else 'bare'}"
        shard = lambda inner: ShardingCodec(chunk_shape=(2, 3), codecs=inner, index_location=where, index_codecs=shards["index_codecs"])
        add(name, odd((9, 13)), (4, 6), serializer=shard([BytesCodec(), ZstdCodec()]), compressors=None)
        add(name + " missing", np.where(odd((9, 13)) > 900, 5.0, 0), (4, 6), drop=["c/1/0"], serializer=shard([BytesCodec()]), compressors=None)
        add(name + " transpose", odd((9, 13)), (4, 6), serializer=shard([TransposeCodec(order=(1, 0)), BytesCodec(), GzipCodec()]), compressors=None)
add("shards usual", odd((10, 10, 10), "i4"), (2, 2, 2), shards=(4, 4, 10))
add("shards of strings", np.array(["a", "bb", "", "ä☃", "e"], object), (1,), dtype=str, shards=(2,))
add("strings", np.array([["a", "bb"], ["", "ä☃"], ["e", "f"]], object), (2, 2), dtype=str, drop=["c/0/0"], fill_value="none")
add("bytes", np.array([b"a", b"", b"\x00\xff"], object), (2,), dtype="bytes")

with open(os.path.join(HERE, "golden3.json"), "w") as f:
    json.dump(out, f, indent=0, sort_keys=True)
    f.write("\n")
print(len(out), "arrays")
