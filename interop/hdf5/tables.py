#!/usr/bin/env python3
"""Tell what pynwb reads of the tables of NWB files: tables.py FILE...

A line of JSON for each file: by the path of a table its ids and, by name, the cells of its columns. Numbers are
numbers, NaN is "NaN"; what refers to an object is {"to": PATH}; rows of other tables are their numbers.
"""

import json
import sys
import warnings

import h5py
import numpy as np

warnings.simplefilter("ignore")
from hdmf.common import DynamicTable, DynamicTableRegion, VectorIndex  # noqa: E402
from hdmf.container import AbstractContainer  # noqa: E402
from pynwb import NWBHDF5IO  # noqa: E402


def plain(v, paths):
    if isinstance(v, AbstractContainer):
        return {"to": paths[v.object_id]}
    if isinstance(v, (np.ndarray, list, tuple, np.void)):
        return [plain(x, paths) for x in v]
    if isinstance(v, np.generic):
        v = v.item()
    if isinstance(v, bytes):
        v = v.decode()
    if isinstance(v, float) and v != v:
        return "NaN"
    return v


def cell(column, i):
    last = column
    while isinstance(last, VectorIndex):
        last = last.target
    return column.get(i, index=True) if isinstance(last, DynamicTableRegion) else column[i]


def main():
    for name in sys.argv[1:]:
        paths, tables = {}, {}
        with h5py.File(name) as f:
            f.visititems(lambda at, o: paths.update({o.attrs["object_id"]: at}) if "object_id" in o.attrs else None)
        with NWBHDF5IO(name, "r") as io:
            for o in io.read().objects.values():
                if isinstance(o, DynamicTable):
                    tables[paths[o.object_id]] = {
                        "ids": [int(x) for x in o.id[:]],
                        "columns": {c: [plain(cell(o[c], i), paths) for i in range(len(o))] for c in o.colnames},
                    }
        print(json.dumps(tables))


if __name__ == "__main__":
    main()
