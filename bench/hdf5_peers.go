package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Other readers of HDF5 on a server. They are timed within their own process, and ours as a command.
// $HOLDALL_VIRTUAL_PYTHON names a Python with them, which interop/install makes.
//
//go:embed hdf5_peers.py
var hdf5Peers []byte

// hdf5Nested has 2,000 datasets in nested groups, as the latest version of the library writes them.
const hdf5Nested = "recordings/nested_latest.h5"

// scalarsHDF5 checks a file of many small datasets. The peer only walks over them.
func scalarsHDF5(s *suite) (r row, err error) {
	const variable, step = "HOLDALL_VIRTUAL_PYTHON", "h5py-walk"
	python := os.Getenv(variable)
	if python == "" {
		return r, fmt.Errorf("%w: $%s does not say where h5py is", errSkipped, variable)
	}
	n := 100_000
	if s.quick {
		n /= 20
	}
	file, err := s.have(fmt.Sprintf("scalars-%d.h5", n), func(path string) error {
		_, err := s.pythonStep(python, "hdf5_peers.py", hdf5Peers, "h5py-scalars", path, strconv.Itoa(n))
		return err
	})
	if err != nil {
		return r, err
	}
	ours := []string{s.bin, "verify", "-q", file}
	r.peer, r.ours = step, s.show(command{ours})
	for range s.n {
		theirs, err := s.pythonStep(python, "hdf5_peers.py", hdf5Peers, step, file)
		if err != nil {
			return r, err
		}
		f, err := s.measure(ours, nil)
		if err != nil {
			return r, err
		}
		r.peerTook, r.oursTook = r.peerTook.best(*theirs), r.oursTook.best(f)
	}
	r.judge([]goal{cpuUnder(time.Second)}, s.quick)
	return r, nil
}

// farHDF5 compares a step of a peer with a command of ours, on a fixture 20 ms away, by requests and bytes.
// If array is not empty, both read a part of it, which must be the same.
func farHDF5(variable, fixture, step, array string, links ...string) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		file, err := s.hdf5File(fixture)
		if err != nil {
			return r, err
		}
		v, err := serveSlowly(filepath.Dir(file))
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, v.stop()) }()
		const n = 100
		address, theirs, out := v.url+filepath.Base(file), filepath.Join(s.out, "part"), filepath.Join(s.out, "far.lindi.json")
		args, ours := []string{address}, append([]string{s.bin, "convert", "-q", address, out}, links...)
		switch {
		case array != "":
			args = append(args, array, strconv.Itoa(n), theirs)
			ours = []string{s.bin, "cat", "--decode=npy", "--slice", fmt.Sprintf("%d:%d", n, 2*n), address, array}
		case step == "virtualizarr":
			args = append(args, "acquisition/raw") // it cannot read the arrays of texts in the root
		}
		count := func(who string) (bytes int64) {
			rounds, requests, bytes := v.rounds.Swap(0), v.requests.Swap(0), v.bytes.Swap(0)
			r.notes = append(r.notes, fmt.Sprintf("%s: %d rounds, %d requests, %d bytes", who, rounds, requests, bytes))
			return bytes
		}
		r.peer, r.ours = step, s.show(command{ours})
		var most, few int64
		if python := os.Getenv(variable); python == "" {
			r.skipped = append(r.skipped, step+": $"+variable+" does not say where it is")
		} else {
			for i := range s.n {
				f, err := s.pythonStep(python, "hdf5_peers.py", hdf5Peers, step, args...)
				if err != nil {
					return r, err
				}
				if r.peerTook = r.peerTook.best(*f); i == 0 {
					most = count(step)
				}
			}
			count("") // of the other runs
			r.notes = r.notes[:1]
		}
		for i := range s.n {
			if err := os.RemoveAll(out); err != nil {
				return r, err
			}
			f, err := s.measure(ours, nil)
			if err != nil {
				return r, err
			}
			if r.oursTook = r.oursTook.best(f); i == 0 {
				few = count("ours")
			}
		}
		if array != "" && r.peerTook != nil {
			want, err := os.ReadFile(theirs)
			if err != nil {
				return r, err
			}
			if got, err := exec.CommandContext(s.ctx, ours[0], ours[1:]...).Output(); err != nil || len(want) == 0 || !bytes.HasSuffix(got, want) {
				return r, fmt.Errorf("%s: another part than that of %s: %w", array, step, err)
			}
		}
		fewer := goal{"fewer bytes", func(peer, _ *figures) (bool, bool) { return few < most, peer != nil }}
		r.judge([]goal{fewer, times(1)}, s.quick)
		return r, nil
	}
}
