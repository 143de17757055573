package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store/local"
)

const (
	catalogVerb = "fill-a-catalogue"

	inArchive     = 1000 // files of each archive in a catalogue
	archivesAtOne = 64   // that 'holdall catalog add' adds in one commit
)

func cataloguedName(i int) string {
	return fmt.Sprintf("2026/%05d/photo-%09d.jpg", i/inArchive, i)
}

// catalogued returns archives with n files. They do not exist, and are not needed.
func catalogued(n int) (all []catalog.Addition) {
	for a := range n / inArchive {
		a := a
		all = append(all, catalog.Addition{
			Archive: catalog.Archive{Address: fmt.Sprintf("s3://packed/photos-%06d.caf", a), Format: "caf", Size: 1 << 40, Version: fmt.Sprintf(`"%032x"`, a)},
			Rows: func(yield func(catalog.Location, error) bool) {
				r, off := rand.New(rand.NewPCG(seed, uint64(a))), int64(0)
				var sum [48]byte
				for i := range inArchive {
					for k := 0; k < len(sum); k += 8 {
						binary.LittleEndian.PutUint64(sum[k:], r.Uint64())
					}
					l := catalog.Location{Path: cataloguedName(a*inArchive + i), Raw: true, Off: off, Size: r.Int64N(200_000), Modified: time.Unix(1_790_000_000+r.Int64N(1e7), 0),
						Digest: format.Digest{Algo: "blake3", Sum: string(sum[:32])}, ETag: `"` + hex.EncodeToString(sum[32:]) + `"`, HeaderText: `{"content-type":"image/jpeg"}`}
					if off += l.Size; !yield(l, nil) {
						return
					}
				}
			}})
	}
	return all
}

// fillCatalog makes a catalogue in a folder: its path, how many files, and how many archives are added at once.
func fillCatalog(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	atOnce, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(args[0]), 0o777); err != nil {
		return err
	}
	ctx := context.Background()
	b, err := book.Create(ctx, local.New(filepath.Dir(args[0])), filepath.Base(args[0]))
	if err != nil {
		return err
	}
	for some := range slices.Chunk(catalogued(n), atOnce) {
		if _, err := b.Add(ctx, some...); err != nil {
			return err
		}
	}
	return b.Close()
}

func init() {
	verbs[catalogVerb] = fillCatalog
	for _, n := range []int{100_000, 1_000_000} {
		against := fmt.Sprintf(", %d against %d", 10*n, n)
		comparisons = append(comparisons,
			comparison{"growth: add to a catalogue" + against, func(s *suite) (row, error) { return growthOfAdding(s, s.atLeast(n)) }},
			comparison{"growth: look up in a catalogue" + against, func(s *suite) (row, error) { return growthOfLookups(s, s.atLeast(n)) }},
			comparison{"growth: first read in a catalogue" + against, func(s *suite) (row, error) { return growthOfFirstReads(s, s.atLeast(n)) }})
	}
}

// atLeast is fewer with -quick, but some archives.
func (s *suite) atLeast(n int) int {
	if s.quick {
		return n / 50
	}
	return n
}

// growthOfAdding adds archives, as many at once as the command does. Ours has ten times as many.
func growthOfAdding(s *suite, n int) (row, error) {
	add := func(n int) command {
		return command{{s.self, catalogVerb, filepath.Join(s.out, "added", strconv.Itoa(n)+book.Suffix), strconv.Itoa(n), strconv.Itoa(archivesAtOne)}}
	}
	r, err := s.hold(contest{
		peer: add(n), ours: add(10 * n), outputs: []string{filepath.Join(s.out, "added")},
		goals: []goal{{"CPU of each ≤ 3 ×", func(peer, ours *figures) (bool, bool) { return ours.cpu <= 30*peer.cpu, peer.cpu > 0 }}},
	})
	if err == nil {
		r.notes = append(r.notes, fmt.Sprintf("%.2f and %.2f µs of CPU a file", perFile(r.peerTook.cpu, n), perFile(r.oursTook.cpu, 10*n)))
	}
	return r, err
}

func perFile(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) / 1000 }

// oneRun returns a catalogue whose files were added in one commit, so that they are in one run.
func (s *suite) oneRun(n int) (string, error) {
	dir, err := s.have(fmt.Sprintf("growth-%d-run", n), func(path string) error {
		return fillCatalog([]string{filepath.Join(path, "x"+book.Suffix), strconv.Itoa(n), strconv.Itoa(n)})
	})
	return filepath.Join(dir, "x"+book.Suffix), err
}

// growthOfLookups looks names up in a catalogue on the disk.
func growthOfLookups(s *suite, n int) (r row, err error) {
	const lookups = 50_000
	for k, took := range []**figures{&r.peerTook, &r.oursTook} {
		files := n
		if k == 1 {
			files *= 10
		}
		path, err := s.oneRun(files)
		if err == nil {
			err = warm(path)
		}
		if err != nil {
			return r, err
		}
		for range s.n {
			b, err := book.Open(s.ctx, local.New(filepath.Dir(path)), filepath.Base(path), book.Options{Fresh: time.Hour})
			if err != nil {
				return r, err
			}
			rnd := random('l', k)
			each := make([]time.Duration, lookups)
			start := time.Now()
			for i := range each {
				name := cataloguedName(rnd.IntN(files))
				before := time.Now()
				if _, err := b.Newest(s.ctx, name); err != nil {
					return r, err
				}
				each[i] = time.Since(before)
			}
			*took = (*took).best(figures{wall: time.Since(start)})
			if err := b.Close(); err != nil {
				return r, err
			}
			if slices.Sort(each); len(r.notes) == k {
				r.notes = append(r.notes, fmt.Sprintf("half within %v of %d files", each[lookups/2], files))
			}
		}
	}
	r.peer, r.ours = fmt.Sprintf("%d lookups of random names, in one process", lookups), "the same among ten times as many"
	r.judge([]goal{wallRatio(4)}, s.quick) // pages that memory does not hold are read from the disk
	return r, nil
}

// growthOfFirstReads finds a file in a catalogue that is far away, each time with nothing in memory.
func growthOfFirstReads(s *suite, n int) (r row, err error) {
	var requests, bytes [2]int64
	for k, took := range []**figures{&r.peerTook, &r.oursTook} {
		files := n
		if k == 1 {
			files *= 10
		}
		path, err := s.oneRun(files)
		if err != nil {
			return r, err
		}
		v, err := serveSlowly(filepath.Dir(path))
		if err != nil {
			return r, err
		}
		for i := range s.n {
			before, had := v.requests.Load(), v.bytes.Load()
			var f figures
			if f, err = s.measure([]string{s.bin, "catalog", "find", "--catalog", v.url + filepath.Base(path), cataloguedName(files / 7 * (i%7 + 1) / 2)}, nil); err != nil {
				break
			}
			*took = (*took).best(f)
			requests[k], bytes[k] = max(requests[k], v.requests.Load()-before), max(bytes[k], v.bytes.Load()-had)
		}
		if err := errors.Join(err, v.stop()); err != nil {
			return r, err
		}
	}
	r.peer, r.ours = "holdall catalog find --catalog http://…/x.catalog NAME", "the same among ten times as many"
	for k := range requests {
		r.notes = append(r.notes, fmt.Sprintf("%d requests, %.0f kB", requests[k], float64(bytes[k])/1000))
	}
	r.judge([]goal{
		{"one request more", func(_, _ *figures) (bool, bool) { return requests[1] <= requests[0]+1, true }}, // a run of millions has nodes
		{"bytes ≤ 3 ×", func(_, _ *figures) (bool, bool) { return bytes[1] <= 3*bytes[0], true }},
	}, s.quick)
	return r, nil
}
