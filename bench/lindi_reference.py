"""What bench lets the reference implementation of LINDI do: one step a process,
timed without the start of Python. Prints wall and CPU seconds and bytes of RSS.

  write FILE N SIZE    one array of N chunks of SIZE bytes, stored as they are
  open FILE            the least of five
  read FILE N K        K chunks of N at random
  commit FILE N SIZE   N times: add an array of one chunk, flush
  http URL N K         K chunks of N at random, one after the other
  refer FILE|URL OUT   the references of an HDF5 file, all of its chunks
"""

import contextlib
import io
import json
import random
import resource
import sys
import time

import lindi
import numpy as np
from lindi.LindiH5ZarrStore.LindiH5ZarrStoreOpts import LindiH5ZarrStoreOpts


def timed(f):
    wall, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        out = f()
    return time.perf_counter() - wall, time.process_time() - cpu, out


def content(n, size):
    return np.random.default_rng(1).integers(0, 256, (n, size)).astype("u1")


def write(file, n, size):
    data = content(n, size)

    def step():
        f = lindi.LindiH5pyFile.from_lindi_file(file, mode="w")
        f.create_dataset("x", data=data, chunks=(1, size), compression=None)
        f.flush()
        f.close()

    return timed(step)


def open_(file):
    return min((timed(lambda: lindi.LindiH5pyFile.from_lindi_file(file)) for _ in range(5)), key=lambda t: t[0])


def read(file, n, k):
    f = lindi.LindiH5pyFile.from_lindi_file(file)
    store = f._zarr_store
    rnd = random.Random(1)
    keys = [f"x/{rnd.randrange(n)}.0" for _ in range(k)]
    return timed(lambda: [store[key] for key in keys])


def commit(file, n, size):
    data = content(n, size)
    f = lindi.LindiH5pyFile.from_lindi_file(file, mode="w")

    def step():
        for i in range(n):
            f.create_dataset(f"d{i}", data=data[i], chunks=(size,), compression=None)
            f.flush()

    took = timed(step)
    f.close()
    return took


def refer(file, out):
    opts = LindiH5ZarrStoreOpts(num_dataset_chunks_threshold=None)

    def step():
        store = lindi.LindiH5ZarrStore.from_file(file, url=file, opts=opts)
        with open(out, "w") as f:
            json.dump(store.to_reference_file_system(), f)
        store.close()

    return timed(step)


def main():
    step, file, *more = sys.argv[1:]
    do = {"write": write, "open": open_, "read": read, "commit": commit, "http": read, "refer": refer}[step]
    wall, cpu, _ = do(file, *(more if step == "refer" else map(int, more)))
    print(json.dumps({"Wall": wall, "CPU": cpu, "RSS": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


main()
