#!/usr/bin/env python3
"""Make five NWB files by pynwb: nwb.py OUT

  ephys.nwb       raw voltages of 32 channels, compressed; a table of electrodes; LFP
  ophys.nwb       images of two photons, planes, masks, fluorescence
  icephys.nwb     clamps, with the tables that say which recordings belong together
  behaviour.nwb   positions, an eye, events, epochs and trials
  units.nwb       spike times and waveforms of sorted units

Ids of objects and the time of their making are others each time.
"""

import sys
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from pynwb import NWBHDF5IO, H5DataIO, NWBFile, TimeSeries
from pynwb.base import Images
from pynwb.behavior import BehavioralEvents, BehavioralTimeSeries, Position, PupilTracking, SpatialSeries
from pynwb.ecephys import LFP, ElectricalSeries
from pynwb.file import Subject
from pynwb.icephys import CurrentClampSeries, CurrentClampStimulusSeries, VoltageClampSeries, VoltageClampStimulusSeries
from pynwb.image import GrayscaleImage
from pynwb.ophys import DfOverF, Fluorescence, ImageSegmentation, OpticalChannel, RoiResponseSeries, TwoPhotonSeries

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
rng = np.random.default_rng(20260102)


def session(name):
    return NWBFile(
        session_description=f"a session made up: {name}",
        identifier=f"holdall-{name}",
        session_start_time=START,
        experimenter=["Doe, Jane", "Émile, Zoë"],
        institution="nowhere",
        lab="none",
        keywords=["made", "up"],
        subject=Subject(subject_id="m1", species="Mus musculus", sex="F", age="P90D", description="a mouse"),
    )


def electrodes(nwb, count):
    device = nwb.create_device("probe", description="of silicon", manufacturer="none")
    for shank in range(2):
        group = nwb.create_electrode_group(f"shank{shank}", description="a shank", location="CA1", device=device)
        for i in range(count // 2):
            nwb.add_electrode(x=float(shank), y=20.0 * i, z=float("nan"), imp=1e6, location="CA1", filtering="none", group=group)
    return nwb.create_electrode_table_region(list(range(count)), "all of them")


def ephys(nwb):
    region = electrodes(nwb, 32)
    data = rng.integers(-2000, 2000, (30_000, 32), dtype=np.int16)
    raw = H5DataIO(data, compression="gzip", compression_opts=4, shuffle=True, chunks=(5000, 16), maxshape=(None, 32))
    nwb.add_acquisition(ElectricalSeries("raw", raw, region, rate=30_000.0, conversion=1e-6, description="voltages"))
    lfp = ElectricalSeries("lfp", rng.normal(size=(1000, 32)).astype("f4"), region, starting_time=0.5, rate=1000.0)
    nwb.create_processing_module("ecephys", "of voltages").add(LFP(lfp))


def ophys(nwb):
    device = nwb.create_device("microscope")
    channel = OpticalChannel("green", "the only one", 510.0)
    plane = nwb.create_imaging_plane(
        name="plane", optical_channel=channel, description="V1", device=device, excitation_lambda=920.0, indicator="GCaMP6f", location="V1", imaging_rate=30.0
    )
    frames = H5DataIO(rng.integers(0, 4000, (60, 64, 64), dtype=np.uint16), compression="gzip", chunks=(10, 64, 64))
    nwb.add_acquisition(TwoPhotonSeries(name="frames", data=frames, imaging_plane=plane, rate=30.0, unit="n.a."))
    module = nwb.create_processing_module("ophys", "of images")
    segmentation = ImageSegmentation()
    module.add(segmentation)
    masks = segmentation.create_plane_segmentation("cells", plane, "PlaneSegmentation")
    for i in range(12):
        masks.add_roi(pixel_mask=[(i, j, float(j) / 7) for j in range(1, 4 + i)])
    rois = masks.create_roi_table_region("all cells", region=list(range(12)))
    traces = RoiResponseSeries("traces", rng.normal(size=(60, 12)), "a.u.", rois, rate=30.0)
    module.add(Fluorescence(roi_response_series=traces))
    module.add(DfOverF(roi_response_series=RoiResponseSeries("dff", rng.normal(size=(60, 12)), "a.u.", rois, timestamps=np.arange(60) / 30)))


def icephys(nwb):
    device = nwb.create_device("amplifier")
    electrode = nwb.create_icephys_electrode(name="pipette", description="of glass", device=device)
    voltage = {"electrode": electrode, "gain": 0.02, "rate": 20_000.0}
    rows = []
    for sweep in range(4):
        stimulus = VoltageClampStimulusSeries(name=f"step{sweep}", data=np.full(500, sweep * 10.0), sweep_number=np.uint64(sweep), **voltage)
        response = VoltageClampSeries(name=f"current{sweep}", data=rng.normal(size=500), conversion=1e-12, sweep_number=np.uint64(sweep), **voltage)
        rows.append(nwb.add_intracellular_recording(electrode=electrode, stimulus=stimulus, response=response, id=sweep))
    stimulus = CurrentClampStimulusSeries(name="ramp", data=np.linspace(0, 1, 500), sweep_number=np.uint64(9), **voltage)
    response = CurrentClampSeries(name="voltage", data=rng.normal(size=500), bias_current=0.0, sweep_number=np.uint64(9), **voltage)
    rows.append(nwb.add_intracellular_recording(electrode=electrode, stimulus=stimulus, response=response, id=9))
    together = [nwb.add_icephys_simultaneous_recording(recordings=[row]) for row in rows]
    sequence = nwb.add_icephys_sequential_recording(simultaneous_recordings=together, stimulus_type="square")
    run = nwb.add_icephys_repetition(sequential_recordings=[sequence])
    nwb.add_icephys_experimental_condition(repetitions=[run])


def behaviour(nwb):
    module = nwb.create_processing_module("behavior", "what it did")
    times = np.cumsum(rng.exponential(0.02, 500))
    path = SpatialSeries(name="path", data=np.cumsum(rng.normal(size=(500, 2)), axis=0), timestamps=times, reference_frame="corner")
    module.add(Position(spatial_series=path))
    pupil = TimeSeries(name="pupil", data=rng.normal(size=500), unit="mm", timestamps=path)  # a link to the times
    module.add(PupilTracking(time_series=pupil))
    events = TimeSeries(name="licks", data=np.ones(20, "i1"), unit="n.a.", timestamps=np.sort(rng.uniform(0, 10, 20)))
    module.add(BehavioralEvents(time_series=events))
    module.add(BehavioralTimeSeries(time_series=TimeSeries(name="speed", data=np.full(500, np.nan), unit="m/s", rate=50.0)))
    nwb.add_trial_column("choice", "left or right")
    nwb.add_trial_column("right", "whether it was")
    for i in range(10):
        nwb.add_trial(start_time=float(i), stop_time=i + 0.9, choice=["left", "right"][i % 2], right=bool(i % 3))
    nwb.add_epoch(0.0, 5.0, ["first", "half"], [events])
    nwb.add_epoch(5.0, 10.0, ["second"], [events, pupil])
    nwb.add_acquisition(Images(name="pictures", images=[GrayscaleImage("face", rng.integers(0, 255, (20, 30), dtype=np.uint8))], description="of it"))
    nwb.add_scratch(np.arange(5), name="scratch", description="left over")


def units(nwb):
    electrodes(nwb, 8)
    nwb.add_unit_column("quality", "how good it is")
    for i in range(20):
        spikes = np.cumsum(rng.exponential(0.1, int(rng.integers(0, 400))))
        nwb.add_unit(
            spike_times=spikes,
            obs_intervals=[[0.0, 20.0], [30.0, 60.0 + i]],
            electrodes=[i % 8],
            waveform_mean=rng.normal(size=40),
            waveform_sd=np.full(40, 0.1),
            quality=["good", "noise", "mua"][i % 3],
        )


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for make in (ephys, ophys, icephys, behaviour, units):
        nwb = session(make.__name__)
        make(nwb)
        with NWBHDF5IO(out / f"{make.__name__}.nwb", "w") as io:
            io.write(nwb)


if __name__ == "__main__":
    main()
