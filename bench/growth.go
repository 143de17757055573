package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store/local"
)

// growthGoal is how many times longer an entry may take in an archive with ten times as many
// entries.
const growthGoal = 1.2

// entriesOf returns an archive of n small files in folders of a thousand, in the order of their
// names.
func (s *suite) entriesOf(f *format.Format, ext string, n int) (string, error) {
	return s.have(fmt.Sprintf("growth-%d%s", n, ext), func(path string) (err error) {
		w, err := f.Create(s.ctx, local.New(filepath.Dir(path)), filepath.Base(path), format.CreateOptions{Scratch: pack.NewScratch})
		if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, w.Abort())
			}
		}()
		content := make([]byte, 40)
		for i := range n {
			copy(content, fmt.Sprintf("%040d", i))
			e := format.Entry{Name: fmt.Sprintf("d%05d/file_%08d.txt", i/1000, i), Size: int64(len(content))}
			if f.Keeps&format.KeepsModes != 0 {
				e.HasMode, e.Mode = true, 0o644
			}
			if f.Keeps&format.KeepsTimes != 0 {
				e.ModTime = time.Unix(1_600_000_000, 0)
			}
			if err := w.Add(s.ctx, e, bytes.NewReader(content)); err != nil {
				return err
			}
		}
		_, err = w.Commit(s.ctx)
		return err
	})
}

// growth compares listing an archive of n entries with listing one of ten times as many.
func growth(name, ext string, n int) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		n := n
		if s.quick {
			n /= 200
		}
		f := format.All().ByName(name)
		few, err := s.entriesOf(f, ext, n)
		if err != nil {
			return row{}, err
		}
		many, err := s.entriesOf(f, ext, 10*n)
		if err != nil {
			return row{}, err
		}
		list := func(archive string) command { return command{{s.bin, "--max-index", "4GiB", "ls", "-R", archive}} }
		return s.hold(contest{
			peer: list(few), ours: list(many), inputs: []string{few, many},
			goals: []goal{{fmt.Sprintf("each entry ≤ %.1f ×", growthGoal), func(peer, ours *figures) (bool, bool) { return ratio(peer, ours) <= 10*growthGoal, true }}},
		})
	}
}

func init() {
	for _, one := range []struct{ name, ext string }{{"caf", ".caf"}, {"tar", ".tar"}, {"databundle", ".bundle"}, {"lindi", ".lindi.tar"}, {"oak", ".store"}} {
		for _, n := range []int{100_000, 1_000_000} {
			comparisons = append(comparisons, comparison{fmt.Sprintf("growth: list %s, %d against %d", one.name, 10*n, n), growth(one.name, one.ext, n)})
		}
	}
}
