#!/usr/bin/env python3
"""Print the reference file system that lindi makes of an HDF5 file.

  refs.py FILE URL [--chunks N|none] [--split N|none] [--write OUT.lindi.json]

URL is what the references lead to, wherever FILE is now. What is printed is what
LindiH5pyFile.from_hdf5_file(FILE, url=URL).to_reference_file_system() returns, as JSON in one line, with its
members in the order in which lindi makes them. --write writes it as lindi does, sorted.

  --chunks N   num_dataset_chunks_threshold: a data set that could have more chunks gets an _EXTERNAL_ARRAY_LINK
               and no references; 1000 if not given. none: no data set does
  --split N    contiguous_dataset_max_chunk_size: numbers that are one run of more bytes are cut into chunks of
               about so many; 20000000 if not given. none: they are not

lindi refuses a file for one thing in it that it cannot do. Then {"error": "..."} is printed, and the exit code is 1.
"""

import argparse
import json
import sys
import warnings

import hdf5plugin  # noqa: F401: decodes what is taken inline

warnings.simplefilter("ignore")
from lindi import LindiH5pyFile, LindiH5ZarrStore  # noqa: E402
from lindi.LindiH5ZarrStore.LindiH5ZarrStoreOpts import LindiH5ZarrStoreOpts  # noqa: E402


def refs(file, url, chunks=1000, split=20_000_000):
    opts = LindiH5ZarrStoreOpts(num_dataset_chunks_threshold=chunks, contiguous_dataset_max_chunk_size=split)
    store = LindiH5ZarrStore.from_file(file, url=url, opts=opts)
    try:
        return store.to_reference_file_system()
    finally:
        store.close()


def number(text):
    return None if text == "none" else int(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("url")
    parser.add_argument("--chunks", type=number, default=1000)
    parser.add_argument("--split", type=number, default=20_000_000)
    parser.add_argument("--write")
    args = parser.parse_args()
    try:
        made = refs(args.file, args.url, args.chunks, args.split)
    except Exception as err:  # lindi has any
        print(json.dumps({"error": f"{type(err).__name__}: {err}"}))
        sys.exit(1)
    print(json.dumps(made))
    if args.write:
        LindiH5pyFile.from_reference_file_system(made).write_lindi_file(args.write)


if __name__ == "__main__":
    main()
