"""What bench lets other readers of HDF5 on a server do: one step a process,
timed without the start of Python. Prints wall and CPU seconds and bytes of RSS.

  kerchunk URL                  the references of a file
  virtualizarr URL GROUP        the references of the arrays of a group
  h5py URL                      all objects, attributes and numbers of chunks, by fsspec
  h5py-slice URL ARRAY N OUT    elements N to 2 N, by fsspec
  lindi-slice URL ARRAY N OUT
  h5py-scalars FILE N           makes a file of N datasets of one number, in folders of a thousand
  h5py-walk FILE                all objects of a local file
"""

import contextlib
import importlib
import io
import json
import resource
import sys
import time
import warnings
from urllib.parse import urlsplit

warnings.simplefilter("ignore")
NEEDS = {"kerchunk": ["kerchunk.hdf", "fsspec", "aiohttp"], "virtualizarr": ["virtualizarr.parsers", "obstore.store", "obspec_utils.registry"], "h5py": ["h5py", "fsspec", "aiohttp"], "lindi": ["lindi"]}


def kerchunk(url):
    import fsspec
    from kerchunk.hdf import SingleHdf5ToZarr

    with fsspec.open(url) as f:
        return SingleHdf5ToZarr(f, url, inline_threshold=0).translate()


def virtualizarr(url, group):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore
    from virtualizarr.parsers import HDFParser

    base = "http://" + urlsplit(url).netloc
    return HDFParser(group=group)(url=url, registry=ObjectStoreRegistry({base: HTTPStore.from_url(base, client_options={"allow_http": True})}))


def h5py(url):
    import fsspec
    import h5py

    def see(name, o):
        dict(o.attrs)
        if isinstance(o, h5py.Dataset) and o.chunks:
            o.id.get_num_chunks()

    with fsspec.open(url) as f, h5py.File(f) as file:
        file.visititems(see)


def lindi(url):
    import lindi

    return lindi.LindiH5pyFile.from_hdf5_file(url)


def h5py_scalars(path, n):
    import h5py

    with h5py.File(path, "w") as file:
        for i in range(int(n)):
            file.create_dataset(f"g{i // 1000:03d}/d{i:06d}", data=float(i))


def h5py_walk(path):
    import h5py

    with h5py.File(path) as file:
        file.visititems(lambda name, o: None)


def h5py_slice(url, array, n, out):
    import fsspec
    import h5py

    with fsspec.open(url) as f, h5py.File(f) as file:
        part(file, array, int(n), out)


def lindi_slice(url, array, n, out):
    part(lindi(url), array, int(n), out)


def part(file, array, n, out):
    with open(out, "wb") as f:
        f.write(file[array][n : 2 * n].tobytes())


def main():
    step, *args = sys.argv[1:]
    for name in NEEDS[step.partition("-")[0]]:
        importlib.import_module(name)
    wall, cpu = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        globals()[step.replace("-", "_")](*args)
    print(json.dumps({"Wall": time.perf_counter() - wall, "CPU": time.process_time() - cpu, "RSS": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


main()
