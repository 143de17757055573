#!/usr/bin/env python3
"""Make HDF5 files at random, by h5py.

  gen.py OUT SEED N           N files, OUT/00000.h5 and so on
  gen.py OUT SEED N --lindi   of what the reference of LINDI can do, and no more

The same SEED gives the same files, each independent of N, but for the time of their making. A file is about one subject, or mixes
all; see SUBJECTS. Every pair of library versions that h5py writes comes in turn. There are these files besides:

  many-old.h5, many-new.h5    a data set of 10,000 chunks: B-tree of version 1, fixed array
  split.h5                    with --lindi: runs that are longer than LINDI makes chunks; the others without
  elsewhere.h5                virtual data sets, and such as lie in other files, virtual-part.h5 and external.bin
  virtual-many.h5             virtual data sets at random
  target.h5                   what external links lead to
"""

import argparse
import ctypes
import glob
import os
import random
import struct
from pathlib import Path

import h5py
import hdf5plugin
import numpy as np
from h5py import h5a, h5d, h5o, h5p, h5s, h5t

# What h5py has no function for.
LIB = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(h5py.__file__), "..", "h5py.libs", "libhdf5-*"))[0])
LIB.H5Pset_nbit.argtypes = [ctypes.c_int64]

# low, high; the version of the superblock follows from low: 0, 2 or 3
VERSIONS = ["v108", "v110", "v112", "v114", "v200"]
PAIRS = [(low, high) for low in ["earliest", *VERSIONS] for high in VERSIONS if low == "earliest" or low <= high]

WORDS = ["data", "times", "spikes", "x", "y", "été", "数据", "🧠", "a b", "dot.ted", "UPPER", "_", "0", "-1", "ß", "e\u0301", "name's", '"q"', "back\\slash"]
TEXTS = ["", "a", "some text", "déjà vu", "数据", "🧠🧠", "line\nline", "tab\t", "NaN", "x" * 300]
UTF8, ASCII = h5py.string_dtype("utf-8"), h5py.string_dtype("ascii")
ENUM = h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 42}, basetype="<i4")
BIG_ENUM = h5py.enum_dtype({"minus": -1, "zéro": 0, "high": 30000}, basetype=">i2")
REF, REGION = h5py.ref_dtype, h5py.regionref_dtype

NUMBERS = [order + kind for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8") for order in "<>"]
FIXED = [np.dtype("S5"), np.dtype("S1"), h5py.string_dtype("utf-8", 12)]
RECORD = np.dtype([("x", "<u4"), ("y", "<i8"), ("weight", "<f4")])
RECORD_OF_REFS = np.dtype([("start", "<i4"), ("count", "<i4"), ("series", REF)])


def is_ref(dt):
    return h5py.check_ref_dtype(dt) is not None


def nested():
    inner = np.dtype([("flag", "?"), ("at", ">f8", (2,)), ("tag", "S3"), ("kind", ENUM)])
    return np.dtype({"names": ["a", "inner", "z", "ref"], "formats": ["<i2", inner, "<c8", REF], "offsets": [4, 16, 64, 80], "itemsize": 96})


# What elements may be of. Those with a name of their own are made by a function of h5t.
TYPES = [
    *map(np.dtype, NUMBERS),
    np.dtype("g"),
    np.dtype("?"),
    *map(np.dtype, ["<c8", ">c16", "G"]),
    ENUM,
    BIG_ENUM,
    *FIXED,
    UTF8,
    ASCII,
    RECORD,
    RECORD_OF_REFS,
    nested(),
    np.dtype([("text", UTF8), ("n", "<i4"), ("list", h5py.vlen_dtype("<i2"))]),
    np.dtype(("<i4", (3,))),
    np.dtype((">f4", (2, 2))),
    np.dtype(("S4", (2,))),
    np.dtype("V7"),
    h5py.opaque_dtype(np.dtype("M8[s]")),
    REF,
    REGION,
    h5py.vlen_dtype("<f8"),
    h5py.vlen_dtype(">u2"),
]
FOR_LINDI = [*map(np.dtype, NUMBERS), np.dtype("?"), ENUM, *FIXED, UTF8, ASCII, REF, RECORD, RECORD_OF_REFS]


def odd_types():
    """Types that h5py has no word for: odd widths, orders and paddings. By name, the type in the file."""
    made = {}
    t = h5t.STD_I16LE.copy()
    t.set_precision(12)
    made["i12"] = t
    t = h5t.STD_U32BE.copy()
    t.set_precision(20)
    t.set_offset(7)
    made["u20 at 7"] = t
    t = h5t.IEEE_F32BE.copy()  # bfloat16
    t.set_fields(15, 7, 8, 0, 7)
    t.set_precision(16)
    t.set_size(2)
    made["bfloat16"] = t
    t = h5t.IEEE_F32LE.copy()
    t.set_fields(23, 15, 8, 0, 15)
    t.set_precision(24)
    t.set_size(3)
    made["f24"] = t
    for name in ("STD_B8LE", "STD_B16BE", "STD_B64LE", "UNIX_D32LE", "UNIX_D64BE", "IEEE_F128LE"):
        made[name] = getattr(h5t, name)
    for name, pad in [("null", h5t.STR_NULLTERM), ("zeros", h5t.STR_NULLPAD), ("spaces", h5t.STR_SPACEPAD)]:
        t = h5t.C_S1.copy()
        t.set_size(6)
        t.set_strpad(pad)
        made[f"string padded by {name}"] = t
    if h5py.version.hdf5_version_tuple >= (2, 0, 0):
        made["complex"] = h5t.COMPLEX_IEEE_F32LE
        made["complex BE"] = h5t.COMPLEX_IEEE_F64BE
    return made


class Gen:
    """One file."""

    def __init__(self, f, rnd, lindi):
        self.f, self.rnd, self.lindi = f, rnd, lindi
        self.types = FOR_LINDI if lindi else TYPES
        self.made = 0
        self.objects = [f["/"].name]
        self.new = not str(f.libver[0]).startswith("earliest")

    # Values

    def ref(self):
        if not self.lindi and self.rnd.random() < 0.1:
            return h5py.Reference()
        return self.f[self.rnd.choice(self.objects)].ref

    def region(self):
        arrays = [name for name in self.objects if isinstance(self.f[name], h5py.Dataset) and self.f[name].ndim and self.f[name].size]
        if not arrays or self.rnd.random() < 0.1:
            return h5py.RegionReference()
        ds = self.f[self.rnd.choice(arrays)]
        some = []
        for n in ds.shape:
            start = self.rnd.randrange(n)
            some.append(slice(start, self.rnd.randint(start + 1, n)))
        return ds.regionref[tuple(some)]

    def text(self):
        return self.rnd.choice(TEXTS)

    def values(self, dt, shape):
        """Elements of a type at random, with the values that are special."""
        rnd = self.rnd
        count = int(np.prod(shape, dtype=int))
        if dt.subdtype is not None:
            base, more = dt.subdtype
            return self.values(base, tuple(shape) + more)
        if dt.fields is not None:
            made = np.zeros(shape, dt)
            for name in dt.names:
                made[name] = self.values(dt[name], shape)
            return made
        if dt.kind == "O":
            sequence = h5py.check_vlen_dtype(dt)
            if h5py.check_ref_dtype(dt) is h5py.Reference:
                one = self.ref
            elif h5py.check_ref_dtype(dt) is h5py.RegionReference:
                one = self.region
            elif sequence not in (None, str, bytes):
                one = lambda: self.values(np.dtype(sequence), (rnd.randrange(5),))
            elif h5py.check_string_dtype(dt).encoding == "ascii":
                one = lambda: self.text().encode("ascii", "ignore")
            else:
                one = self.text
            made = np.empty(count, dt)
            for i in range(count):
                made[i] = one()
            return made.reshape(shape)
        if (names := h5py.check_enum_dtype(dt)) is not None:
            return np.array([rnd.choice(list(names.values())) for _ in range(count)], dt).reshape(shape)
        if dt.kind == "b":
            return np.array([rnd.random() < 0.5 for _ in range(count)], dt).reshape(shape)
        if dt.kind == "S":
            short = [self.text().encode()[: dt.itemsize].decode("utf-8", "ignore").encode() for _ in range(count)]
            return np.array(short, dt).reshape(shape)
        if dt.kind in "fc":
            wide = np.array([rnd.gauss(0, 10 ** rnd.randrange(-4, 5)) for _ in range(count)])
            for i in range(count):
                if rnd.random() < 0.05:
                    wide[i] = rnd.choice([float("nan"), float("inf"), float("-inf"), -0.0])
            with np.errstate(over="ignore"):
                made = np.empty(count, dt)
                made.real = wide
                if dt.kind == "c":
                    made.imag = wide[::-1]
                if dt.char in "gG":
                    made.view("u1").reshape(-1, 16)[:, 10:] = 0  # what is no part of them
                return made.reshape(shape)
        if dt.kind == "M":
            return np.array([rnd.randrange(1 << 40) for _ in range(count)], "<i8").view(dt).reshape(shape)
        return np.frombuffer(rnd.randbytes(count * dt.itemsize), dt).reshape(shape).copy()

    # Names, attributes, spaces

    def name(self):
        self.made += 1
        word = self.rnd.choice(WORDS)
        return f"{word}{self.made}" if self.rnd.random() < 0.9 else word * self.rnd.randint(20, 60) + str(self.made)

    def shape(self, most=4, zero=True):
        dims = tuple(self.rnd.randint(1, 12) for _ in range(self.rnd.randint(1, most)))
        return tuple(0 if i == 0 else n for i, n in enumerate(dims)) if zero and self.rnd.random() < 0.08 else dims

    def attributes(self, item, count):
        for _ in range(count):
            dt = self.rnd.choice(self.types)
            kind = self.rnd.random()
            if self.lindi:
                self.attribute_for_lindi(item)
            elif kind < 0.1:
                item.attrs.create(self.name(), h5py.Empty(dt if dt.subdtype is None else "f4"))
            elif kind < 0.6:
                self.attribute(item, self.name(), dt, ())
            else:
                self.attribute(item, self.name(), dt, self.shape(2))

    def attribute(self, item, name, dt, shape):
        value = np.asarray(self.values(dt, shape), order="C")
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        h5a.create(item.id, name.encode(), h5t.py_create(dt, logical=True), space).write(value, mtype=h5t.py_create(dt))

    def attribute_for_lindi(self, item):
        dt = self.rnd.choice([np.dtype("<i4"), np.dtype(">u2"), np.dtype("<f4"), np.dtype("<f8"), np.dtype("?"), UTF8, np.dtype("S7"), REF])
        shape = () if is_ref(dt) or self.rnd.random() < 0.5 else self.shape(2, zero=False)
        value = self.values(dt, shape)
        if dt.kind in "OS" and not is_ref(dt):
            value = np.array(["text" if v in ("NaN", b"NaN") else v for v in value.ravel().tolist()], dt).reshape(shape)
        item.attrs.create(self.name(), value, shape=shape, dtype=dt)

    # Data sets

    def filters(self):
        rnd = self.rnd
        how = rnd.choice(["none", "gzip", "gzip", "blosc", "zstd"] + ["lzf", "lz4", "bzip2"] * (not self.lindi))
        made = {
            "none": dict,
            "gzip": lambda: {"compression": "gzip", "compression_opts": rnd.randint(0, 9)},
            "lzf": lambda: {"compression": "lzf"},
            "blosc": lambda: dict(
                hdf5plugin.Blosc(cname=rnd.choice(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]), clevel=rnd.randint(0, 9), shuffle=rnd.randint(0, 2))
            ),
            "zstd": lambda: dict(hdf5plugin.Zstd(clevel=rnd.randint(1, 9))),
            "lz4": lambda: dict(hdf5plugin.LZ4(nbytes=rnd.choice([0, 64, 1 << 20]))),
            "bzip2": lambda: dict(hdf5plugin.BZip2(blocksize=rnd.randint(1, 9))),
        }[how]()
        return made | {"shuffle": rnd.random() < 0.4, "fletcher32": rnd.random() < 0.3}

    def dataset(self, parent, dt=None, name=None):
        """A data set at random: type, space, layout, filters, fill value, and what of it is written."""
        rnd, name = self.rnd, name or self.name()
        dt = dt if dt is not None else rnd.choice(self.types)
        kind = rnd.random()
        if kind < 0.05 and not self.lindi:
            ds = parent.create_dataset(name, data=h5py.Empty(dt if dt.subdtype is None else "f8"))
        elif kind < 0.15 and not (self.lindi and (dt.fields is not None or is_ref(dt))):
            ds = self.scalar(parent, name, dt)
        else:
            ds = self.array(parent, name, dt)
        self.attributes(ds, rnd.choice([0, 0, 1, 3]))
        self.objects.append(ds.name)
        return ds

    def scalar(self, parent, name, dt):
        ds = parent.create_dataset(name, shape=(), dtype=dt)
        self.write(ds, dt)
        return ds

    def write(self, ds, dt, at=None):
        """Write all elements, or one. What h5py guesses of values that are sequences is not needed so."""
        part, whole = h5s.ALL, ds.id.get_space()
        if at is not None:
            part = h5s.create_simple((1,) * len(at))
            whole.select_hyperslab(at, (1,) * len(at))
        value = np.asarray(self.values(dt, ds.shape if at is None else (1,) * len(at)), order="C")
        ds.id.write(part, whole, value, h5t.py_create(dt))

    def array(self, parent, name, dt):
        rnd, shape = self.rnd, self.shape(zero=not (self.lindi and dt.kind == "b"))
        plain = dt.kind in "iufbS" and dt.subdtype is None
        how = {"shape": shape, "dtype": dt, "dcpl": h5p.create(h5p.DATASET_CREATE)}
        if plain and rnd.random() < 0.3:
            how["fillvalue"] = self.values(dt, ())[()]
            if self.lindi and dt.kind in "fS":
                how["fillvalue"] = rnd.choice([1.5, -2.0]) if dt.kind == "f" else b"x"
        layout = rnd.choice(["compact", "contiguous", "contiguous", "chunked", "chunked", "chunked"])
        if self.lindi and layout == "compact":
            layout = "chunked"
        if layout == "chunked":
            how["chunks"] = tuple(rnd.randint(1, max(1, n)) for n in shape)
            unlimited = rnd.random()
            if unlimited < 0.5 or 0 in shape:
                how["maxshape"] = tuple(rnd.choice([None, n + 3, max(n, 1)]) if unlimited < 0.3 else n + 1 for n in shape)
            if dt.kind != "O" and not (dt.fields and dt.hasobject) and dt.subdtype is None:
                how |= self.filters()
            elif dt.kind == "O" and not self.lindi and rnd.random() < 0.5:
                how["compression"] = "gzip"  # of the places in the heap
        elif layout == "compact" and np.prod(shape, dtype=int) * 2 * max(dt.itemsize, 8) < 60_000:  # twice as long with places in a heap
            how["dcpl"].set_layout(h5d.COMPACT)
        elif rnd.random() < 0.3:
            how["dcpl"].set_alloc_time(h5d.ALLOC_TIME_EARLY)
        ds = parent.create_dataset(name, **how)
        written = rnd.choice(["all", "all", "all", "some", "none"])
        if self.lindi and (layout == "contiguous" or not plain):
            written = "all"
        if written == "all" and ds.size:
            self.write(ds, dt)
        elif written == "some" and ds.size:
            for _ in range(3):
                self.write(ds, dt, tuple(rnd.randrange(n) for n in shape))
        return ds

    def odd(self, parent, name, t):
        """A data set of a type that h5py has no word for: what is written is what lies in the file."""
        ds = h5d.create(parent.id, name.encode(), t, h5s.create_simple((7,)))
        raw = np.frombuffer(self.rnd.randbytes(7 * t.get_size()), f"V{t.get_size()}")
        if t.get_class() in (h5t.INTEGER, h5t.FLOAT):
            low, width, order = t.get_offset(), t.get_precision(), "big" if t.get_order() == h5t.ORDER_BE else "little"
            bits = [self.rnd.getrandbits(width) << low for _ in range(7)]
            raw = np.frombuffer(b"".join(b.to_bytes(t.get_size(), order) for b in bits), raw.dtype)
        elif t.get_class() == h5t.STRING:
            raw = np.frombuffer(b"abc\0\0\0ab    abcdef\0\0\0\0\0\0xyz\0de      abc\0  ", "V6")
        ds.write(h5s.ALL, h5s.ALL, raw, t)

    # Groups and links

    def group(self, parent, name=None, **how):
        how.setdefault("track_order", self.rnd.choice([None, True, False]))
        g = parent.create_group(name or self.name(), **how)
        self.objects.append(g.name)
        return g

    def links(self, parent):
        rnd = self.rnd
        target = rnd.choice(self.objects)
        parent[self.name()] = h5py.SoftLink(target)
        if self.lindi:
            return
        if target != parent.name:
            parent[self.name()] = self.f[target]  # a hard link, perhaps to a group above
        parent[self.name()] = h5py.SoftLink("nothing/here")
        parent[self.name()] = h5py.SoftLink("../" * 2 + "x")
        parent[self.name()] = h5py.ExternalLink("target.h5", "/x")
        parent[self.name()] = h5py.ExternalLink("nowhere.h5", "/été")

    def tree(self, parent, depth):
        rnd = self.rnd
        self.attributes(parent, rnd.choice([0, 1, 2, 12]))
        for _ in range(rnd.randint(1, 4)):
            self.dataset(parent)
        for _ in range(rnd.randint(0, 3) if depth else 0):
            self.tree(self.group(parent), depth - 1)
        if rnd.random() < 0.5:
            self.links(parent)


# What a file may be about.


def mixed(g):
    g.tree(g.f["/"], 3)


def types(g):
    """Every type, as a data set, a scalar and an attribute; and committed ones."""
    f = g.f
    g.objects.append(f.create_dataset("first", data=np.arange(24).reshape(4, 6)).name)
    for i, dt in enumerate(g.types):
        g.array(f, f"array {i}", dt)
        if not (g.lindi and (dt.fields is not None or is_ref(dt))):
            g.scalar(f, f"scalar {i}", dt)
        if not g.lindi:
            g.attribute(f, f"attribute {i}", dt, (2,))
            f.create_dataset(f"none {i}", data=h5py.Empty(dt if dt.subdtype is None else "f4"))
            if dt.subdtype is None:
                h5t.py_create(dt, logical=True).copy().commit(f.id, f"type {i}".encode())
                g.write(f.create_dataset(f"committed {i}", shape=(2,), dtype=f[f"type {i}"]), dt)
    if not g.lindi:
        f["type 0"].attrs["of a type"] = 1
        for name, t in odd_types().items():
            if t.get_class() != h5t.COMPLEX or str(f.libver[1]) in ("v200", "latest"):
                g.odd(f, name, t)


def attributes(g):
    """Few, many and large attributes; with the order of their making or without."""
    for order in (False, True):
        for count in (0, 3, 8, 9, 60):
            if not (order and not g.new):
                item = g.group(g.f, f"{count} {order}", track_order=order)
                g.attributes(item, count)
                if not g.lindi:
                    item.attrs["x"] = 1
                    item.attrs["x"] = "again"
                    if count == 60:
                        for name in list(item.attrs)[::3]:
                            del item.attrs[name]
    large = g.group(g.f, "large", track_order=g.new)
    for i, size in enumerate([1000, 20_000, 60_000] + [70_000, 300_000] * g.new):
        if g.lindi:
            size //= 10
        large.attrs[f"large {i}"] = g.values(np.dtype("u1"), (size,))
    large.attrs["text " * 50] = "long name"


def groups(g):
    """Groups of every size and form, deep ones, and all kinds of links."""
    f, rnd = g.f, g.rnd
    f.create_group("no links")
    f.create_dataset("x", data=np.arange(3))
    for order in (False, True):
        for count in (1, 8, 9, 40, 300):
            some = g.group(f, f"{count} {order}", track_order=order)
            for i in range(count):
                if i % 3 or g.lindi:
                    some.create_group(f"{rnd.getrandbits(40):x} {i}")
                else:
                    some[f"{rnd.getrandbits(40):x} {i}"] = h5py.SoftLink(f"/x{i}")
            if count == 40 and not g.lindi:
                for name in list(some)[::3]:
                    del some[name]
    if not g.lindi:
        many = g.group(f, "many", track_order=bool(rnd.randrange(2)))
        for i in range(2200):  # in the heap of names: blocks that lead to blocks that lead to blocks
            many[f"{i:07d}" + "name" * 70] = h5py.SoftLink("/x")
        f[b"\xff no UTF-8 \x80"] = np.arange(2)
        f.create_group("with a comment")
        h5o.set_comment(f["with a comment"].id, b"what it is")
    deep = f
    for i in range(40):
        deep = g.group(deep, f"{i}")
    deep["at last"] = np.arange(5)
    g.objects.append(deep.name)
    if not g.lindi:
        deep["from the beginning"] = f["/"]
        f["itself"] = f["/"]
        f["links/that/are/made"] = h5py.SoftLink("/itself/itself/x")
        f["a"], f["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")  # for ever
        f["twice"] = f["x"]
    for _ in range(5):
        g.links(f)


def layouts(g):
    """Each kind of layout and of index of chunks, written in full, in part and not at all."""
    f, rnd = g.f, g.rnd
    u1 = np.dtype("u1")

    def make(name, shape, chunks, maxshape=None, early=False, write=None, **how):
        dcpl = h5p.create(h5p.DATASET_CREATE)
        if early:
            dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        ds = f.create_dataset(name, shape, "<i2", chunks=chunks, maxshape=maxshape, dcpl=dcpl, **how)
        if write is None:
            ds[...] = g.values(ds.dtype, shape)
        for at in write or ():
            ds[at] = rnd.randrange(1, 1000)
        return ds

    some = [5, 17, 33]
    make("single", (20, 3), (20, 3))
    make("single, not written", (20, 3), (20, 3), write=())
    make("single, filtered", (20, 3), (20, 3), compression="gzip")
    make("single, larger than it", (20, 3), (32, 4), maxshape=(32, 4))
    make("implicit", (20, 30), (7, 8), early=True)
    make("implicit, in part", (50,), (6,), early=True, write=some)
    make("fixed array", (20, 30), (7, 8))
    make("fixed array, filtered", (20, 30), (7, 8), compression="gzip", shuffle=True, fletcher32=True)
    make("fixed array, in part", (50,), (3,), write=some, fillvalue=-3)
    make("fixed array, not written", (50,), (3,), write=(), fillvalue=7)
    make("fixed array, of pages", (3000,), (2,))
    make("fixed array, of pages, filtered", (3000,), (2,), fletcher32=True, write=[0, 2047, 2048, 2049, 2999])
    make("fixed array, of pages, in part", (200, 200), (3, 3), write=[(0, 0), (199, 199), (100, 3)])
    make("extensible array", (30, 5), (4, 5), maxshape=(None, 5))
    make("extensible array, second dimension", (5, 30), (2, 4), maxshape=(5, None))
    make("extensible array, filtered", (300,), (4,), maxshape=(None,), compression="gzip", fillvalue=9)
    make("extensible array, super blocks", (3000,), (2,), maxshape=(None,))
    if not g.lindi or rnd.random() < 0.1:  # lindi goes through all places in Python
        make("extensible array, pages", (141_000,), (1,), maxshape=(None,), write=[0, 3, 4, 19, 20, 300, 5000, 131_100, 140_000, 140_999])
        make("extensible array, pages, filtered", (141_000,), (1,), maxshape=(None,), write=[1, 132_000, 140_000], shuffle=True)
    make("extensible array, not written", (30,), (4,), maxshape=(None,), write=())
    make("extensible array, grown", (30,), (4,), maxshape=(None,)).resize((100,))
    make("extensible array, shrunk", (100,), (4,), maxshape=(None,)).resize((9,))
    make("B-tree", (30, 30), (4, 4), maxshape=(None, None))
    make("B-tree, filtered", (30, 30), (4, 4), maxshape=(None, None), compression="gzip")
    make("B-tree, of many", (2000, 3), (2, 1), maxshape=(None, None))
    make("B-tree, in part", (1 << 20, 1 << 20), (512, 512), maxshape=(None, None), write=[(0, 0), (1 << 19, 7), ((1 << 20) - 1, (1 << 20) - 1)]) if not g.lindi else None
    make("four dimensions", (5, 4, 3, 7), (2, 3, 2, 4), maxshape=(None, 4, None, 7))
    ds = make("masked", (8,), (4,), compression="gzip", shuffle=True, write=())
    if not g.lindi:
        ds.id.write_direct_chunk((0,), struct.pack("<4h", 1, 2, 3, 4), filter_mask=3)
        ds[4:] = [5, 6, 7, 8]
        f.create_dataset("large chunk", (300, 1000), "f8", chunks=(300, 1000), compression="gzip")[...] = 1.5
        f.create_dataset("chunks not filtered at the edges", (10,), u1, chunks=(4,), compression="gzip")[...] = 7
    for early in (False, True):
        for written in (False, True):
            dcpl = h5p.create(h5p.DATASET_CREATE)
            dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY if early else h5d.ALLOC_TIME_LATE)
            if early or written or not g.lindi:
                ds = f.create_dataset(f"contiguous {early} {written}", (1100 if g.lindi else 100,), ">f4", dcpl=dcpl, fillvalue=2.5)
                if written:
                    ds[3:50] = 1
    for fill_time in ("alloc", "never", "ifset"):
        f.create_dataset(f"filled {fill_time}", (4,), "<i4", chunks=(4,), fill_time=fill_time, fillvalue=3)[1:3] = [1, 2]
    if not g.lindi:
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_layout(h5d.COMPACT)
        f.create_dataset("compact", (100,), "<u2", dcpl=dcpl)[...] = np.arange(100)
        dcpl.set_fill_value(np.array(4, "<u2"))
        f.create_dataset("compact, not written", (100,), "<u2", dcpl=dcpl)
    f.create_dataset("split", (120, 50), "<i8")[...] = np.arange(6000).reshape(120, 50)


def packed(g, name):
    """A data set whose filter packs numbers by their type and values."""
    rnd, noise = g.rnd, np.random.default_rng(g.rnd.randrange(1 << 30))
    kind = rnd.choice(["i1", "u1", "<i2", ">u2", "<i4", ">i4", "<u4", "<i8", ">u8", "<f4", ">f4", "<f8", ">f8"])
    shape = tuple(rnd.randint(1, 60) for _ in range(rnd.randint(1, 4)))[: 4 if rnd.random() < 0.2 else 2]
    chunks, dcpl, dt = tuple(rnd.randint(1, n) for n in shape), h5p.create(h5p.DATASET_CREATE), np.dtype(kind)
    value = noise.integers(0, 1 << rnd.randint(1, 8 * dt.itemsize - 1), shape).astype(dt)
    value = rnd.choice([lambda v: v, np.sort, lambda v: np.cumsum(v % 3, axis=-1).astype(dt), lambda v: np.zeros_like(v) + v.flat[0], lambda v: v * (v % 7 == 0)])(value)
    if dt.kind in "if":
        value = value - value.flat[0] // 2
    if dt.kind == "f":
        value = (value / 8).astype(dt)
    how = {}
    match rnd.choice(["szip", "szip", "nbit", "scaleoffset", "bitshuffle", "blosc2"]):
        case "szip":
            block = 2 * rnd.randint(1, 16)
            if np.prod(chunks) < block or chunks[-1] < block and np.prod(chunks) < 10 * block:
                chunks = shape = (rnd.randint(block, 3000),)
                value = np.resize(value, shape)
            how = {"compression": "szip", "compression_opts": (rnd.choice(["ec", "nn"]), block)}
        case "nbit":
            h5 = h5t.py_create(dt).copy()
            if dt.kind in "iu":
                bits = rnd.randint(4 * dt.itemsize + 1, 8 * dt.itemsize)  # the library refuses fewer
                h5.set_precision(bits)
                h5.set_offset(rnd.randint(0, 8 * dt.itemsize - bits))
            if rnd.random() < 0.4:
                row = h5t.create(h5t.COMPOUND, 40)
                row.insert(b"a", 3, h5)
                row.insert(b"b", 12, h5t.array_create(h5, (2,)))
                row.insert(b"c", 30, h5t.py_create(np.dtype("S5")))
                h5 = row
            LIB.H5Pset_nbit(dcpl.id)
            dcpl.set_chunk(chunks)
            g.f.require_group("packed")
            space = h5s.create_simple(shape)
            ds = h5py.Dataset(h5d.create(g.f.id, name.encode(), h5, space, dcpl))
            if isinstance(h5, h5t.TypeCompoundID):
                memory = h5t.create(h5t.COMPOUND, dt.itemsize * 3 + 5)
                memory.insert(b"a", 0, h5t.py_create(dt))
                memory.insert(b"b", dt.itemsize, h5t.array_create(h5t.py_create(dt), (2,)))
                memory.insert(b"c", 3 * dt.itemsize, h5t.py_create(np.dtype("S5")))
                raw = noise.integers(0, 100, int(np.prod(shape)) * memory.get_size(), dtype="u1")
                ds.id.write(h5s.ALL, h5s.ALL, raw, memory)
            else:
                ds.id.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(value), h5t.py_create(dt))
            return
        case "scaleoffset":
            how = {"scaleoffset": rnd.randint(0, 4) if dt.kind == "f" else rnd.choice([0, 0, rnd.randint(1, 8 * dt.itemsize)])}
            if rnd.random() < 0.5:
                how["fillvalue"] = value.flat[-1]
        case "bitshuffle":
            how = dict(hdf5plugin.Bitshuffle(nelems=rnd.choice([0, 8, 64, 1024]), cname=rnd.choice(["none", "lz4", "zstd"])))
        case "blosc2":
            how = dict(hdf5plugin.Blosc2(cname=rnd.choice(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]), clevel=rnd.randint(0, 9), filters=rnd.randint(0, 4)))
            shape, chunks, value = ((1000,) + shape, (rnd.choice([100, 1000]),) + chunks, np.resize(value, (1000,) + shape)) if np.prod(shape) < 1000 else (shape, chunks, value)
    if "scaleoffset" not in how:
        how |= {"fletcher32": rnd.random() < 0.2, "shuffle": rnd.random() < 0.2}
    g.f.create_dataset(name, shape, dt, chunks=chunks, **how)[...] = value


def filters(g):
    """Filters, one by one and together."""
    f = g.f
    ways = {
        "gzip": {"compression": "gzip", "compression_opts": 6},
        "shuffle": {"shuffle": True},
        "fletcher32": {"fletcher32": True},
        "all three": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "zstd": dict(hdf5plugin.Zstd()),
        "zstd, fletcher32": dict(hdf5plugin.Zstd(clevel=19)) | {"fletcher32": True},
    }
    for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for shuffle in range(3):
            ways[f"blosc {cname} {shuffle}"] = dict(hdf5plugin.Blosc(cname=cname, clevel=5, shuffle=shuffle))
    if not g.lindi:
        ways |= {
            "lzf": {"compression": "lzf"},
            "lzf, shuffle": {"compression": "lzf", "shuffle": True},
            "lz4": dict(hdf5plugin.LZ4()),
            "lz4, blocks": dict(hdf5plugin.LZ4(nbytes=100)),
            "bzip2": dict(hdf5plugin.BZip2()),
            "bitshuffle": dict(hdf5plugin.Bitshuffle()),
            "blosc2": dict(hdf5plugin.Blosc2()),
            "scaleoffset": {"scaleoffset": True},
        }
    for name, how in ways.items():
        for kind in ("<i4", ">f8", "u1"):
            if "scaleoffset" in how and kind == ">f8":
                how = {"scaleoffset": 2}
            ds = f.create_dataset(f"{name}/{kind[-2:]}", (37, 50), kind, chunks=(10, 20), **how)
            data = g.values(ds.dtype, (37, 50))
            data[5:30] = 1  # so that it can be compressed
            data[~np.isfinite(data)] = 0
            ds[...] = data
    for i in range(0 if g.lindi else 60):
        packed(g, f"packed/{i}")
    f.create_dataset("noise", (1000,), "u1", chunks=(300,), compression="gzip")[...] = g.values(np.dtype("u1"), (1000,))
    f.create_dataset("text", (20,), "S20", chunks=(7,), compression="gzip", shuffle=True)[...] = b"text"
    if not g.lindi:
        f.create_dataset("records", (20,), RECORD, chunks=(7,), compression="gzip", shuffle=True)[...] = g.values(RECORD, (20,))


SUBJECTS = [mixed, types, attributes, groups, layouts, filters, mixed]


def make(out, seed, number, lindi):
    rnd = random.Random(f"holdall {seed} {number}{' lindi' * lindi}")
    how = {"libver": PAIRS[number % len(PAIRS)], "track_order": rnd.choice([None, True]), "userblock_size": rnd.choice([0, 0, 0, 512, 2048])}
    if how["libver"][0] != "earliest" and how["libver"][0] >= "v110" and not how["userblock_size"] and rnd.random() < 0.3:
        how |= {"fs_strategy": rnd.choice(["fsm", "page", "aggregate"]), "fs_persist": True}
    if rnd.random() < 0.2:
        how["meta_block_size"] = 64 << 10
    path = out / f"{number:05d}.h5"
    with h5py.File(path, "w", **how) as f:
        SUBJECTS[number % len(SUBJECTS)](Gen(f, rnd, lindi))
    if how["userblock_size"]:
        with open(path, "r+b") as f:
            f.write(b"#!user block\n")


def many(path, libver):
    with h5py.File(path, "w", libver=libver) as f:
        ds = f.create_dataset("many", (10_000, 16), "<u4", chunks=(1, 16))
        for i in range(10_000):
            ds.id.write_direct_chunk((i, 0), struct.pack("<16I", *range(i, i + 16)))


def split(path):
    with h5py.File(path, "w") as f:
        dcpl = h5p.create(h5p.DATASET_CREATE)
        dcpl.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        dcpl.set_fill_time(h5d.FILL_TIME_NEVER)  # room without content
        f.create_dataset("long", (3_000_001, 4), "<f4", dcpl=dcpl)[-1] = 1
        f.create_dataset("wide", (2, 2_600_000), "<f8", dcpl=dcpl)[1, -1] = 1


def elsewhere(out, rnd):
    with h5py.File(out / "virtual-part.h5", "w") as f:
        f["part"] = np.arange(100).reshape(4, 25)
    with h5py.File(out / "elsewhere.h5", "w", libver=("v110", "v110")) as f:
        f["here"] = np.arange(100, 200).reshape(4, 25)
        layout = h5py.VirtualLayout((10, 25), "<i8")
        layout[0:4] = h5py.VirtualSource("virtual-part.h5", "part", (4, 25))
        layout[6:10] = h5py.VirtualSource(".", "here", (4, 25))
        f.create_virtual_dataset("virtual", layout, fillvalue=-1)
        f.create_dataset("external", (50,), "<i4", external=[("external.bin", 8, 100), ("external.bin", 300, 100)])[...] = np.arange(50)
        f["sound"] = np.arange(3)
    with h5py.File(out / "virtual-many.h5", "w", libver=rnd.choice([("v110", "v110"), ("latest", "latest")])) as f:
        g = Gen(f, rnd, False)
        for i in range(40):
            mapped(g, out, i)


def cut(rnd, n, most):
    """A start, a stride, a count and a block of an axis of n elements, at most so many."""
    block = rnd.randint(1, min(n, most))
    stride = rnd.randint(block, max(block, n // 2))
    count = rnd.randint(1, max(1, min((n - block) // stride, most // block - 1) + 1))
    return rnd.randint(0, n - (count - 1) * stride - block), stride, count, block


def mapped(g, out, i):
    """A virtual data set whose mappings are at random: several axes, strides, other ranks, other files."""
    rnd, f = g.rnd, g.f
    dt = np.dtype(rnd.choice(["<i4", ">f8", "u1"]))
    shape = tuple(rnd.randint(1, 12) for _ in range(rnd.randint(1, 3)))
    dcpl, size = h5p.create(h5p.DATASET_CREATE), np.array(7, dt)
    dcpl.set_fill_value(size)
    space, rows, k = h5s.create_simple(shape), 0, 0
    while rows < shape[0] and rnd.random() < 0.8:  # they must not meet
        n, k = rnd.randint(1, shape[0] - rows), k + 1
        to = [cut(rnd, n, n) for n in (n, *shape[1:])]
        to[0] = (rows + to[0][0], *to[0][1:])
        rows += n
        space.select_hyperslab(*[tuple(x[j] for x in to) for j in (0, 2, 1, 3)])
        counts = [c * b for _, _, c, b in to]
        if rnd.random() < 0.4:  # axes of one element come and go
            counts = [c for c in counts if c > 1 or rnd.random() < 0.5]
            counts.insert(rnd.randint(0, len(counts)), 1)
        dims, where = [], []
        for c in counts:
            blocks = rnd.choice([b for b in range(1, c + 1) if c % b == 0])
            stride = c // blocks + rnd.randint(0, 2)
            start = rnd.randint(0, 2)
            where.append((start, stride, blocks, c // blocks))
            dims.append(start + stride * (blocks - 1) + c // blocks + rnd.randint(0, 2))
        source = h5s.create_simple(tuple(dims))
        source.select_hyperslab(*[tuple(x[j] for x in where) for j in (0, 2, 1, 3)])
        name, value = f"{i} of {k}", g.values(dt, tuple(dims))
        if rnd.random() < 0.5:
            f.create_dataset(name, data=value)
            file = "."
        else:
            file = "virtual-part.h5"
            with h5py.File(out / file, "a") as other:
                other.create_dataset(name, data=value, chunks=True if value.size > 4 else None)
        dcpl.set_virtual(space, file.encode(), f"/{name}".encode(), source)
        space = h5s.create_simple(shape)
    h5d.create(f.id, f"{i} virtual".encode(), h5t.py_create(dt), space, dcpl)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("n", type=int)
    parser.add_argument("--lindi", action="store_true")
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    for number in range(args.n):
        make(args.out, args.seed, number, args.lindi)
    many(args.out / "many-old.h5", ("earliest", "v108"))
    many(args.out / "many-new.h5", ("v110", "v110"))
    if args.lindi:
        split(args.out / "split.h5")
    else:
        with h5py.File(args.out / "target.h5", "w") as f:
            f["x"] = np.arange(7)
        import os

        os.chdir(args.out)  # h5py takes the paths of external storage as they are
        elsewhere(Path("."), random.Random(f"elsewhere {args.seed}"))


if __name__ == "__main__":
    main()
