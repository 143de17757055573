#!/usr/bin/env python3
"""NWB files: write one and a LINDI archive of it, and read that by pynwb through what is served.

  nwb.py write FOLDER     writes x.nwb, x.lindi.tar, and what h5py reads as truth.json, as read.py has it
  nwb.py read FOLDER URL  compares what pynwb reads at the Zarr hierarchy URL with what it reads in x.nwb
"""
import hashlib, json, os, sys, warnings
from datetime import datetime, timezone
import h5py, lindi, numpy as np, pynwb, zarr
from hdmf.backends.hdf5 import H5DataIO
from pynwb.ecephys import ElectricalSeries

warnings.simplefilter("ignore")


def write(folder):
    rng = np.random.default_rng(24)
    f = pynwb.NWBFile(session_description="a session, naïve ☃", identifier="id-1", session_start_time=datetime(2024, 2, 29, 12, 30, tzinfo=timezone.utc))
    f.subject = pynwb.file.Subject(subject_id="mouse 1", species="Mus musculus", age="P90D", sex="F")
    device = f.create_device("probe", description="of silicon", manufacturer="nobody")
    group = f.create_electrode_group("shank 0", description="first", location="CA1", device=device)
    for i in range(8):
        f.add_electrode(location=f"CA{i % 3}", group=group)
    region = f.create_electrode_table_region(list(range(8)), "all of them")
    f.add_acquisition(ElectricalSeries("raw", H5DataIO(rng.integers(-500, 500, (3000, 8)).astype("i2"), chunks=(1000, 4), compression="gzip"), region, rate=30000.0, conversion=1e-6))
    f.add_acquisition(pynwb.TimeSeries("plain series", data=rng.random((500, 3)), unit="m", timestamps=np.sort(rng.random(500))))
    f.add_acquisition(pynwb.TimeSeries("linked", data=rng.random(500), unit="V", timestamps=f.acquisition["plain series"]))
    for i in range(5):
        f.add_unit(spike_times=np.sort(rng.random(20 + i)), electrodes=[i, i + 1])
    f.add_trial_column("stim", "what was shown")
    for i in range(4):
        f.add_trial(start_time=float(i), stop_time=i + 0.5, stim=["grating", "ünï", "", "a b"][i])
    module = f.create_processing_module("behavior", "what it did")
    with pynwb.NWBHDF5IO(os.path.join(folder, "x.nwb"), "w") as io:
        io.write(f)
    with h5py.File(os.path.join(folder, "x.nwb"), "a") as h:
        g = h.create_group("scratch_of_h5py")
        g["compound"] = np.array([(1, 2, 0.5), (3, 4, 1.5), (5, 6, float("nan"))], [("x", "<u4"), ("y", "<u4"), ("weight", "<f4")])
        g["big"] = np.arange(10, dtype=">i4")
        g["flags"] = np.array([True, False, True])
        g["fixed"] = np.array([b"ab", b"c", b""], "S3")
        g["words"] = np.array(["a", "ünï", ""], dtype=h5py.string_dtype())
        g["empty"] = np.zeros((0, 4))
        g["number"] = 2.5
        g["text"] = "one"
        g["ref"] = np.array([h["acquisition/raw"].ref, h["units"].ref], dtype=h5py.ref_dtype)
        g["soft link"] = h5py.SoftLink("/acquisition/raw/data")
    f = lindi.LindiH5pyFile.from_hdf5_file(os.path.join(folder, "x.nwb"), url=os.path.abspath(os.path.join(folder, "x.nwb")))
    f.write_lindi_file(os.path.join(folder, "x.lindi.tar"))
    with h5py.File(os.path.join(folder, "x.nwb")) as h:
        json.dump(dict(members=truth(h)), open(os.path.join(folder, "truth.json"), "w"))


def truth(group, path=""):
    """All that h5py sees; datasets of references have no values."""
    found = {}
    for name in group:
        node, at = group[name], path + name
        if isinstance(node, h5py.Group):
            found[at] = dict(kind="group")
            if not isinstance(group.get(name, getlink=True), h5py.SoftLink):
                found |= truth(node, at + "/")
            continue
        d = found[at] = dict(kind="array", shape=list(node.shape) or [1])
        if h5py.check_string_dtype(node.dtype) and h5py.check_string_dtype(node.dtype).length is None:
            d["values"] = [v.decode() for v in np.asarray(node[()]).ravel().tolist()]
        elif node.dtype.kind == "O" or node.dtype.names and any(node.dtype[n].kind == "O" for n in node.dtype.names):
            pass
        else:
            a = np.atleast_1d(node[()])
            if not a.dtype.names:
                a = a.astype(a.dtype.newbyteorder("<"))
            d["sha"] = hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()
    return found


def said(io):
    f = io.read()
    e = f.electrodes.to_dataframe()
    return dict(
        description=f.session_description, subject=f.subject.species, raw=f.acquisition["raw"].data[:].tolist(), rate=f.acquisition["raw"].rate,
        electrodes=[int(i) for i in f.acquisition["raw"].electrodes.data[:]], locations=list(e["location"]), groups=[g.name for g in e["group"]], plain=f.acquisition["plain series"].data[:].tolist(),
        linked=f.acquisition["linked"].timestamps.timestamps[:].tolist() if hasattr(f.acquisition["linked"].timestamps, "timestamps") else f.acquisition["linked"].timestamps[:].tolist(),
        spikes=[list(map(float, f.units["spike_times"][i])) for i in range(5)], trials=f.trials.to_dataframe()[["start_time", "stop_time", "stim"]].values.tolist(),
        device=f.devices["probe"].manufacturer, modules=list(f.processing),
    )


def read(folder, url):
    with pynwb.NWBHDF5IO(os.path.join(folder, "x.nwb"), "r") as io:
        want = said(io)
    client = lindi.LindiH5pyFile.from_zarr_store(zarr.storage.FSStore(url, mode="r"))
    with pynwb.NWBHDF5IO(file=client, mode="r") as io:
        got = said(io)
    for k in want:
        assert got[k] == want[k], f"{k}: expected {want[k]}, found {got[k]}"[:1000]
    print("OK")


def main(verb, *args):
    dict(write=write, read=read)[verb](*args)


if __name__ == "__main__":
    main(*sys.argv[1:])
