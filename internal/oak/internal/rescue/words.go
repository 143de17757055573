package rescue

import (
	"fmt"
	"strings"
)

// Words says in a few lines what the plan comes to.
func (p *Plan) Words() []string {
	c := p.Counts
	first := count(int64(len(p.Segments)), "segment") + " saved"
	if len(p.Segments) > 0 {
		first += ", " + count(c.Bytes, "byte")
	}
	lines := []string{first + ": " + p.does()}
	if from := p.from(); len(from) > 1 {
		lines = append(lines, strings.Join(from, ", "))
	}
	say := func(n int64, thing, what string) {
		if n > 0 {
			lines = append(lines, count(n, thing)+" "+what)
		}
	}
	say(int64(c.Replaced), "segment", "damaged in one file and taken from another")
	say(int64(c.Proof[Mended]), "segment", "put right by turning one bit")
	say(int64(c.Proof[Doubtful]), "segment", "taken that nothing proves")
	say(int64(c.Proof[Stray]), "segment", "found behind lost headers, each as it was written")
	say(int64(c.Proof[Foreign]), "segment", "left out that nobody can read")
	say(int64(c.Proof[Lost]), "segment", "lost")
	say(c.LostBytes, "byte", "of segments lost or left out")
	say(c.UnknownBytes, "byte", "that belong to nothing that is known")
	say(c.BlankBytes, "byte", "of zeros, or of no part of a store, where segments may have been")
	return lines
}

func (p *Plan) does() string {
	switch p.Action {
	case Nothing:
		return p.Sources[p.Base].Name + " is sound as it is"
	case Tail:
		return fmt.Sprintf("%s is sound up to %d, and needs only another tail", p.Sources[p.KeepOf].Name, p.Keep)
	case Leave:
		return "there is nothing in the tar"
	}
	if !p.Gain {
		return "the tar can only be written anew without what is damaged"
	}
	return "the tar has to be written anew"
}

func (p *Plan) from() (words []string) {
	n := make([]int, len(p.Sources))
	for _, c := range p.Segments {
		n[c.From]++
	}
	for i, from := range p.Sources {
		if n[i] > 0 {
			words = append(words, fmt.Sprintf("%d from %s", n[i], from.Name))
		}
	}
	return words
}

// count is a number of things, with its thousands apart.
func count(n int64, thing string) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n != 1 {
		thing += "s"
	}
	return digits + " " + thing
}
