#!/usr/bin/env python3
"""Read Zarr hierarchies with stock zarr, 2 or 3, and say what was read: a line of JSON for each.

  read.py HOW ADDRESS...

ADDRESS is a URL or a folder. HOW is open, consolidated (all metadata in one request), or listed (all members
by lists, though there may be consolidated metadata). A line is {"members": {path: what}}, or {"error": text}; what is
{"kind": "group", "attrs": {...}} or {"kind": "array", "shape": [...], "dtype": text, "attrs": {...},
"sha": of the elements in C order, little endian, or "values": [texts] of objects and strings}.
"""
import hashlib, json, sys, warnings
import numpy as np, zarr

warnings.simplefilter("ignore")
THREE = int(zarr.__version__.split(".")[0]) >= 3


def text(v):
    if v is None:
        return ""
    if isinstance(v, bytes):
        return v.decode("utf-8", "surrogateescape")
    return v if isinstance(v, str) else json.dumps(v, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def little(a):
    if a.dtype.fields or a.dtype.kind in "SVO":
        t = np.dtype([(n, a.dtype[n].newbyteorder("<")) for n in a.dtype.names]) if a.dtype.names else a.dtype
        return a.astype(t) if t != a.dtype else a
    return a.astype(a.dtype.newbyteorder("<"))


def what(node):
    attrs = json.loads(json.dumps(dict(node.attrs)).replace("NaN", '"NaN"').replace('""NaN""', '"NaN"'))
    if not isinstance(node, zarr.Array):
        return dict(kind="group", attrs=attrs)
    got = np.asarray(node[...])
    d = dict(kind="array", shape=list(node.shape), dtype=str(got.dtype), attrs=attrs)
    if got.dtype.kind in "OTU":
        d["values"] = [text(v) for v in got.ravel().tolist()]
    else:
        d["sha"] = hashlib.sha256(np.ascontiguousarray(little(got)).tobytes()).hexdigest()
    return d


def members(group, path=""):
    if THREE:
        return dict(group.members(max_depth=None))
    found = {}
    for name, node in group.items():
        found[path + name] = node
        if not isinstance(node, zarr.Array):
            found |= members(node, path + name + "/")
    return found


def read(how, address):
    if how == "array":
        return {"": what(zarr.open_array(address, mode="r"))}
    if how == "consolidated":
        group = zarr.open_consolidated(address, mode="r")
    elif how == "listed" and THREE:
        group = zarr.open_group(address, mode="r", use_consolidated=False)
    else:
        group = zarr.open_group(address, mode="r")
    return {"": what(group)} | {p: what(node) for p, node in members(group).items()}


def main(how, *addresses):
    for address in addresses:
        try:
            line = dict(members=read(how, address))
        except Exception as e:
            line = dict(error=f"{type(e).__name__}: {e}"[:500])
        print(json.dumps(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
