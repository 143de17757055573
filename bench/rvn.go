package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// The tools of RVN are in no package registry: $HOLDALL_PACKRVN and $HOLDALL_XRVN name them if
// they have been built.
var (
	packrvn = os.Getenv("HOLDALL_PACKRVN")
	xrvn    = os.Getenv("HOLDALL_XRVN")
)

const rvnRSS = 150 << 20

// goTree returns the tree of the Go that runs bench: text and programs.
func (s *suite) goTree() (string, error) {
	if s.quick {
		return s.setA()
	}
	out, err := exec.CommandContext(s.ctx, "go", "env", "GOROOT").Output()
	return strings.TrimSpace(string(out)), err
}

// sizeRatio is the goal that our output is at most most times the size of the peer's.
func sizeRatio(ours, peer string, most float64) goal {
	return goal{fmt.Sprintf("size ≤ %.2f", most), func(*figures, *figures) (bool, bool) {
		have, err := sizeOf(ours)
		want, perr := sizeOf(peer)
		return err == nil && perr == nil && float64(have) <= most*float64(want), perr == nil
	}}
}

// rvnPack packs the tree. The peer is the format's own tool.
func rvnPack(wall, size float64, flags ...string) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		tree, err := s.goTree()
		if err != nil {
			return row{}, err
		}
		ours, theirs := filepath.Join(s.out, "ours.rvn"), filepath.Join(s.out, "theirs.rvn")
		c := contest{
			ours:   command{append(append([]string{s.bin, "pack", "-q", "--no-sync", "-o", ours}, flags...), tree)},
			inputs: []string{tree}, outputs: []string{ours}, // theirs is kept until the sizes are compared
			goals: []goal{wallRatio(wall), rssUnder(rvnRSS), sizeRatio(ours, theirs, size)},
		}
		c.againstRvn(packrvn, "HOLDALL_PACKRVN", "-q", "-r", tree, "-o", s.out, "theirs")
		var size string
		c.check = func(counter) error {
			size = sizesOf(ours, theirs)
			return holdsSome(ours)
		}
		r, err := s.hold(c)
		r.notes = append(r.notes, size)
		return r, errors.Join(err, os.RemoveAll(theirs))
	}
}

// againstRvn sets a tool of the format as a contest's peer, if the machine has it.
func (c *contest) againstRvn(tool, variable string, args ...string) {
	if tool == "" {
		c.skipped = "rvn: $" + variable + " does not say where the tool is"
		return
	}
	c.peer = command{append([]string{tool}, args...)}
}

func holdsSome(path string) error {
	n, err := sizeOf(path)
	if err == nil && n == 0 {
		err = errors.New(path + " is empty")
	}
	return err
}

// sizesOf describes the sizes of two files.
func sizesOf(ours, theirs string) string {
	have, _ := sizeOf(ours)
	want, err := sizeOf(theirs)
	if err != nil || want == 0 {
		return fmt.Sprintf("%d bytes", have)
	}
	return fmt.Sprintf("%d bytes, the peer's %d: %+.1f %%", have, want, 100*(float64(have)/float64(want)-1))
}

// packed returns a package of the tree, made with the given flags.
func (s *suite) packed(name string, flags ...string) (string, error) {
	tree, err := s.goTree()
	if err != nil {
		return "", err
	}
	return s.fresh(name, append(append([]string{s.bin, "pack", "-q", "--no-sync", "-o", outputHere}, flags...), tree)...)
}

// sections and solid return the tree packed our way and the way of the reference.
func (s *suite) sections() (string, error) { return s.packed("sections.rvn") }
func (s *suite) solid() (string, error)    { return s.packed("solid.rvn", "--sections", "none") }

// rvnExtract extracts everything. The format's own tool does so without comparing digests.
func rvnExtract(packed func(*suite) (string, error)) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		archive, err := packed(s)
		if err != nil {
			return row{}, err
		}
		if _, err := os.Stat(memoryDir); err != nil {
			return row{skipped: []string{memoryDir + ": not on this machine"}}, nil
		}
		ours, theirs := filepath.Join(memoryDir, "holdall-rvn-ours"), filepath.Join(memoryDir, "holdall-rvn-theirs")
		c := contest{
			ours:   command{{s.bin, "extract", "-q", "--outside-links", "-C", ours, archive}},
			inputs: []string{archive}, outputs: []string{ours, theirs},
			goals: []goal{wallRatio(0.6)},
		}
		c.againstRvn(xrvn, "HOLDALL_XRVN", "-x", "-q", "-o", theirs, archive)
		if c.peer != nil {
			c.peer = append(command{{"mkdir", "-p", theirs}}, c.peer...)
		}
		r, err := s.hold(c)
		return r, errors.Join(err, os.RemoveAll(ours), os.RemoveAll(theirs))
	}
}

// rvnVerify checks all digests. The peer only decodes.
func rvnVerify(s *suite) (row, error) {
	archive, err := s.sections()
	if err != nil {
		return row{}, err
	}
	contents := filepath.Join(s.out, "contents.zst")
	if err := s.contentsOf(archive, contents); err != nil {
		return row{}, err
	}
	c := contest{
		ours:   command{{s.bin, "verify", "-q", archive}},
		inputs: []string{archive, contents},
		goals:  []goal{wallRatio(0.9)},
	}
	c.against(command{{"zstd", "-tq", contents}})
	return s.hold(c)
}

// contentsOf copies everything after the index.
func (s *suite) contentsOf(archive, to string) error {
	a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{})
	if err != nil {
		return err
	}
	about, err := a.About(s.ctx)
	if err = errors.Join(err, a.Close()); err != nil {
		return err
	}
	b, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b[about.IndexBytes:], 0o666)
}

func rvnList(s *suite) (row, error) {
	archive, err := s.sections()
	if err != nil {
		return row{}, err
	}
	c := contest{ours: command{{s.bin, "ls", "-R", archive}}, inputs: []string{archive}, goals: []goal{wallRatio(1.5)}}
	c.againstRvn(xrvn, "HOLDALL_XRVN", "-l", archive)
	return s.hold(c)
}

// rvnOne reads a file near the end of a package, with sections and without.
func rvnOne(s *suite) (row, error) {
	fast, err := s.sections()
	if err != nil {
		return row{}, err
	}
	slow, err := s.solid()
	if err != nil {
		return row{}, err
	}
	name, err := lastFile(s, fast)
	if err != nil {
		return row{}, err
	}
	return s.hold(contest{
		ours: command{{s.bin, "cat", fast, name}}, peer: command{{s.bin, "cat", slow, name}},
		inputs: []string{fast, slow}, goals: []goal{wallRatio(0.02)},
	})
}

func lastFile(s *suite, archive string) (name string, err error) {
	a, err := holdall.Open(s.ctx, archive, holdall.OpenOptions{})
	if err != nil {
		return "", err
	}
	for e, err := range a.Entries(s.ctx) {
		if err != nil {
			return "", err
		}
		if e.Kind == format.File && e.Size > 1000 {
			name = e.Name
		}
	}
	return name, a.Close()
}
