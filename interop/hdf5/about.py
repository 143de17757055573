#!/usr/bin/env python3
"""Say what pynwb makes of NWB files: about.py FILE...

One line of JSON for each: session, subject, devices, and by their paths the series and tables.
"""

import json
import sys
import warnings

import h5py
import numpy as np
from hdmf.common import DynamicTable
from pynwb import NWBHDF5IO, TimeSeries
from pynwb.device import Device

warnings.simplefilter("ignore")


def present(**fields):
    return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items() if v is not None and len(v)}


def series(ts):
    data = ts.data
    d = dict(type=ts.neurodata_type, shape=list(data.shape), unit=ts.unit, conversion=float(ts.conversion), dtype=np.dtype(data.dtype).str)
    if ts.rate is not None:
        return d | dict(rate=float(ts.rate), start=float(ts.starting_time), duration=data.shape[0] / ts.rate)
    times = np.asarray(ts.timestamps)
    return d | dict(timestamps=len(times), start=float(times[0]), duration=float(times[-1] - times[0]))


def table(t):
    return dict(type=t.neurodata_type, rows=len(t), columns=list(t.colnames))


for name in sys.argv[1:]:
    with NWBHDF5IO(name, "r") as io:
        nwb = io.read()

        def path(container):
            return io.manager.get_builder(container).path.removeprefix("root/")

        all = list(nwb.objects.values())
        who = nwb.subject
        with h5py.File(name) as f:
            version, started = f.attrs["nwb_version"], f["session_start_time"][()].decode()
        about = dict(
            version=version,
            session=present(
                identifier=nwb.identifier, description=nwb.session_description, start_time=started, session_id=nwb.session_id,
                experiment_description=nwb.experiment_description, experimenter=nwb.experimenter, institution=nwb.institution, lab=nwb.lab, keywords=nwb.keywords[:].tolist(),
            ),
            subject=present(subject_id=who.subject_id, species=who.species, sex=who.sex, age=who.age, description=who.description),
            devices={d.name: present(type=d.neurodata_type, description=d.description, manufacturer=d.manufacturer) for d in all if isinstance(d, Device)},
            series={path(s): series(s) for s in all if isinstance(s, TimeSeries)},
            tables={path(t): table(t) for t in all if isinstance(t, DynamicTable)},
        )
        print(json.dumps(about))
