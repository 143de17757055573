package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdall/holdall/internal/read/kept"
)

// editions returns two versions of 10,000 files of 100 kB. In the second, each hundredth is another, of another size.
func (s *suite) editions() (was, is string, err error) {
	n := s.count(10_000)
	size := func(i int, changed bool) (string, int) {
		more := random('e', i).IntN(50_000)
		if changed {
			more += 1000
		}
		return fmt.Sprintf("dir_%03d/file_%05d.dat", i/100, i), 75_000 + more
	}
	if was, err = s.have(fmt.Sprintf("edition-1-%d", n), func(path string) error {
		return s.files(path, 'E', n, func(i int) (string, int) { return size(i, false) })
	}); err != nil {
		return "", "", err
	}
	is, err = s.have(fmt.Sprintf("edition-2-%d", n), func(path string) error {
		if err := os.CopyFS(path, os.DirFS(was)); err != nil {
			return err
		}
		r, words := random('e', n), newWords()
		for k := range n / 100 {
			i := r.IntN(n/2)*2 + k%2 // as many of each kind as there are
			name, size := size(i, true)
			b := appendNoise(nil, r, size)
			if i%2 == 1 {
				b = words.appendText(nil, r, size)
			}
			if err := os.WriteFile(filepath.Join(path, name), b, 0o666); err != nil {
				return err
			}
		}
		// Files that are the same have the same times, as in what is built again.
		return filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rest, _ := filepath.Rel(path, p)
			info, err := os.Stat(filepath.Join(was, rest))
			if err != nil {
				return err
			}
			return os.Chtimes(p, info.ModTime(), info.ModTime())
		})
	})
	return was, is, err
}

// syncOf copies the second version of an archive from a server that is far away, with the first one on the disk. The
// index with digests is beside it.
func syncOf(ext string, most float64) func(*suite) (row, error) {
	return func(s *suite) (r row, err error) {
		was, is, err := s.editions()
		if err != nil {
			return r, err
		}
		packed := func(name, from string) (string, error) {
			return s.have(name, func(path string) error {
				// The name decides the format.
				made := filepath.Join(s.out, name)
				for _, args := range [][]string{{"pack", "-q", "-o", made, from}, {"index", "-q", "--chunk-digests", made, "-o", made + kept.Suffix}} {
					if _, err := s.measure(append([]string{s.bin}, args...), nil); err != nil {
						return err
					}
				}
				if err := os.Mkdir(path, 0o777); err != nil {
					return err
				}
				return errors.Join(os.Rename(made, filepath.Join(path, "x."+ext)), os.Rename(made+kept.Suffix, filepath.Join(path, "x."+ext+kept.Suffix)))
			})
		}
		old, err := packed("edition-1."+ext, was)
		if err != nil {
			return r, err
		}
		fresh, err := packed("edition-2."+ext, is)
		if err != nil {
			return r, err
		}
		v, err := serveSlowly(fresh)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, v.stop()) }()
		archive, out := filepath.Join(fresh, "x."+ext), filepath.Join(s.out, "y."+ext)
		info, err := os.Stat(archive)
		if err != nil {
			return r, err
		}
		var runs, bytes, rounds, requests int64
		r, err = s.hold(contest{
			peer:    command{{s.bin, "verify", "-q", archive}},
			ours:    command{{s.bin, "sync", "-q", v.url + "x." + ext, filepath.Join(old, "x."+ext), "-o", out}},
			inputs:  []string{archive, filepath.Join(old, "x."+ext)},
			outputs: []string{out, out + kept.Suffix},
			check: func(counter) error {
				runs, bytes, rounds, requests = 1, v.bytes.Load(), v.rounds.Load(), v.requests.Load()
				_, err := s.measure([]string{"cmp", archive, out}, nil)
				return err
			},
		})
		if err != nil {
			return r, err
		}
		percent := 100 * float64(bytes) / float64(info.Size())
		r.notes = []string{fmt.Sprintf("%.2f %% of %s, %d requests in %d rounds", percent, mib(info.Size()), requests, rounds)}
		r.judge([]goal{
			{fmt.Sprintf("≤ %.1f %% of bytes", most), func(_, _ *figures) (bool, bool) { return percent <= most, runs > 0 }},
			{"rounds ≤ 6", func(_, _ *figures) (bool, bool) { return rounds <= 6, runs > 0 }},
			{"CPU ≤ 1.10 of verify", func(peer, ours *figures) (bool, bool) { return float64(ours.cpu) <= 1.1*float64(peer.cpu), true }},
		}, s.quick)
		return r, err
	}
}
