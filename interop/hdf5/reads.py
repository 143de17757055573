#!/usr/bin/env python3
"""Read a LINDI archive with lindi, and compare it with the HDF5 file that it is of, as h5py reads that.

  reads.py ARCHIVE FILE [--url URL] [--json]

ARCHIVE is .lindi.json, .lindi.tar or .lindi.d, or a zip of the keys of a Zarr hierarchy, which zarr reads by itself. Each group, data set and attribute is compared: names, shapes,
types as far as LINDI keeps them, and every value; NaN equals NaN. --url says what references lead to that mean
FILE, which is read in its place. Each difference is a line; the exit code is 1 if there are any. --json prints
{"groups", "datasets", "attributes", "links", "elements", "differences"} instead.

What lindi cannot read though it wrote it so itself is a difference: of zstd, of fletcher32 with a compressor and of
some Blosc chunks it pads what is compressed, and a name with a backslash it does not find. Its own archive of the file,
by refs.py, tells which these are.

What LINDI does not keep is no difference: the order of bytes of what it holds inline, string types, the order
of links, the limits of dimensions, how wide the numbers in attributes and strings are, and links that are external or broken.
"""

import argparse
import json
import sys
import warnings

import h5py
import hdf5plugin  # noqa: F401: decodes
import numpy as np
import zarr

warnings.simplefilter("ignore")
from lindi import LindiH5pyFile  # noqa: E402
from lindi.LindiH5pyFile.LindiH5pyReference import LindiH5pyReference  # noqa: E402


class Comparison:
    def __init__(self, ours, theirs):
        self.ours, self.theirs = ours, theirs
        self.count = dict.fromkeys(("groups", "datasets", "attributes", "links", "elements"), 0)
        self.differences = []
        self.above = []

    def differ(self, path, what):
        self.differences.append(f"{path}: {what}")

    def group(self, path, a, b):
        self.count["groups"] += 1
        self.attributes(path, a, b)
        links = {name: b.get(name, getlink=True) for name in b}
        expected = {name for name, link in links.items() if self.kept(b, name, link)}
        found = set(a.keys())
        for name in sorted(expected ^ found):
            self.differ(f"{path}{name}", "is missing" if name in expected else "is not in the file")
        for name in sorted(expected & found):
            there = f"{path}{name}"
            try:
                self.member(there, a, b, name, links[name])
            except Exception as err:  # lindi has any
                self.differ(there, f"lindi cannot read it: {type(err).__name__}: {err}")

    def kept(self, group, name, link):
        """Whether a LINDI archive has a member."""
        if isinstance(link, h5py.ExternalLink):
            return False
        try:
            return isinstance(group[name], (h5py.Group, h5py.Dataset))
        except (KeyError, OSError, RuntimeError):
            return False

    def member(self, path, a, b, name, link):
        said = a.get(name, getlink=True)
        if isinstance(link, h5py.SoftLink) or isinstance(said, h5py.SoftLink):
            self.count["links"] += 1
            here, there = (x.path if isinstance(x, h5py.SoftLink) else None for x in (said, link))
            if here != there:
                self.differ(path, f"a soft link to {here!r}, expected {there!r}")
            return
        item, other = a[name], b[name]
        if isinstance(other, h5py.Group) != isinstance(item, h5py.Group):
            self.differ(path, f"{type(item).__name__}, expected {type(other).__name__}")
        elif isinstance(other, h5py.Dataset):
            self.dataset(path, item, other)
        elif other not in self.above:  # a group may be in itself
            self.above.append(other)
            self.group(path + "/", item, other)
            self.above.pop()

    # Values

    def attributes(self, path, a, b):
        names = set(a.attrs.keys())
        for name in sorted(set(b.attrs) ^ names):
            self.differ(f"{path}@{name}", "is not in the file" if name in names else "is missing")
        for name in sorted(set(b.attrs) & names):
            self.count["attributes"] += 1
            there = f"{path}@{name}"
            try:
                self.value(there, a.attrs[name], b.attrs[name], exact=False)
            except Exception as err:
                self.differ(there, f"cannot be compared: {type(err).__name__}: {err}")

    def dataset(self, path, a, b):
        self.count["datasets"] += 1
        self.attributes(path, a, b)
        if b.shape is None:
            self.differ(path, "a data set without elements, which LINDI has no word for")
            return
        if a.shape != b.shape:
            self.differ(path, f"shape {a.shape}, expected {b.shape}")
            return
        self.count["elements"] += b.size
        if b.dtype.fields is not None:
            if a.dtype.names != b.dtype.names:
                self.differ(path, f"members {a.dtype.names}, expected {b.dtype.names}")
                return
            rows = a._zarr_array[...].ravel()  # lindi shows members of one dimension only
            for i, name in enumerate(b.dtype.names):
                mine = [row[i] for row in rows]
                self.value(f"{path}[{name!r}]", np.array([*map(decoded, mine), None], object)[:-1].reshape(b.shape), b[name], exact=False)
            return
        exact = b.dtype.kind in "iufb"
        if exact and a.dtype.newbyteorder("=") != b.dtype.newbyteorder("="):
            self.differ(path, f"elements of {a.dtype}, expected {b.dtype}")
            return
        self.value(path, a[()] if b.shape == () else a[...], b[()], exact)

    def value(self, path, a, b, exact):
        if isinstance(b, h5py.Empty):
            self.differ(path, f"{a!r}, expected nothing, which LINDI has no word for")
            return
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            self.differ(path, f"shape {a.shape}, expected {b.shape}")
            return
        if exact and a.dtype.kind == b.dtype.kind:
            same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and np.array_equal(np.signbit(a), np.signbit(b))
        else:
            same = all(map(self.same, a.ravel().tolist(), b.ravel().tolist()))
        if not same:
            self.differ(path, f"{short(a)}, expected {short(b)}")

    def same(self, a, b):
        if isinstance(b, h5py.Reference) and not b:
            return a is None or isinstance(a, LindiH5pyReference) and a._path is None
        if isinstance(b, h5py.Reference) or isinstance(a, LindiH5pyReference):
            a = decoded(a)  # lindi returns a single one as it is stored
            return isinstance(a, LindiH5pyReference) and bool(b) and a._path == self.theirs[b].name
        if isinstance(a, bytes) or isinstance(b, bytes):
            a, b = (x.decode("utf-8", "surrogateescape").rstrip("\0") if isinstance(x, bytes) else x for x in (a, b))
        return a == b or a != a and b != b


def decoded(x):
    return LindiH5pyReference(x["_REFERENCE"]) if isinstance(x, dict) and "_REFERENCE" in x else x


def short(x):
    text = repr(x)
    return text if len(text) < 200 else text[:200] + "…"


REDIRECTED = {}


def redirect(url, file):
    """Let lindi read a file where references lead to an address."""
    store = sys.modules["lindi.LindiH5pyFile.LindiReferenceFileSystemStore"]
    if not REDIRECTED:
        read = store._read_bytes_from_url_or_path
        store._read_bytes_from_url_or_path = lambda at, *more: read(REDIRECTED.get(at, at), *more)
    REDIRECTED[url] = file
    sys.modules["lindi.LindiH5pyFile.LindiH5pyDataset"]._external_hdf5_clients[url] = h5py.File(file, "r")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("archive")
    parser.add_argument("file")
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.url:
        redirect(args.url, args.file)
    with h5py.File(args.file, "r") as theirs:
        if args.archive.endswith(".zip"):
            ours = LindiH5pyFile.from_zarr_store(zarr.ZipStore(args.archive, mode="r"))
        else:
            ours = LindiH5pyFile.from_lindi_file(args.archive)
        found = Comparison(ours, theirs)
        found.above.append(theirs["/"])
        found.group("/", ours, theirs)
    if args.json:
        print(json.dumps(found.count | {"differences": found.differences}))
    else:
        print("\n".join(found.differences))
    sys.exit(bool(found.differences))


if __name__ == "__main__":
    main()
