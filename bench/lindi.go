package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// The reference implementation of LINDI is a Python package. $HOLDALL_LINDI_PYTHON names a Python
// with it, which interop/install makes. It is timed within its own process, so that the start of
// Python does not count.
//
//go:embed lindi_reference.py
var lindiReference []byte

const (
	blobs    = 10_000
	blobSize = 10_000
	lindiRSS = 32 << 20
)

// reference has the Python package do a step.
func (s *suite) reference(r *row, step string, args ...string) error {
	python := os.Getenv("HOLDALL_LINDI_PYTHON")
	if python == "" {
		r.skipped = append(r.skipped, "lindi: $HOLDALL_LINDI_PYTHON does not say where it is")
		return nil
	}
	var err error
	r.peer = "lindi, " + step
	r.peerTook, err = s.pythonStep(python, "lindi_reference.py", lindiReference, step, args...)
	return err
}

// times is the goal of being n times faster than the peer.
func times(n float64) goal {
	return goal{fmt.Sprintf("%.0f × faster", n), func(peer, ours *figures) (bool, bool) {
		return peer != nil && ratio(peer, ours) <= 1/n, peer != nil
	}}
}

// cpuTimes is the goal of needing n times less CPU than the peer.
func cpuTimes(n float64) goal {
	return goal{fmt.Sprintf("%.0f × less CPU", n), func(peer, ours *figures) (bool, bool) {
		return peer != nil && ours.cpu.Seconds()*n <= peer.cpu.Seconds(), peer != nil
	}}
}

// zarrTree returns a Zarr folder with one array of uncompressed chunks.
func (s *suite) zarrTree() (string, error) {
	n := s.count(blobs)
	return s.have(fmt.Sprintf("zarr-%d", n), func(path string) error {
		dir := filepath.Join(path, "x")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		meta := fmt.Sprintf(`{"chunks":[1,%d],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[%d,%d],"zarr_format":2}`, blobSize, n, blobSize)
		err := errors.Join(os.WriteFile(filepath.Join(path, ".zgroup"), []byte(`{"zarr_format":2}`), 0o666),
			os.WriteFile(filepath.Join(dir, ".zarray"), []byte(meta), 0o666))
		rnd := rand.NewChaCha8([32]byte{seed % 256})
		b := make([]byte, blobSize)
		for i := 0; i < n && err == nil; i++ {
			rnd.Read(b)
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.0", i)), b, 0o666)
		}
		return err
	})
}

// lindiTar returns the packed zarrTree.
func (s *suite) lindiTar() (string, error) {
	tree, err := s.zarrTree()
	if err != nil {
		return "", err
	}
	dir, err := s.have("lindi-"+filepath.Base(tree), func(path string) error {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return err
		}
		_, err := holdall.Pack(s.ctx, filepath.Join(path, "x.lindi.tar"), []string{tree}, holdall.PackOptions{})
		return err
	})
	return filepath.Join(dir, "x.lindi.tar"), err
}

// writeBlobs packs a folder of chunks. The reference has the chunks in memory.
func writeBlobs(s *suite) (row, error) {
	tree, err := s.zarrTree()
	if err != nil {
		return row{}, err
	}
	out := filepath.Join(s.out, "ours.lindi.tar")
	r, err := s.hold(contest{
		ours:   command{{s.bin, "pack", "-q", "--no-sync", "-o", out, tree}},
		inputs: []string{tree}, outputs: []string{out},
		check: func(counter) error { return holdsAll(out, tree) },
	})
	if err == nil {
		err = s.reference(&r, "write", filepath.Join(s.out, "theirs.lindi.tar"), strconv.Itoa(s.count(blobs)), strconv.Itoa(blobSize))
	}
	r.goals = nil
	if err == nil {
		r.judge([]goal{times(6), rssUnder(lindiRSS)}, s.quick)
	}
	return r, err
}

// bestOf measures several runs of do in this process, and keeps the best.
func (s *suite) bestOf(r *row, do func() error) error {
	for range s.n {
		before, start := cpuTime(), time.Now()
		if err := do(); err != nil {
			return err
		}
		r.oursTook = r.oursTook.best(figures{wall: time.Since(start), cpu: cpuTime() - before})
	}
	return nil
}

var zarrView = holdall.OpenOptions{View: "zarr"}

func openLindi(s *suite) (r row, err error) {
	file, err := s.lindiTar()
	if err != nil {
		return r, err
	}
	r.ours = "holdall.Open, and a key found"
	err = s.bestOf(&r, func() error {
		a, err := holdall.Open(s.ctx, file, zarrView)
		if err != nil {
			return err
		}
		_, err = a.Lookup(s.ctx, "x/7.0")
		return errors.Join(err, a.Close())
	})
	if err == nil {
		err = s.reference(&r, "open", file)
	}
	r.judge([]goal{times(10)}, s.quick)
	return r, err
}

// chunkKeys returns names of chunks at random.
func (s *suite) chunkKeys(k int) []string {
	rnd := random('k', 0)
	names := make([]string, k)
	for i := range names {
		names[i] = fmt.Sprintf("x/%d.0", rnd.IntN(s.count(blobs)))
	}
	return names
}

func readChunk(ctx context.Context, a *holdall.Archive, name string, buf []byte) error {
	e, err := a.Lookup(ctx, name)
	if err != nil {
		return err
	}
	n, err := a.ReadAt(ctx, e, buf, 0)
	if err == nil && n != blobSize {
		err = fmt.Errorf("%s: %d bytes", name, n)
	}
	return err
}

func readLindi(s *suite) (r row, err error) {
	file, err := s.lindiTar()
	if err != nil {
		return r, err
	}
	a, err := holdall.Open(s.ctx, file, zarrView)
	if err != nil {
		return r, err
	}
	defer a.Close()
	k := s.count(1000)
	names := s.chunkKeys(k)
	buf := make([]byte, blobSize)
	r.ours = fmt.Sprintf("holdall.Archive.Lookup and ReadAt of %d chunks", k)
	err = s.bestOf(&r, func() error {
		for _, name := range names {
			if err := readChunk(s.ctx, a, name, buf); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.reference(&r, "read", file, strconv.Itoa(s.count(blobs)), strconv.Itoa(k))
	}
	r.judge([]goal{times(10)}, s.quick)
	return r, err
}

// commitLindi repeatedly adds an array of one chunk and commits it.
func commitLindi(s *suite) (r row, err error) {
	n := s.count(3000)
	group := filepath.Join(s.out, "group")
	if err := errors.Join(os.MkdirAll(group, 0o777), os.WriteFile(filepath.Join(group, ".zgroup"), []byte(`{"zarr_format":2}`), 0o666)); err != nil {
		return r, err
	}
	file := filepath.Join(s.out, "commits.lindi.tar")
	if _, err := holdall.Pack(s.ctx, file, []string{group}, holdall.PackOptions{}); err != nil {
		return r, err
	}
	st, name, err := store.OpenAddress(s.ctx, file)
	if err != nil {
		return r, err
	}
	content := make([]byte, blobSize)
	rand.NewChaCha8([32]byte{1}).Read(content)
	meta := fmt.Appendf(nil, `{"chunks":[%d],"compressor":null,"dtype":"|u1","fill_value":0,"filters":null,"order":"C","shape":[%d],"zarr_format":2}`, blobSize, blobSize)
	before, start := cpuTime(), time.Now()
	m, err := holdall.Amend(s.ctx, name, zarrView.In(st))
	if err != nil {
		return r, err
	}
	put := func(name string, b []byte) error {
		return m.Put(s.ctx, format.Entry{Name: name, Size: int64(len(b))}, bytes.NewReader(b))
	}
	for i := 0; i < n && err == nil; i++ {
		err = errors.Join(put(fmt.Sprintf("d%d/.zarray", i), meta), put(fmt.Sprintf("d%d/0", i), content))
		if err == nil {
			_, err = m.Commit(s.ctx)
		}
	}
	if err = errors.Join(err, m.Close()); err != nil {
		return r, err
	}
	r.ours = fmt.Sprintf("holdall.Amendment: %d times Put and Commit, each synced", n)
	r.oursTook = &figures{wall: time.Since(start), cpu: cpuTime() - before}
	if info, err := os.Stat(file); err == nil {
		r.notes = []string{fmt.Sprintf("%s in the end", mib(info.Size()))}
	}
	err = s.reference(&r, "commit", filepath.Join(s.out, "theirs.lindi.tar"), strconv.Itoa(n), strconv.Itoa(blobSize))
	r.judge([]goal{cpuTimes(20)}, s.quick)
	return r, err
}

// webLindi reads chunks from a slow server, ours several at once.
func webLindi(s *suite) (r row, err error) {
	file, err := s.lindiTar()
	if err != nil {
		return r, err
	}
	v, err := serveSlowly(filepath.Dir(file))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	k := s.count(1000)
	names := s.chunkKeys(k)
	a, err := holdall.Open(s.ctx, v.url+filepath.Base(file), zarrView)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	opened := v.requests.Load()
	start, before := time.Now(), cpuTime()
	var next atomic.Int64
	errs := make([]error, webReaders)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			buf := make([]byte, blobSize)
			for {
				n := int(next.Add(1) - 1)
				if n >= len(names) || errs[i] != nil {
					return
				}
				errs[i] = readChunk(s.ctx, a, names[n], buf)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return r, err
	}
	r.oursTook = &figures{wall: time.Since(start), cpu: cpuTime() - before}
	r.ours = fmt.Sprintf("%d chunks by %d readers", k, webReaders)
	r.notes = []string{fmt.Sprintf("%d requests, %d more to open", v.requests.Load()-opened, opened)}
	err = s.reference(&r, "http", v.url+filepath.Base(file), strconv.Itoa(s.count(blobs)), strconv.Itoa(k))
	r.judge([]goal{times(10)}, s.quick)
	return r, err
}
