#!/usr/bin/env python3
"""Read a Zarr group over HTTP with stock zarr and fsspec, no lindi, and compare it with what the reference reads.

  zarr_over_http.py URL EXPECT.json [--base DIR]

Every array of EXPECT.json is opened below URL and compared: data_sha256 is that of its bytes in C order and
stored type, values_sha256 that of its values where it holds objects. Left out are arrays that the reference
cannot read itself (read_error) and those that lie in another archive (external_array_link). A line OK, SKIP or
FAIL is printed for each, then one for all. --base is the folder that a relative EXPECT.json lies in.

What a server fails at, zarr takes for a chunk that is not there, and reads fill values. So an answer of 5xx is
a FAIL whatever is read.

exit 0 = all equal; 1 = differences; 2 = could not run.
"""
import argparse, json, os, sys

sys.dont_write_bytecode = True      # nothing is left beside the scripts
from check_with_reference import canon_json, sha


def read(group, path):
    """What array_record of check_with_reference says of an array, of its content."""
    import numpy as np
    a = np.asarray(group[path][...])
    if a.dtype.kind == "O":
        return "values_sha256", sha(canon_json(a.tolist()))
    return "data_sha256", sha(np.ascontiguousarray(a).tobytes())


def differences(group, path, want):
    import zarr
    try:
        got = group[path]
        if not isinstance(got, zarr.Array):
            return [f"a {type(got).__name__}, not an array"]
        errs = [f"{k}: expected {want[k]}, found {v}" for k, v in (("shape", list(got.shape)), ("chunks", list(got.chunks))) if want[k] != v]
        kind, sum = read(group, path)
    except Exception as e:
        return [f"{type(e).__name__}: {e}"[:500]]
    if want.get(kind) != sum:
        errs.append(f"{kind}: expected {want.get(kind)}, found {sum}")
    return errs


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url")
    p.add_argument("expect")
    p.add_argument("--base", default="")
    a = p.parse_args()
    try:
        with open(os.path.join(a.base, a.expect)) as f:
            arrays = json.load(f)["arrays"]
    except (OSError, ValueError, KeyError) as e:
        print(f"cannot run: {a.expect}: {type(e).__name__}: {e}", file=sys.stderr)
        return 2
    import aiohttp, fsspec, numcodecs, zarr     # numcodecs has json2 and the other codecs of objects
    refused = []
    trace = aiohttp.TraceConfig()
    async def answered(session, context, params):
        if params.response.status >= 500:
            refused.append(f"{params.url}: {params.response.status} {params.response.reason}")
    async def broke(session, context, params):
        refused.append(f"{params.url}: {type(params.exception).__name__}: {params.exception}")
    trace.on_request_end.append(answered)
    trace.on_request_exception.append(broke)
    try:
        group = zarr.open_group(fsspec.get_mapper(a.url, client_kwargs=dict(trace_configs=[trace])), mode="r")
    except Exception as e:
        print(f"FAIL {a.url}: {type(e).__name__}: {e}"[:500])
        return 1
    failed = compared = 0
    for path in sorted(arrays):
        want = arrays[path]
        why = next((k for k in ("read_error", "external_array_link") if k in want), None)
        if why:
            print(f"SKIP {path}: {why}")
            continue
        errs = differences(group, path, want)
        compared += 1
        failed += bool(errs)
        print(f"FAIL {path}: {'; '.join(errs)}" if errs else f"OK {path}")
    for r in refused:
        print(f"FAIL {r}")
    bad = bool(failed or refused)
    print(f"{'FAIL' if bad else 'OK'} {a.url}: {compared} arrays compared, {failed} differ, {len(refused)} requests failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
