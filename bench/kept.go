package main

import (
	"os"
	"path/filepath"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/read/kept"
)

// indexedRows returns the archive of many rows, and its index, which is not beside it.
func (s *suite) indexedRows() (archive, index string, err error) {
	if archive, err = s.manyRows(); err != nil {
		return "", "", err
	}
	index, err = s.fresh("rows.holdall", s.bin, "index", "-q", archive, "-o", outputHere)
	return archive, index, err
}

func indexMany(s *suite) (row, error) {
	archive, err := s.manyRows()
	if err != nil {
		return row{}, err
	}
	out := filepath.Join(s.out, "index.holdall")
	return s.hold(contest{
		ours:   command{{s.bin, "index", "-q", archive, "-o", out}},
		inputs: []string{archive}, outputs: []string{out},
		goals: []goal{wallUnder(1500 * time.Millisecond), rssUnder(128 << 20)},
	})
}

func oneByIndex(s *suite) (row, error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return row{}, err
	}
	return s.hold(contest{
		ours:   command{{s.bin, "--index", index, "cat", archive, rowName(s.sizes.rows / 2)}},
		inputs: []string{index},
		goals:  []goal{wallUnder(20 * time.Millisecond), rssUnder(32 << 20)},
		check:  prints(func(p counter) int64 { return p.bytes }, rowSize, "bytes"),
	})
}

func listByIndex(s *suite) (row, error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return row{}, err
	}
	return s.hold(contest{
		ours:   command{{s.bin, "--index", index, "ls", "-R", archive}},
		inputs: []string{index},
		goals:  []goal{wallUnder(150 * time.Millisecond), rssUnder(64 << 20)},
		check:  prints(lines, int64(s.sizes.rows), "lines"),
	})
}

// openByIndex opens the archive of many rows by its index, and looks up one name.
func openByIndex(s *suite) (r row, err error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return r, err
	}
	r.ours = "holdall.Open by an index, and Lookup"
	for range 10 * s.n {
		start := time.Now()
		a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{Index: holdall.UseIndex{At: index}})
		if err != nil {
			return r, err
		}
		if _, err := a.Lookup(s.ctx, rowName(s.sizes.rows/3)); err != nil {
			return r, err
		}
		took := time.Since(start)
		if err := a.Close(); err != nil {
			return r, err
		}
		if r.oursTook == nil || took < r.oursTook.wall {
			r.oursTook = &figures{wall: took}
		}
	}
	r.judge([]goal{wallUnder(5 * time.Millisecond)}, s.quick)
	return r, nil
}

// findByIndex looks up random names in an archive that was opened by its index.
func findByIndex(s *suite) (r row, err error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return r, err
	}
	a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{Index: holdall.UseIndex{At: index}})
	if err != nil {
		return r, err
	}
	defer a.Close()
	rnd := random('f', 0)
	names := make([]string, 100_000)
	for i := range names {
		names[i] = rowName(rnd.IntN(s.sizes.rows))
	}
	r.ours = "100,000 times Lookup by an index"
	for range s.n {
		start := time.Now()
		for _, name := range names {
			if _, err := a.Lookup(s.ctx, name); err != nil {
				return r, err
			}
		}
		if took := time.Since(start); r.oursTook == nil || took < r.oursTook.wall {
			r.oursTook = &figures{wall: took}
		}
	}
	r.judge([]goal{wallUnder(200 * time.Millisecond)}, s.quick)
	return r, nil
}

// webOneByIndex reads one of many files over HTTP by an index beside the archive.
func webOneByIndex(s *suite) (row, error) {
	archive, index, err := s.indexedRows()
	if err != nil {
		return row{}, err
	}
	dir, err := os.MkdirTemp(s.out, "web-")
	if err != nil {
		return row{}, err
	}
	for from, to := range map[string]string{archive: "x.caf", index: "x.caf" + kept.Suffix} {
		if err := os.Symlink(from, filepath.Join(dir, to)); err != nil {
			return row{}, err
		}
	}
	v, err := serveSlowly(dir)
	if err != nil {
		return row{}, err
	}
	r, err := s.hold(contest{
		ours:   command{{s.bin, "cat", v.url + "x.caf", rowName(s.sizes.rows / 2)}},
		inputs: []string{archive, index},
		goals:  []goal{wallUnder(100 * time.Millisecond)},
		check:  prints(func(p counter) int64 { return p.bytes }, rowSize, "bytes"),
	})
	if serr := v.stop(); err == nil {
		err = serr
	}
	return r, err
}
