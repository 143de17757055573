#!/usr/bin/env python3
"""Make netCDF-4 files at random, or compare what xarray opens of them with what it opens of Zarr.

  netcdf.py write OUT SEED N     N files, OUT/00000.nc and so on, by netCDF's own library and by h5netcdf in turn
  netcdf.py compare FILE URL...  each URL has a Zarr hierarchy that must be equal to the file, or is a netCDF-4 file

Prints what differs.
"""
import random, sys, warnings

import numpy as np, xarray

warnings.simplefilter("ignore")

DIMS = {"time": 30, "y": 7, "x": 11, "bounds": 2, "n": 1}
UNITS = ["days since 2001-01-01", "hours since 1999-12-31 12:00"]


def variable(rnd, noise, dims):
    shape = tuple(DIMS[d] for d in dims)
    kind = rnd.choice(["f4", "f8", "i2", "i4", "u1", "i8", ">f4", ">i2", "text", "chars", "scaled", "masked", "date", "bool"])
    attrs, encoding = {"units": "K", "long_name": "größe", "valid": np.float32(1.5), "flags": np.array([1, 2, 4], "i2"), "one": np.int32(3)}, {}
    if kind == "text":
        value = np.array([rnd.choice(["", "a", "größe", "x" * 40]) for _ in range(int(np.prod(shape)))], object).reshape(shape)
    elif kind == "chars":
        value = np.array([rnd.choice([b"", b"a", b"abc"]) for _ in range(int(np.prod(shape)))], "S3").reshape(shape)
    elif kind == "date":
        value, attrs = np.datetime64("2001-02-03", "ns") + noise.integers(0, 10000, shape).astype("m8[h]").astype("m8[ns]"), {"long_name": "when"}
        encoding = {"units": rnd.choice(UNITS), "dtype": rnd.choice(["i4", "f8"])}
    elif kind == "bool":
        value = noise.integers(0, 2, shape).astype(bool)
    else:
        value = noise.integers(-90, 90, shape).astype("f8")
        if kind == "scaled":
            encoding = {"dtype": "i2", "scale_factor": 0.25, "add_offset": 10.0, "_FillValue": np.int16(-999)}
            value = value / 4
        if kind in ("scaled", "masked"):
            value = np.where(noise.random(shape) < 0.2, np.nan, value)
            encoding.setdefault("_FillValue", rnd.choice([np.nan, -1e30]))
        else:
            value = np.abs(value).astype(kind)
    if shape and kind != "text" and rnd.random() < 0.7:
        encoding |= {"zlib": rnd.random() < 0.6, "shuffle": rnd.random() < 0.5, "fletcher32": rnd.random() < 0.3}
        if kind != "chars":
            encoding["chunksizes"] = tuple(rnd.randint(1, n) for n in shape)
    return xarray.Variable(dims, value, attrs, encoding)


def make(rnd, noise, path, engine):
    names = list(DIMS)
    data = {f"v{i}": variable(rnd, noise, tuple(rnd.sample(names, rnd.randint(0, 3)))) for i in range(12)}
    coords = {
        "x": ("x", np.linspace(0, 1, DIMS["x"])),
        "time": ("time", np.datetime64("2001-01-01", "ns") + np.arange(DIMS["time"]) * np.timedelta64(1, "D")),
        "lat": (("y", "x"), noise.random((DIMS["y"], DIMS["x"]))),
        "crs": ((), np.int32(0), {"grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0}),
    }
    ds = xarray.Dataset(data, coords, {"title": "of netCDF", "level": np.int32(5), "list": np.arange(3.0)})
    ds.to_netcdf(path, engine=engine, unlimited_dims=rnd.choice([[], ["time"]]))
    below = xarray.Dataset({"inner": variable(rnd, noise, ("y", "x"))}, attrs={"of": "a group"})
    below.to_netcdf(path, engine=engine, mode="a", group="below")


def main(verb, *args):
    if verb == "write":
        out, seed, n = args[0], args[1], int(args[2])
        for i in range(n):
            rnd = random.Random(f"{seed} {i}")
            make(rnd, np.random.default_rng(rnd.randrange(1 << 40)), f"{out}/{i:05}.nc", ["netcdf4", "h5netcdf"][i % 2])
        return
    for group in (None, "below"):
        want = xarray.open_dataset(args[0], engine="h5netcdf", group=group).load()
        for url in args[1:]:
            if url.endswith(".nc") and "://" not in url:
                by_library = xarray.open_dataset(url, engine="netcdf4", group=group).load()
                got = xarray.open_dataset(url, engine="h5netcdf", group=group).load()
                for name in got.variables:
                    if got[name].dtype != want[name].dtype or by_library[name].dtype != want[name].dtype:
                        print(url, group, name, got[name].dtype, by_library[name].dtype, want[name].dtype)
                xarray.testing.assert_equal(got, by_library)
            else:
                got = xarray.open_zarr(url, group=group, consolidated="://" not in url).load()
            for name in got.variables:  # the encodings differ, and so may kinds of strings
                if got[name].dtype.kind in "TU" and want[name].dtype.kind in "OU":
                    got[name] = got[name].astype(object)
            try:
                xarray.testing.assert_identical(got, want.assign({n: v.astype(object) for n, v in want.variables.items() if v.dtype.kind == "U" and n in want.data_vars}))
            except AssertionError as e:
                print(url, group, e)


if __name__ == "__main__":
    main(*sys.argv[1:])
