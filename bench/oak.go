package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store"
)

// The reference implementation of Oak is a Java program, which interop/install makes and
// $HOLDALL_OAK_CHECK names. It is timed within its own process, so that the start of Java does not
// count. It also makes the store, of 436 MB.
const (
	oakSections  = 20
	oakOpenRSS   = 30 << 20
	oakRepairRSS = 64 << 20
)

// oakReference runs the program, and decodes its output into a value.
func (s *suite) oakReference(into any, args ...string) error {
	program := os.Getenv("HOLDALL_OAK_CHECK")
	if program == "" {
		return fmt.Errorf("%w: oak: $HOLDALL_OAK_CHECK does not say where the reference is", errSkipped)
	}
	cmd := exec.CommandContext(s.ctx, program, args...)
	cmd.Env = append(os.Environ(), "HOLDALL_OAK_JAVA= ") // with Java's own defaults
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return failed(cmd.Args, err, append(said.Bytes(), out...))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(out, into)
}

// oakMeasured measures a job of the reference: the best of as many runs as ours has.
func (s *suite) oakMeasured(r *row, job string, before func() (dir string, err error), more ...string) error {
	runs := s.n
	if s.quick {
		runs = 1
	}
	for range runs {
		dir, err := before()
		if err != nil {
			return err
		}
		var t struct {
			Wall, CPU float64
			RSS       int64
		}
		if err := s.oakReference(&t, append([]string{"measure", job, dir}, more...)...); err != nil {
			return err
		}
		second := float64(time.Second)
		r.peerTook = r.peerTook.best(figures{time.Duration(t.Wall * second), time.Duration(t.CPU * second), t.RSS})
	}
	r.peer = "oak-segment-tar, " + job
	return nil
}

// oakStore returns a store that the reference made.
func (s *suite) oakStore() (string, error) {
	sections := oakSections
	if s.quick {
		sections = 1
	}
	dir, err := s.have(fmt.Sprintf("oak-%d", sections), func(path string) error {
		return s.oakReference(nil, "big", path, fmt.Sprint(sections))
	})
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "segmentstore")); err == nil {
		dir = filepath.Join(dir, "segmentstore")
	}
	return dir, nil
}

// listOak lists all segments. The reference opens the store: it has no job that only lists, and
// opening would be most of it.
func listOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	c := contest{ours: command{{s.bin, "ls", "-R", "--view", "segments", dir}}, inputs: []string{dir}, check: func(printed counter) error {
		if printed.lines < 10 {
			return fmt.Errorf("%d segments are listed", printed.lines)
		}
		return nil
	}}
	if r, err = s.hold(c); err != nil {
		return r, err
	}
	if err := s.oakMeasured(&r, "open", func() (string, error) { return dir, nil }); err != nil {
		return r, err
	}
	r.judge([]goal{times(25), rssUnder(oakOpenRSS)}, s.quick)
	return r, nil
}

// sumOak compares a complete check with only computing the checksums of the same bytes, both in
// this process.
func sumOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	tars, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		return r, err
	}
	st, name, err := store.OpenAddress(s.ctx, dir)
	if err != nil {
		return r, err
	}
	buf := make([]byte, 1<<20)
	for range max(s.n, 1) {
		start := time.Now()
		for _, tar := range tars {
			if err := sumFile(tar, buf); err != nil {
				return r, err
			}
		}
		r.peerTook = r.peerTook.best(figures{wall: time.Since(start)})
		start = time.Now()
		v, err := holdall.Verify(s.ctx, name, holdall.VerifyOptions{OpenOptions: holdall.OpenOptions{Store: st}}, func(holdall.Problem) {})
		if err != nil || v.Errors > 0 {
			return r, fmt.Errorf("%d errors, %w", v.Errors, err)
		}
		r.oursTook = r.oursTook.best(figures{wall: time.Since(start)})
	}
	r.peer, r.ours = "CRC-32 of all tars, no more", "holdall.Verify: that, headers, records, graphs, references"
	r.judge([]goal{wallRatio(1.25)}, s.quick)
	return r, nil
}

func sumFile(name string, buf []byte) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := crc32.NewIEEE()
	for {
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		if n == 0 || err != nil {
			return nil
		}
	}
}

// repairOak recovers a tar without an index.
func repairOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	// A killed writer leaves the newest tar without an index.
	broken := filepath.Join(s.out, "unclean")
	copied := func(to string) error {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			return err
		}
		tars, err := filepath.Glob(filepath.Join(to, "*.tar"))
		if err != nil {
			return err
		}
		return s.oakReference(nil, "unindex", slices.Max(tars))
	}
	if err := copied(broken); err != nil {
		return r, err
	}
	out := filepath.Join(s.out, "repaired")
	c := contest{ours: command{{s.bin, "repair", "-q", "--no-sync", broken, "-o", out}}, inputs: []string{broken}, outputs: []string{out}, check: func(counter) error {
		_, err := os.Stat(filepath.Join(out, "journal.log"))
		return err
	}}
	if r, err = s.hold(c); err != nil {
		return r, err
	}
	work := filepath.Join(s.out, "recovered")
	defer os.RemoveAll(work)
	if err := s.oakMeasured(&r, "recover", func() (string, error) { return work, copied(work) }); err != nil {
		return r, err
	}
	r.notes = append(r.notes, "ours reads, proves and copies the other tars, too")
	r.judge([]goal{times(3), rssUnder(oakRepairRSS)}, s.quick)
	return r, os.RemoveAll(broken)
}

// readOak reads segments at random. The peer reads the same bytes from open files.
func readOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	a, err := holdall.Open(s.ctx, dir, holdall.OpenOptions{View: "segments"})
	if err != nil {
		return r, err
	}
	defer a.Close()
	var all []holdall.Entry
	for e, err := range a.Entries(s.ctx) {
		if err != nil {
			return r, err
		}
		if strings.Contains(e.Name, "/") {
			all = append(all, e)
		}
	}
	files := map[string]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	rnd := random('o', 0)
	theirs, ours := make([]byte, 256<<10), make([]byte, 256<<10)
	var theirTimes, ourTimes []time.Duration
	for range s.count(5000) {
		e := all[rnd.IntN(len(all))]
		x, err := only(s.ctx, a, e)
		if err != nil {
			return r, err
		}
		f := files[x.Object]
		if f == nil {
			if f, err = os.Open(filepath.Join(dir, filepath.Base(x.Object))); err != nil {
				return r, err
			}
			files[x.Object] = f
		}
		start := time.Now()
		// The bytes of a segment follow its header.
		if _, err := f.ReadAt(theirs[:e.Size], x.Off+x.Len-e.Size); err != nil {
			return r, err
		}
		theirTimes = append(theirTimes, time.Since(start))
		start = time.Now()
		found, err := a.Lookup(s.ctx, e.Name)
		if err != nil {
			return r, err
		}
		if _, err := a.ReadAt(s.ctx, found, ours[:e.Size], 0); err != nil {
			return r, err
		}
		ourTimes = append(ourTimes, time.Since(start))
		if !bytes.Equal(theirs[:e.Size], ours[:e.Size]) {
			return r, fmt.Errorf("%s differs", e.Name)
		}
	}
	slices.Sort(theirTimes)
	slices.Sort(ourTimes)
	r.peer, r.ours = "pread, one of 5,000", "holdall.Archive: Lookup and ReadAt, one of 5,000"
	r.peerTook, r.oursTook = &figures{wall: theirTimes[len(theirTimes)/2]}, &figures{wall: ourTimes[len(ourTimes)/2]}
	r.judge([]goal{wallRatio(1.3)}, s.quick)
	return r, nil
}

// only returns the single extent of an entry.
func only(ctx context.Context, a *holdall.Archive, e holdall.Entry) (x format.Extent, err error) {
	for x, err = range a.Extents(ctx, e) {
		break
	}
	return x, err
}
