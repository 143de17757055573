#!/usr/bin/env python3
"""Compare what pynwb reads of an NWB file, through lindi by references, and by h5py: pynwb_reads.py ARCHIVE FILE

Each object of the file is compared by its object_id: its type, and all its fields. The exit code is 1 if one differs.
"""

import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
from hdmf.container import AbstractContainer  # noqa: E402
from lindi import LindiH5pyFile  # noqa: E402
from pynwb import NWBHDF5IO  # noqa: E402


def plain(v):
    """A field's value, so that it can be compared: arrays as nested lists, objects as their ids."""
    if isinstance(v, AbstractContainer):
        return v.object_id
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (str, bytes)):
        return v
    if isinstance(v, (list, tuple, set, frozenset)):
        return sorted(map(repr, v)) if isinstance(v, (set, frozenset)) else [plain(x) for x in v]
    if hasattr(v, "dtype") and v.dtype.fields is not None or hasattr(v, "shape") and not np.isscalar(v):
        return plain(np.asarray(v[()] if hasattr(v, "file") and v.shape == () else v[:]).tolist())
    if isinstance(v, np.generic):
        v = v.item()
    if isinstance(v, float) and v != v:
        return "NaN"
    return v


def main():
    archive, file = sys.argv[1:]
    differences = []
    with NWBHDF5IO(file, "r") as io, NWBHDF5IO(file=LindiH5pyFile.from_lindi_file(archive), mode="r") as by_lindi:
        want, got = io.read().objects, by_lindi.read().objects
        if want.keys() != got.keys():
            differences.append(f"{len(got)} objects, expected {len(want)}")
        for key in want.keys() & got.keys():
            a, b = want[key], got[key]
            if type(a).__name__ != type(b).__name__ or a.fields.keys() != b.fields.keys():
                differences.append(f"{a.name}: {type(b).__name__} of {list(b.fields)}, expected {type(a).__name__} of {list(a.fields)}")
                continue
            for name in a.fields:
                x, y = plain(a.fields[name]), plain(b.fields[name])
                if x != y:
                    differences.append(f"{a.name}.{name}: {y!r:.200}, expected {x!r:.200}")
        print(len(want), "objects")
    print("\n".join(differences))
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
