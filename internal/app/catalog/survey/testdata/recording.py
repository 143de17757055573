"""Makes recording.nwb.gz by pynwb: 20 series, 150 units, 300 trials.

    "$(interop/install hdf5)" internal/app/catalog/survey/testdata/recording.py internal/app/catalog/survey/testdata
"""
import gzip
import os
import sys
from datetime import datetime, timezone

import numpy as np
from pynwb import H5DataIO, NWBHDF5IO, NWBFile, TimeSeries
from pynwb.ecephys import ElectricalSeries
from pynwb.file import Subject

path = os.path.join(sys.argv[1], "recording.nwb")
nwb = NWBFile(
    session_description="a session made up",
    identifier="holdall-facts",
    session_start_time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    experimenter=["Doe, Jane"],
    institution="nowhere",
    lab="none",
    session_id="ses-1",
    keywords=["made", "up"],
    subject=Subject(subject_id="m1", species="Mus musculus", sex="F", age="P90D", description="a mouse"),
)
device = nwb.create_device("Neuropixels", description="of silicon", manufacturer="none")
group = nwb.create_electrode_group("shank", description="a shank", location="CA1", device=device)
for i in range(32):
    nwb.add_electrode(x=0.0, y=20.0 * i, z=0.0, location="CA1", group=group)
region = nwb.create_electrode_table_region(list(range(32)), "all of them")
grown = H5DataIO(np.zeros((4000, 32), "i2"), compression="gzip", chunks=(500, 32), maxshape=(None, 32))
nwb.add_acquisition(ElectricalSeries("raw", grown, region, rate=30_000.0, conversion=1e-6))
for i in range(19):
    if i % 2:
        nwb.add_acquisition(TimeSeries(name=f"series{i:02}", data=np.zeros(1000), unit="m/s", rate=50.0))
    else:
        times = H5DataIO(np.arange(1000) / 50, compression="gzip")
        nwb.add_acquisition(TimeSeries(name=f"series{i:02}", data=np.zeros(1000), unit="mm", timestamps=times))
for i in range(150):
    nwb.add_unit(spike_times=np.arange(20) / 10.0 + i)
nwb.add_trial_column("choice", "left or right")
for i in range(300):
    nwb.add_trial(start_time=float(i), stop_time=i + 0.5, choice=["left", "right"][i % 2])
with NWBHDF5IO(path, "w") as io:
    io.write(nwb)
with open(path, "rb") as f, open(path + ".gz", "wb") as out:
    out.write(gzip.compress(f.read(), mtime=0))
os.remove(path)
