"""Compares two HDF5 files by h5py: groups, datasets, values, attributes, soft links and references.

Types of attributes may differ as JSON loses them: numbers by their size, strings by being of a fixed size.
Prints one line for each difference. same.py FIRST SECOND
"""
import sys

import h5py
import hdf5plugin  # noqa: F401  filters
import numpy as np


def plain(f, v):
    """Returns a value in a form that can be compared."""
    if isinstance(v, h5py.Empty):
        return "empty"
    if isinstance(v, h5py.RegionReference):
        return ("region", f[v].name, str(np.asarray(f[v][v]).tolist())) if v else None
    if isinstance(v, h5py.Reference):
        return ("reference", f[v].name) if v else None
    if isinstance(v, np.ndarray) and v.dtype.names:
        return [plain(f, x) for x in v.reshape(-1)] + [v.shape]
    if isinstance(v, np.void) and v.dtype.names:
        return [plain(f, v[n]) for n in v.dtype.names]
    if isinstance(v, np.void):
        return v.tobytes()
    if isinstance(v, np.ndarray):
        if v.dtype.kind in "OSV":
            return [plain(f, x) for x in v.reshape(-1)] + [v.shape]
        if v.dtype.kind in "fc":
            return [[repr(complex(x)) for x in v.reshape(-1)], v.shape]
        return [v.tolist(), v.shape]
    if isinstance(v, (bytes, np.bytes_)):
        return bytes(v).decode("latin-1")
    if isinstance(v, str):
        return v.encode().decode("latin-1")
    if isinstance(v, (np.inexact, float)):
        return repr(complex(v))
    if isinstance(v, np.generic):
        return v.item()
    return v


def kind(t):
    if h5py.check_string_dtype(t):
        return "string" if t.kind == "O" else str(t)
    if h5py.check_ref_dtype(t):
        return h5py.check_ref_dtype(t).__name__
    if h5py.check_vlen_dtype(t):
        return "vlen " + str(h5py.check_vlen_dtype(t))
    if t.names:
        return [(n, kind(t[n])) for n in t.names]
    return str(t)


def differences(a, b):
    fa, fb = a.file, b.file

    def attributes(at, x, y):
        for n in sorted(set(x.attrs) | set(y.attrs)):
            if n not in x.attrs or n not in y.attrs:
                yield f"{at}@{n}: only in one file"
                continue
            v, w = x.attrs[n], y.attrs[n]
            if plain(fa, v) != plain(fb, w):
                yield f"{at}@{n}: {plain(fa, v)!r:.200} {plain(fb, w)!r:.200}"

    def walk(at, x, y):
        yield from attributes(at, x, y)
        if isinstance(x, h5py.Group) != isinstance(y, h5py.Group):
            yield f"{at}: {x} {y}"
            return
        if isinstance(x, h5py.Dataset):
            if x.shape != y.shape or kind(x.dtype) != kind(y.dtype):
                yield f"{at}: {x.shape} {kind(x.dtype)} {y.shape} {kind(y.dtype)}"
            elif plain(fa, x[()]) != plain(fb, y[()]):
                yield f"{at}: {plain(fa, x[()])!r:.300} {plain(fb, y[()])!r:.300}"
            return
        for n in sorted(set(x) | set(y)):
            in_x, in_y = x.get(n, getlink=True), y.get(n, getlink=True)
            if in_x is None or in_y is None:
                yield f"{at}/{n}: only in one file"
            elif isinstance(in_x, h5py.SoftLink):
                if getattr(in_y, "path", None) != in_x.path:
                    yield f"{at}/{n}: {in_x.path} {in_y}"
            elif isinstance(in_x, h5py.HardLink):
                try:
                    p, q = x[n], y[n]
                    yield from walk(f"{at}/{n}", p, q)
                except Exception as e:  # what h5py cannot read
                    yield f"{at}/{n}: {type(e).__name__}: {e}"

    yield from walk("", a, b)


with h5py.File(sys.argv[1]) as a, h5py.File(sys.argv[2]) as b:
    for line in differences(a, b):
        print(line)
