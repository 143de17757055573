#!/usr/bin/env python3
"""Write a data set by xarray, and compare it with what xarray opens at a URL.

  xarray_over_http.py write FOLDER
  xarray_over_http.py read URL...
"""
import sys, warnings
import numpy as np, pandas as pd, xarray

warnings.simplefilter("ignore")
data = xarray.Dataset(
    {"t": (("time", "y", "x"), np.arange(2 * 30 * 20, dtype="f4").reshape(2, 30, 20), {"unit": "K"}), "n": ((), np.int32(7)), "label": (("y",), np.array([f"ä{i}" for i in range(30)], dtype=object))},
    {"time": pd.date_range("2024-02-29", periods=2), "y": np.arange(30), "x": np.linspace(0, 1, 20)}, {"title": "of xarray"},
)

def objects(ds):
    """Strings are objects in version 2, and something else in version 3."""
    return ds.assign(label=ds["label"].astype(object))


def main(verb, *args):
    if verb == "write":
        data.to_zarr(args[0], zarr_format=2, consolidated=False)
    else:
        for url in args:
            xarray.testing.assert_identical(objects(xarray.open_zarr(url, consolidated=True).load()), objects(data))
            xarray.testing.assert_identical(objects(xarray.open_zarr(url).load()), objects(data))
    print("OK")


if __name__ == "__main__":
    main(*sys.argv[1:])
