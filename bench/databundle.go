package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdall/holdall"
)

// A dataset is documents of words, which compress like text, in folders of 250.
const (
	documents    = 50_000
	meanDocument = 8192
	maxDocument  = 2 << 20
	bundleRSS    = 60 << 20
)

func (s *suite) setD() (string, error) {
	n := s.count(documents)
	return s.have(fmt.Sprintf("D-%d", n), func(path string) error {
		words := newWords()
		sizes := random('d', 0)
		mu := math.Log(meanDocument) - 0.5
		var buf []byte
		for i := range n {
			if s.ctx.Err() != nil {
				return s.ctx.Err()
			}
			dir := filepath.Join(path, fmt.Sprintf("part-%03d", i/250))
			if i%250 == 0 {
				if err := os.MkdirAll(dir, 0o777); err != nil {
					return err
				}
			}
			size := max(16, min(maxDocument, int(math.Exp(mu+sizes.NormFloat64()))))
			r := random('d', i+1)
			buf = buf[:0]
			for len(buf) < size { // some words are frequent, as in text
				buf = append(append(buf, words[int(r.ExpFloat64()*200)%len(words)]...), ' ')
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("doc-%05d.txt", i)), buf[:size], 0o666); err != nil {
				return err
			}
		}
		return nil
	})
}

// cpuRatio is the goal that our CPU time is at most most times the peer's.
func cpuRatio(most float64) goal {
	return goal{fmt.Sprintf("CPU ≤ %.2f", most), func(peer, ours *figures) (bool, bool) {
		return peer != nil && ours.cpu.Seconds() <= most*peer.cpu.Seconds(), peer != nil
	}}
}

// bundlePack packs the dataset. The peer is mksquashfs with the same method and block size.
func bundlePack(method, level string, cpu, size float64) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		in, err := s.setD()
		if err != nil {
			return row{}, err
		}
		ours, theirs := filepath.Join(s.out, "ours.bundle"), filepath.Join(s.out, "theirs.squashfs")
		squash := map[string]string{"zlib": "gzip", "zstd": "zstd"}[method]
		c := contest{
			ours:   command{{s.bin, "pack", "-q", "--no-sync", "--compression", method, "-o", ours, in}},
			inputs: []string{in}, outputs: []string{ours},
			goals: []goal{cpuRatio(cpu), rssUnder(bundleRSS), sizeRatio(ours, theirs, size)},
		}
		if _, err := exec.LookPath("mksquashfs"); err != nil {
			c.skipped = "mksquashfs is not installed"
		} else {
			c.peer = command{{"mksquashfs", in, theirs, "-comp", squash, "-Xcompression-level", level, "-b", "256K", "-noappend", "-no-progress", "-quiet"}}
		}
		var note string
		c.check = func(counter) error {
			note = sizesOf(ours, theirs)
			return holdsSome(ours)
		}
		r, err := s.hold(c)
		r.notes = append(r.notes, note)
		return r, errors.Join(err, os.RemoveAll(theirs))
	}
}

// bundleStore packs the dataset without compression. The peer is tar.
func bundleStore(s *suite) (row, error) {
	in, err := s.setD()
	if err != nil {
		return row{}, err
	}
	ours, theirs := filepath.Join(s.out, "ours.bundle"), filepath.Join(s.out, "theirs.tar")
	return s.hold(contest{
		ours:   command{{s.bin, "pack", "-q", "--no-sync", "--compression", "none", "-o", ours, in}},
		peer:   command{{"tar", "cf", theirs, in}},
		inputs: []string{in}, outputs: []string{ours, theirs},
		goals: []goal{wallRatio(1.15), rssUnder(bundleRSS)},
		check: func(counter) error { return holdsSome(ours) },
	})
}

// squashed mounts the dataset as a squashfs of the same method, for reads. It returns "" if the
// machine lacks a tool.
func (s *suite) squashed(in, method, level string) (dir string, unmount func() error, err error) {
	for _, tool := range []string{"mksquashfs", "squashfuse", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", nil, nil
		}
	}
	image, dir := filepath.Join(s.out, "reads.squashfs"), filepath.Join(s.out, "reads")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", nil, err
	}
	for _, c := range [][]string{
		{"mksquashfs", in, image, "-comp", method, "-Xcompression-level", level, "-b", "256K", "-noappend", "-no-progress", "-quiet"},
		{"squashfuse", image, dir},
	} {
		if out, err := exec.CommandContext(s.ctx, c[0], c[1:]...).CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("%s: %w: %s", c[0], err, out)
		}
	}
	return dir, func() error {
		return errors.Join(exec.Command("umount", dir).Run(), os.Remove(dir), os.Remove(image))
	}, nil
}

// bundleReads reads 2,000 documents at random, and measures how long one takes. The peer opens,
// reads and closes the same files, in their folders or mounted with squashfuse.
func bundleReads(method, squash, level string, goals ...goal) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, err := s.setD()
		if err != nil {
			return r, err
		}
		archive, err := s.fresh("reads-"+method+".bundle", s.bin, "pack", "-q", "--no-sync", "--compression", method, "-o", outputHere, in)
		if err != nil {
			return r, err
		}
		r.peer = "os.ReadFile, one of 2,000"
		files := in
		if squash != "" {
			dir, unmount, merr := s.squashed(in, squash, level)
			switch {
			case merr != nil:
				return r, merr
			case dir == "":
				r.skipped, goals = append(r.skipped, "mksquashfs or squashfuse is not installed: compared with plain files"), nil
			default:
				defer func() { err = errors.Join(err, unmount()) }()
				r.peer, files = "squashfuse "+squash+", one of 2,000", dir
			}
		}
		a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{})
		if err != nil {
			return r, err
		}
		defer a.Close()
		n := s.count(documents)
		rnd := random('q', 0)
		var ours, theirs []time.Duration
		buf := make([]byte, maxDocument)
		for range s.count(2000) {
			i := rnd.IntN(n)
			name := fmt.Sprintf("part-%03d/doc-%05d.txt", i/250, i)
			start := time.Now()
			want, err := os.ReadFile(filepath.Join(files, filepath.FromSlash(name)))
			if err != nil {
				return r, err
			}
			theirs = append(theirs, time.Since(start))
			start = time.Now()
			e, err := a.Lookup(s.ctx, name)
			if err != nil {
				return r, err
			}
			if _, err := a.ReadAt(s.ctx, e, buf[:e.Size], 0); err != nil {
				return r, err
			}
			ours = append(ours, time.Since(start))
			if !bytes.Equal(buf[:e.Size], want) {
				return r, fmt.Errorf("%s differs", name)
			}
		}
		slices.Sort(ours)
		slices.Sort(theirs)
		middle := func(d []time.Duration) *figures { return &figures{wall: d[len(d)/2]} }
		r.ours = "holdall.Archive: Lookup and ReadAt, one of 2,000"
		r.peerTook, r.oursTook = middle(theirs), middle(ours)
		r.notes = append(r.notes, fmt.Sprintf("99 of 100 take less than %v", ours[len(ours)*99/100]))
		r.judge(goals, s.quick)
		return r, nil
	}
}

// bundleEpoch compares reading all files in a shuffled order with reading them in stored order.
func bundleEpoch(method string) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		in, err := s.setD()
		if err != nil {
			return r, err
		}
		archive, err := s.fresh("epoch-"+method+".bundle", s.bin, "pack", "-q", "--no-sync", "--compression", method, "-o", outputHere, in)
		if err != nil {
			return r, err
		}
		a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{})
		if err != nil {
			return r, err
		}
		defer a.Close()
		epoch := func(order iter.Seq2[holdall.Entry, error]) (*figures, error) {
			start, used, files := time.Now(), cpuTime(), 0
			err := a.ContentsOf(s.ctx, order, func(e holdall.Entry, content io.Reader, err error) error {
				if err == nil && e.Kind.HasContent() {
					files++
					_, err = io.Copy(io.Discard, content)
				}
				return err
			})
			if err == nil && files != s.count(documents) {
				err = fmt.Errorf("%d files of %d", files, s.count(documents))
			}
			return &figures{wall: time.Since(start), cpu: cpuTime() - used}, err
		}
		r.peer, r.ours = "holdall.Archive: Entries and ContentsOf", "holdall.Archive: Shuffled and ContentsOf"
		if r.peerTook, err = epoch(a.Entries(s.ctx)); err != nil {
			return r, err
		}
		if r.oursTook, err = epoch(a.Shuffled(s.ctx, holdall.ShuffleOptions{Seed: 1})); err != nil {
			return r, err
		}
		r.judge([]goal{cpuRatio(1 / 0.7)}, s.quick)
		return r, nil
	}
}
