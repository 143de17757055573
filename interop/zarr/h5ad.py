#!/usr/bin/env python3
"""Make files of AnnData, or compare one with what anndata reads of Zarr.

  h5ad.py write OUT SEED N       OUT/00000.h5ad and so on
  h5ad.py compare FILE URL...    each URL has a Zarr hierarchy that must be equal to the file, or is a file of HDF5
"""
import sys, warnings

import anndata, numpy as np, pandas as pd, scipy.sparse as sparse, zarr
from anndata.tests.helpers import assert_equal

warnings.simplefilter("ignore")


def make(path, seed, number):
    rng, n, m = np.random.default_rng([seed, number]), 50, 30
    some = lambda *shape: sparse.random(*shape, 0.2, format=["csr", "csc"][number % 2], random_state=rng, dtype="f4")
    a = anndata.AnnData(some(n, m) if number % 3 else rng.random((n, m)).astype("f4"))
    a.obs_names, a.var_names = [f"cell {i}" for i in range(n)], [f"gène {i}" for i in range(m)]
    a.obs["kind"], a.obs["ok"] = pd.Categorical(rng.choice(["a", "b", "c"], n)), rng.random(n) < 0.5
    a.obs["text"], a.obs["number"] = [f"t{i % 4}{i}" for i in range(n)], rng.integers(0, 9, n)
    a.obs["maybe"], a.obs["yes"] = pd.array([1, None] * (n // 2), dtype="Int64"), pd.array([True, None] * (n // 2), dtype="boolean")
    a.obsm["pca"], a.obsp["near"], a.layers["raw"], a.var["weight"] = rng.random((n, 5)), some(n, n), some(n, m), rng.random(m)
    records = np.array([(1, 2.5), (3, 4.5)], [("a", "i4"), ("b", "f8")])
    a.uns = {"s": "text", "i": 3, "f": 0.5, "b": True, "list": np.array(["x", "yy"], object), "d": {"k": np.arange(4), "records": records}, "none": np.array([])}
    a.raw = a.copy()
    a.write_h5ad(path)


def main(verb, *args):
    if verb == "write":
        for i in range(int(args[2])):
            make(f"{args[0]}/{i:05}.h5ad", int(args[1]), i)
        return
    want = anndata.read_h5ad(args[0])
    for url in args[1:]:
        got = anndata.read_h5ad(url) if url.endswith(".h5") else anndata.io.read_elem(zarr.open_group(url, mode="r"))
        try:
            assert_equal(got, want)
        except AssertionError as e:
            print(url, e)


if __name__ == "__main__":
    main(*sys.argv[1:])
