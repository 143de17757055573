package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const hdf5CPU = 20 // times less CPU than lindi

// Fixtures of package hdf5: a file of 10,000 chunks whose places are in a tree of small nodes, and
// a recording.
const (
	hdf5Chunks    = "far_earliest.h5"
	hdf5Recording = "recordings/earliest.h5"
)

func (s *suite) hdf5File(fixture string) (string, error) {
	return s.have(strings.ReplaceAll(fixture, "/", "-"), func(path string) (err error) {
		in, err := os.Open(filepath.Join(s.top, "hdf5", "testdata", filepath.FromSlash(fixture)+".gz"))
		if err != nil {
			return err
		}
		defer in.Close()
		z, err := gzip.NewReader(in)
		if err != nil {
			return err
		}
		out, err := os.Create(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, z)
		return errors.Join(err, out.Close())
	})
}

func referLocalHDF5(s *suite) (row, error) {
	file, err := s.hdf5File(hdf5Chunks)
	if err != nil {
		return row{}, err
	}
	r, _, _, err := s.refer(file, file, nil)
	if err != nil {
		return r, err
	}
	r.judge([]goal{cpuTimes(hdf5CPU)}, s.quick)
	return r, nil
}

func referHDF5(s *suite) (row, error) { return s.referRemotely(hdf5Chunks, 5) }

func referRecording(s *suite) (row, error) { return s.referRemotely(hdf5Recording, 3) }

func (s *suite) referRemotely(fixture string, fewerBytes int64) (r row, err error) {
	file, err := s.hdf5File(fixture)
	if err != nil {
		return r, err
	}
	v, err := serveSlowly(filepath.Dir(file))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	r, ours, theirs, err := s.refer(file, v.url+filepath.Base(file), v)
	if err != nil {
		return r, err
	}
	fewer := goal{fmt.Sprintf("%d × fewer bytes", fewerBytes), func(peer, _ *figures) (bool, bool) {
		return ours*fewerBytes <= theirs, peer != nil
	}}
	r.judge([]goal{cpuTimes(hdf5CPU), fewer}, s.quick)
	return r, nil
}

// refer has both make references to a file, each with a complete command. v, if it is not nil,
// counts the requests.
func (s *suite) refer(file, address string, v *slowServer) (r row, ours, theirs int64, err error) {
	out := filepath.Join(s.out, "refs.lindi.json")
	count := func() (rounds, requests, bytes int64) {
		if v == nil {
			return 0, 0, 0
		}
		return v.rounds.Swap(0), v.requests.Swap(0), v.bytes.Swap(0)
	}
	python := os.Getenv("HOLDALL_LINDI_PYTHON")
	script := filepath.Join(s.out, "lindi_reference.py")
	if err := os.WriteFile(script, lindiReference, 0o666); err != nil {
		return r, 0, 0, err
	}
	for _, side := range []struct {
		who   string
		args  []string
		took  **figures
		bytes *int64
		shown *string
	}{
		{"lindi", []string{python, script, "refer", address, out}, &r.peerTook, &theirs, &r.peer},
		{"ours", []string{s.bin, "convert", "-q", "--link-arrays", "0", address, out}, &r.oursTook, &ours, &r.ours},
	} {
		*side.shown = s.show(command{side.args})
		if side.args[0] == "" {
			r.skipped = append(r.skipped, "lindi: $HOLDALL_LINDI_PYTHON does not say where it is")
			continue
		}
		for range s.n {
			if err := os.RemoveAll(out); err != nil {
				return r, 0, 0, err
			}
			count()
			f, err := s.measure(side.args, nil)
			if err != nil {
				return r, 0, 0, err
			}
			*side.took = (*side.took).best(f)
		}
		if v != nil {
			var rounds, requests int64
			rounds, requests, *side.bytes = count()
			r.notes = append(r.notes, fmt.Sprintf("%s: %d rounds, %d requests, %d bytes", side.who, rounds, requests, *side.bytes))
		}
	}
	return r, ours, theirs, nil
}
