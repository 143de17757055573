#!/usr/bin/env python3
"""Compare two HDF5 files by h5py: same.py FIRST SECOND

Groups, soft links, references, datasets with their types, and attributes are compared; of attributes only the values,
because JSON loses types. Of NWB files what pynwb's validator says is compared, too. Prints a line for each difference,
and the exit code is 1 if there is one.
"""

import sys
import warnings

import h5py
import hdf5plugin  # noqa: F401  filters
import numpy as np


def plain(f, v):
    """A value, so that it can be compared."""
    if isinstance(v, h5py.Empty):
        return "empty"
    if isinstance(v, h5py.RegionReference):
        return ("region", f[v].name, repr(np.asarray(f[v][v]).tolist())) if v else None
    if isinstance(v, h5py.Reference):
        return ("reference", f[v].name) if v else None
    if isinstance(v, np.ndarray):
        values = v.reshape(-1)
        if v.dtype.kind in "fc":
            return [[repr(complex(x)) for x in values], v.shape]
        return [[plain(f, x) for x in values] if v.dtype.kind in "OSV" else values.tolist(), v.shape]
    if isinstance(v, np.void):
        return [plain(f, v[n]) for n in v.dtype.names] if v.dtype.names else v.tobytes()
    if isinstance(v, bytes):
        return v.decode("latin-1")
    if isinstance(v, str):
        return v.encode().decode("latin-1")
    if isinstance(v, (np.inexact, float)):
        return repr(complex(v))
    return v.item() if isinstance(v, np.generic) else v


def kind(t):
    """A type, so that it can be compared: of strings of variable length, all are one."""
    if h5py.check_string_dtype(t):
        return "string" if t.kind == "O" else str(t)
    if h5py.check_ref_dtype(t):
        return h5py.check_ref_dtype(t).__name__
    if h5py.check_vlen_dtype(t):
        return "list of " + str(h5py.check_vlen_dtype(t))
    return [(n, kind(t[n])) for n in t.names] if t.names else str(t)


def attributes(at, a, b):
    for n in sorted(set(a.attrs) | set(b.attrs)):
        if n not in a.attrs or n not in b.attrs:
            yield f"{at}@{n}: is only in the {'second' if n in b.attrs else 'first'}"
        elif (x := plain(a.file, a.attrs[n])) != (y := plain(b.file, b.attrs[n])):
            yield f"{at}@{n}: {y!r:.200}, expected {x!r:.200}"


def differences(at, a, b):
    yield from attributes(at, a, b)
    if isinstance(a, h5py.Dataset) or isinstance(b, h5py.Dataset):
        if type(a) is not type(b) or a.shape != b.shape or kind(a.dtype) != kind(b.dtype):
            yield f"{at}: {b} of {kind(b.dtype)}, expected {a} of {kind(a.dtype)}"
        elif (x := plain(a.file, a[()])) != (y := plain(b.file, b[()])):
            yield f"{at}: {y!r:.300}, expected {x!r:.300}"
        return
    for n in sorted(set(a) | set(b)):
        if n not in a.keys() or n not in b.keys():
            yield f"{at}/{n}: is only in the {'second' if n in b.keys() else 'first'}"
            continue
        x, y = a.get(n, getlink=True), b.get(n, getlink=True)
        if isinstance(x, h5py.HardLink) and isinstance(y, h5py.SoftLink) and a[n] == a[y.path] and (at + "/").startswith(y.path.rstrip("/") + "/"):
            continue  # a group above, as Zarr can have it
        if isinstance(x, h5py.SoftLink) or isinstance(y, h5py.SoftLink):
            if getattr(x, "path", None) != getattr(y, "path", None):
                yield f"{at}/{n}: {y}, expected {x}"
        elif isinstance(a[n], h5py.Datatype):
            yield f"{at}/{n}: is a type"
        else:
            yield from differences(f"{at}/{n}", a[n], b[n])


def judged(file):
    import pynwb

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pynwb.NWBHDF5IO(file, "r") as io:
            return [str(e) for e in pynwb.validate(io=io)]


def main():
    first, second = sys.argv[1:]
    with h5py.File(first) as a, h5py.File(second) as b:
        found = list(differences("", a, b))
    if first.endswith(".nwb"):
        before = judged(first)
        found += [e for e in judged(second) if e not in before]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
