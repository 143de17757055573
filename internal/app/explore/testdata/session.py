"""Makes session.nwb.gz: a small recording, of what the page shows of one.

    "$(interop/install hdf5)" internal/app/explore/testdata/session.py internal/app/explore/testdata
"""
import gzip, os, sys

import h5py
import numpy as np

path = os.path.join(sys.argv[1], "session.nwb")
text = h5py.string_dtype()
with h5py.File(path, "w", libver="latest") as f:
    f.attrs.update(neurodata_type="NWBFile", namespace="core", nwb_version="2.7.0")
    for name, value in dict(session_description="a session made up, <b>naïve ☃</b>", identifier="one", session_start_time="2026-01-02T03:04:05+00:00").items():
        f.create_dataset(name, data=value, dtype=text)
    general = f.create_group("general")
    general.create_dataset("experimenter", data=["Doe, Jane", "Émile, Zoë"], dtype=text)
    general.create_dataset("institution", data="nowhere", dtype=text)
    subject = general.create_group("subject")
    subject.attrs["neurodata_type"] = "Subject"
    for name, value in dict(subject_id="m1", species="Mus musculus", age="P90D", sex="F").items():
        subject.create_dataset(name, data=value, dtype=text)
    probe = general.create_group("devices/probe")
    probe.attrs.update(neurodata_type="Device", description="of silicon", manufacturer="nobody")

    raw = f.create_group("acquisition/raw")
    raw.attrs.update(neurodata_type="TimeSeries", description="two waves, and their sum in each channel")
    t, phase = np.arange(3000)[:, None] / 1000, np.arange(8)[None, :] / 3
    waves = 1000 * np.sin(2 * np.pi * 3 * t + phase) + 200 * np.sin(2 * np.pi * 40 * t)
    data = raw.create_dataset("data", data=waves.astype("<i2"), chunks=(1000, 8), compression="gzip", shuffle=True)
    data.attrs.update(unit="volts", conversion=1e-6)
    start = raw.create_dataset("starting_time", data=0.5)
    start.attrs.update(rate=1000.0, unit="seconds")
    raw.create_dataset("sum", data=waves.sum(axis=1).astype("<f4"), chunks=(500,), compression="gzip")

    trials = f.create_group("intervals/trials")
    trials.attrs["neurodata_type"] = "TimeIntervals"
    trials.attrs.create("colnames", ["start_time", "stop_time", "stim"], dtype=text)
    trials.create_dataset("id", data=np.arange(3))
    trials.create_dataset("start_time", data=[0.0, 1.0, 2.0])
    trials.create_dataset("stop_time", data=[0.5, 1.5, 2.5])
    trials.create_dataset("stim", data=["grating", "ünï", "a b"], dtype=text)
    # What Zarr has no place for.
    trials.create_dataset("odd", (1,), dtype=h5py.vlen_dtype(text))
with open(path, "rb") as f, open(path + ".gz", "wb") as out:
    out.write(gzip.compress(f.read(), mtime=0))
os.remove(path)
