package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// How much memory the jobs on trees may take.
const (
	oakTreeRSS    = 150 << 20
	oakCompactRSS = 300 << 20
)

// oakJob compares a command with a job of the reference implementation on the same store.
func oakJob(s *suite, c contest, job []string, goals ...goal) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	c.inputs = []string{dir}
	if r, err = s.hold(c); err != nil {
		return r, err
	}
	if err := s.oakMeasured(&r, job[0], func() (string, error) { return dir, nil }, job[1:]...); err != nil {
		return r, err
	}
	r.judge(goals, s.quick)
	return r, nil
}

// pathsOak reads 1,000 nodes by path, with all properties.
func pathsOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	sections := oakSections
	if s.quick {
		sections = 1
	}
	rnd := random('p', 0)
	var paths []string
	for range 1000 {
		paths = append(paths, fmt.Sprintf("content/s%d/p%d/n%d", rnd.IntN(sections), rnd.IntN(100), rnd.IntN(100)))
	}
	list := filepath.Join(s.out, "paths")
	if err := os.WriteFile(list, []byte("/"+strings.Join(paths, "\n/")+"\n"), 0o666); err != nil {
		return r, err
	}
	c := contest{ours: command{append([]string{s.bin, "cat", "--json", dir}, paths...)}, check: func(printed counter) error {
		if printed.lines != int64(len(paths)) {
			return fmt.Errorf("%d nodes are printed", printed.lines)
		}
		return nil
	}}
	if r, err = oakJob(s, c, []string{"read", list}, times(10)); err == nil {
		r.ours = "holdall cat --json " + filepath.Base(dir) + ", and 1,000 paths"
		r.notes = append(r.notes, "the start of Java is left out, ours counts")
	}
	return r, err
}

// exportOak reads the whole tree, with all values.
func exportOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	// The reference writes nothing either.
	c := contest{ours: command{{s.bin, "oak", "export", dir, "-o", os.DevNull}}}
	return oakJob(s, c, []string{"nodes"}, times(4), rssUnder(oakTreeRSS))
}

// checkOak checks whether the newest revision is intact.
func checkOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	return oakJob(s, contest{ours: command{{s.bin, "oak", "check", "--head", "--bin", dir}}}, []string{"check-head"}, times(5), rssUnder(oakTreeRSS))
}

// journalOak rebuilds the journal.
func journalOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	work, theirs := filepath.Join(s.out, "journal"), filepath.Join(s.out, "their-journal")
	defer os.RemoveAll(theirs)
	if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
		return r, err
	}
	defer os.RemoveAll(work)
	c := contest{ours: command{{s.bin, "oak", "recover-journal", work}}, inputs: []string{work}}
	if r, err = s.hold(c); err != nil {
		return r, err
	}
	if err := s.oakMeasured(&r, "recover-journal", s.oakCopy(dir, theirs)); err != nil {
		return r, err
	}
	r.judge([]goal{times(10), rssUnder(oakTreeRSS)}, s.quick)
	return r, nil
}

// oakCopy copies a store before each job that changes it.
func (s *suite) oakCopy(dir, to string) func() (string, error) {
	return func() (string, error) {
		if err := os.RemoveAll(to); err != nil {
			return "", err
		}
		return to, os.CopyFS(to, os.DirFS(dir))
	}
}

// compactOak writes the newest revision as a new store; the reference does so in place.
func compactOak(s *suite) (r row, err error) {
	dir, err := s.oakStore()
	if err != nil {
		return r, err
	}
	out, theirs := filepath.Join(s.out, "compacted"), filepath.Join(s.out, "their-compacted")
	defer os.RemoveAll(theirs)
	c := contest{ours: command{{s.bin, "oak", "compact", "-q", "--no-sync", dir, "-o", out}}, inputs: []string{dir}, outputs: []string{out}, check: func(counter) error {
		_, err := os.Stat(filepath.Join(out, "journal.log"))
		return err
	}}
	if r, err = s.hold(c); err != nil {
		return r, err
	}
	if err := s.oakMeasured(&r, "compact", s.oakCopy(dir, theirs)); err != nil {
		return r, err
	}
	r.judge([]goal{times(4), rssUnder(oakCompactRSS)}, s.quick)
	return r, nil
}
