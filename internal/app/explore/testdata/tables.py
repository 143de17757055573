"""Makes tables.nwb.gz: tables, spikes, times and images, of what the page shows of them.

    "$(interop/install hdf5)" internal/app/explore/testdata/tables.py internal/app/explore/testdata
"""
import gzip, os, sys

import h5py
import numpy as np

path = os.path.join(sys.argv[1], "tables.nwb")
text = h5py.string_dtype()
rng = np.random.default_rng(20261124)


def table(f, at, kind, about, names):
    g = f.create_group(at)
    g.attrs.update(neurodata_type=kind, description=about, namespace="core")
    g.attrs.create("colnames", names, dtype=text)
    return g


def column(g, name, about, **more):
    d = g.create_dataset(name, **more)
    d.attrs.update(neurodata_type="VectorData", description=about)
    return d


def index(g, name, ends):
    d = g.create_dataset(name + "_index", data=np.array(ends, "u4"))
    d.attrs.update(neurodata_type="VectorIndex", target=g[name].ref)


with h5py.File(path, "w", libver="latest") as f:
    f.attrs.update(neurodata_type="NWBFile", namespace="core", nwb_version="2.7.0")
    for name, value in dict(session_description="tables, spikes and images", identifier="two", session_start_time="2026-01-02T03:04:05+00:00").items():
        f.create_dataset(name, data=value, dtype=text)

    shank = f.create_group("general/extracellular_ephys/shank")
    shank.attrs.update(neurodata_type="ElectrodeGroup", description="a shank", location="CA1")
    e = table(f, "general/extracellular_ephys/electrodes", "DynamicTable", "where the electrodes are", ["x", "y", "location", "group", "good"])
    e.create_dataset("id", data=np.arange(8))
    column(e, "x", "in µm", data=np.zeros(8, "f4"))
    column(e, "y", "in µm", data=(np.arange(8) * 20.1).astype("f4"))
    column(e, "location", "the part of the brain", data=["CA1", "CA3, <b>deep</b>"] * 4, dtype=text)
    column(e, "group", "the shank", data=[shank.ref] * 8, dtype=h5py.ref_dtype)
    column(e, "good", "whether it works", data=np.arange(8) % 3 > 0)

    counts = rng.integers(0, 120, 40)
    spikes = [np.sort(rng.uniform(0, 60, n)) for n in counts]
    u = table(f, "units", "Units", "cells that were told apart", ["spike_times", "quality", "electrodes", "waveform_mean"])
    u.create_dataset("id", data=np.arange(40) + 100)
    column(u, "spike_times", "when it fired, in seconds", data=np.concatenate(spikes), chunks=(500,), compression="gzip").attrs["resolution"] = 1 / 30000
    index(u, "spike_times", np.cumsum(counts))
    column(u, "quality", "how well it is told apart", data=np.arange(40, dtype="u1") % 3).attrs.update(neurodata_type="EnumData")
    names = column(u, "quality_elements", "the words of quality", data=["good", "multi", "noise"], dtype=text)
    u["quality"].attrs["elements"] = names.ref
    column(u, "electrodes", "where it is seen", data=np.repeat(np.arange(40) % 8, 2)).attrs.update(neurodata_type="DynamicTableRegion", table=e.ref)
    index(u, "electrodes", np.arange(1, 41) * 2)
    column(u, "waveform_mean", "what it looks like", data=rng.normal(size=(40, 32)).astype("f4")).attrs["unit"] = "volts"

    t = table(f, "intervals/trials", "TimeIntervals", "a million of them", ["start_time", "stop_time", "side", "score"])
    n = 1_000_000
    t.create_dataset("id", (n,), "i4", chunks=(50_000,), compression="gzip", shuffle=True)[...] = np.arange(n)
    column(t, "start_time", "when it began", shape=(n,), dtype="f8", chunks=(50_000,), compression="gzip")[-50_000:] = np.arange(50_000) / 4
    column(t, "stop_time", "when it ended", shape=(n,), dtype="f8", chunks=(50_000,), compression="gzip")[:50] = np.arange(50) / 4 + 0.1
    column(t, "side", "left or right", data=np.array([b"left", b"right"])[np.arange(n) // 1000 % 2], chunks=(50_000,), compression="gzip")
    score = column(t, "score", "a chunk of it is damaged", shape=(n,), dtype="i2", chunks=(100,), compression="gzip")
    score[:300] = np.arange(300)
    harm = score.id.get_chunk_info(1)

    walk = f.create_group("processing/behavior/Position/path")
    walk.attrs.update(neurodata_type="SpatialSeries", description="where it was; it was looked at ever less often", comments="made up")
    times = walk.create_dataset("timestamps", data=np.linspace(0, 6, 400) ** 2)
    times.attrs.update(unit="seconds", interval=1)
    walk.create_dataset("data", data=np.stack([np.sin(times[...]), np.cos(times[...] * 0.7)], 1)).attrs.update(unit="meters", conversion=0.01)
    walk.create_dataset("speed", data=np.abs(np.cos(times[...])))
    late = f.create_group("processing/behavior/late")
    late.attrs.update(neurodata_type="TimeSeries", description="its times are not in order")
    late.create_dataset("timestamps", data=[0.0, 2.0, 1.0, 3.0]).attrs["unit"] = "seconds"
    late.create_dataset("data", data=[1.0, 2.0, 3.0, 4.0]).attrs.update(unit="volts", conversion=1e-3, offset=0.5)

    movie = f.create_group("acquisition/movie")
    movie.attrs.update(neurodata_type="ImageSeries", description="a disc that moves")
    y, x = np.mgrid[:24, :32]
    frames = np.stack([255.0 * ((x - 4 - 2 * i) ** 2 + (y - 12) ** 2 < 20) + 10 * i for i in range(12)])
    movie.create_dataset("data", data=frames.astype("u2"), chunks=(4, 24, 32), compression="gzip").attrs.update(unit="n.a.")
    movie.create_dataset("timestamps", data=np.arange(12) * 0.5 + 3)
    colour = f.create_group("acquisition/colour")
    colour.attrs.update(neurodata_type="ImageSeries", description="three lights")
    lights = np.zeros((6, 24, 32, 3), "u1")
    for i in range(6):
        for k in range(3):
            lights[i, 4:20, 2 + 10 * k : 10 + 10 * k, k] = 255 - 40 * i
    colour.create_dataset("data", data=lights, chunks=(1, 24, 32, 3), compression="gzip").attrs.update(unit="n.a.")
    colour.create_dataset("starting_time", data=1.0).attrs.update(rate=10.0, unit="seconds")
    image = f.create_dataset("acquisition/pictures/flag", data=lights[0])
    image.attrs.update(neurodata_type="RGBImage", description="of colours", resolution=72.0)

    p = table(f, "intervals/epochs", "TimeIntervals", "what belongs together", ["start_time", "timeseries"])
    p.create_dataset("id", data=[0, 1])
    column(p, "start_time", "when it began", data=[0.0, 1.5])
    kind = np.dtype([("idx_start", "i4"), ("count", "i4"), ("timeseries", h5py.ref_dtype)])
    column(p, "timeseries", "what was recorded then", data=np.array([(0, 5, movie.ref), (5, 9, colour.ref), (2, 2, walk.ref)], kind))
    index(p, "timeseries", [2, 3])
with open(path, "r+b") as f:
    f.seek(harm.byte_offset + harm.size // 2)
    b = f.read(4)
    f.seek(harm.byte_offset + harm.size // 2)
    f.write(bytes(x ^ 0x5A for x in b))
with open(path, "rb") as f, open(path + ".gz", "wb") as out:
    out.write(gzip.compress(f.read(), mtime=0))
os.remove(path)
