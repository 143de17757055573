package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zeebo/blake3"
)

func init() {
	comparisons = append(comparisons,
		comparison{"parity: protect 5 %, against par2", protectAgainst(par2, cpuRatio(1.0/50), rssUnder(128<<20))},
		comparison{"parity: protect 5 %, against BLAKE3 of it", protectAgainst(sumOfAll, cpuRatio(1.5))},
		comparison{"parity: pack --protect 5 %, against pack", packProtected},
		comparison{"parity: cat one large file, against without", catProtected},
	)
	verbs[sumVerb] = func(args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		h := blake3.New()
		_, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, make([]byte, 1<<20))
		fmt.Printf("%x\n", h.Sum(nil))
		return err
	}
}

// sumVerb makes this program print the BLAKE3 of a file.
const sumVerb = "blake3"

// toProtect returns a file with the first 400 MB of the large file.
func (s *suite) toProtect() (string, error) {
	in, err := s.bigFile()
	if err != nil {
		return "", err
	}
	n := s.sizes.big * 3 / 8
	return s.have(fmt.Sprintf("protected-%d.bin", n), func(path string) error {
		return writeFile(path, func(w io.Writer) error {
			f, err := os.Open(in)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.CopyN(w, f, n)
			return err
		})
	})
}

func par2(_ *suite, in, out string) command {
	return command{{"mkdir", out}, {"par2", "create", "-q", "-q", "-r5", "-n1", "-B", filepath.Dir(in), filepath.Join(out, "x.par2"), in}}
}

func sumOfAll(s *suite, in, _ string) command { return command{{s.self, sumVerb, in}} }

func protectAgainst(peer func(s *suite, in, out string) command, goals ...goal) func(*suite) (row, error) {
	return func(s *suite) (row, error) {
		in, err := s.toProtect()
		if err != nil {
			return row{}, err
		}
		out, theirs := filepath.Join(s.out, "x.parity"), filepath.Join(s.out, "theirs")
		c := contest{ours: command{{s.bin, "protect", "-q", "--no-sync", in, "-o", out}}, inputs: []string{in}, outputs: []string{out, theirs}, goals: goals}
		c.against(peer(s, in, theirs))
		return s.hold(c)
	}
}

// packProtected packs one large file, and writes parity at the same time.
func packProtected(s *suite) (row, error) {
	in, err := s.bigFile()
	if err != nil {
		return row{}, err
	}
	out, theirs := filepath.Join(s.out, "p.caf"), filepath.Join(s.out, "q.caf")
	c := contest{
		ours:   command{{s.bin, "pack", "-q", "--no-sync", "--protect", "5%", "-o", out, in}},
		inputs: []string{in}, outputs: []string{out, out + ".parity", theirs}, goals: []goal{cpuRatio(1.4), wallRatio(1.6)},
	}
	c.against(command{{s.bin, "pack", "-q", "--no-sync", "-o", theirs, in}})
	return s.hold(c)
}

// catProtected reads one large file that has parity beside it.
func catProtected(s *suite) (row, error) {
	in, err := s.bigFile()
	if err != nil {
		return row{}, err
	}
	archive, err := s.fresh("protected.caf", s.bin, "pack", "-q", "--no-sync", "-o", outputHere, in)
	if err != nil {
		return row{}, err
	}
	parity, err := s.fresh("protected.caf.parity", s.bin, "protect", "-q", archive, "-o", outputHere)
	if err != nil {
		return row{}, err
	}
	name := filepath.Base(in)
	c := contest{
		ours:   command{{s.bin, "cat", archive, name}},
		inputs: []string{archive, parity},
		goals:  []goal{wallRatio(1.02)},
		check:  prints(func(p counter) int64 { return p.bytes }, s.sizes.big, "bytes"),
	}
	c.against(command{{s.bin, "--parity", "none", "cat", archive, name}})
	return s.hold(c)
}
