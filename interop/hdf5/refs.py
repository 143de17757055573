#!/usr/bin/env python3
"""Print the reference file system that lindi makes of an HDF5 file.

  refs.py FILE URL [--chunks N|none] [--split N|none] [--sorted] [--each]

URL is what references lead to, whatever FILE is called here. What is printed is
LindiH5ZarrStore.from_file(FILE, url=URL).to_reference_file_system() as JSON, with members in the order
in which lindi makes them; --sorted prints it byte for byte as lindi writes a .lindi.json file.

  --chunks N   num_dataset_chunks_threshold: a data set of more chunks (of its grid, stored or not) is an
               _EXTERNAL_ARRAY_LINK. 1000 if not given; none: there are no such links
  --split N    contiguous_dataset_max_chunk_size: contiguous numbers of more bytes are cut into chunks of
               about so many. 20000000 if not given; none: they are one chunk

lindi refuses a whole file for one thing that it cannot do. Then {"error": "…"} is printed, and the exit
code is 1. With --each an object that it refuses is left out with all below it, as are links that it cannot
follow, and "refused" has its path with the reason; the rest is what lindi makes of it.
"""

import argparse
import io
import json
import sys
import warnings

warnings.simplefilter("ignore")

import h5py  # noqa: E402
import hdf5plugin  # noqa: E402, F401
from lindi import LindiH5ZarrStore  # noqa: E402
from lindi.LindiH5ZarrStore.LindiH5ZarrStoreOpts import LindiH5ZarrStoreOpts  # noqa: E402


class Sound(h5py.Group):
    """A group without those members that lindi refuses."""

    refused: dict = {}
    above: list = []
    refuses = staticmethod(lambda item, path: None)

    def keys(self):
        return [name for name in super().keys() if self.is_sound(name)]

    def is_sound(self, name):
        path = f"{self.name.rstrip('/')}/{name}"
        try:
            item = super().__getitem__(name)
            link = super().get(name, getlink=True)
            if isinstance(link, h5py.HardLink) and isinstance(item, h5py.Group) and item in Sound.above:
                raise ValueError("a hard link to a group above")
            Sound.refuses(path.lstrip("/"))
        except Exception as err:
            Sound.refused[path] = f"{type(err).__name__}: {err}"
            return False
        return True


def each(store):
    """What lindi makes of a file, object by object."""
    refs, refused = {}, {}

    def take(key, f):
        """Let lindi process one object by itself, in the place of the whole file."""
        root, store._h5f = store._h5f, Only(store._h5f, key, f)
        try:
            return store.to_reference_file_system()
        finally:
            store._h5f = root

    return refs, refused, take


def main():
    number = lambda text: None if text == "none" else int(text)
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("url")
    parser.add_argument("--chunks", type=number, default=1000)
    parser.add_argument("--split", type=number, default=20_000_000)
    parser.add_argument("--sorted", action="store_true")
    parser.add_argument("--each", action="store_true")
    args = parser.parse_args()


if __name__ == "__main__":
    main()
