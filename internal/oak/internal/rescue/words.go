package rescue

import (
	"fmt"
	"strings"
)

// Words says in a few lines what the plan comes to.
func (p *Plan) Words() []string {
	c := p.Counts
	first := fmt.Sprintf("%s saved", count(len(p.Segments), "segment"))
	if len(p.Segments) > 0 {
		first += fmt.Sprintf(", %s", count(c.Bytes, "byte"))
	}
	lines := []string{first + ": " + p.does()}
	say := func(n int, format string, a ...any) {
		if n > 0 {
			lines = append(lines, fmt.Sprintf(format, a...))
		}
	}
	if from := p.from(); len(from) > 1 {
		lines = append(lines, strings.Join(from, ", "))
	}
	say(c.Replaced, "%s damaged in one file and taken from another", count(c.Replaced, "segment"))
	say(c.Proof[Mended], "%s put right by turning one bit", count(c.Proof[Mended], "segment"))
	say(c.Proof[Doubtful], "%s taken that nothing proves", count(c.Proof[Doubtful], "segment"))
	say(c.Proof[Stray], "%s found behind lost headers, each as it was written", count(c.Proof[Stray], "segment"))
	say(c.Proof[Foreign], "%s left out that nobody can read", count(c.Proof[Foreign], "segment"))
	say(c.Proof[Lost], "%s lost", count(c.Proof[Lost], "segment"))
	if c.LostBytes > 0 {
		lines = append(lines, fmt.Sprintf("%s of segments lost or left out", count(c.LostBytes, "byte")))
	}
	if c.UnknownBytes > 0 {
		lines = append(lines, fmt.Sprintf("%s that belong to nothing that is known", count(c.UnknownBytes, "byte")))
	}
	if c.BlankBytes > 0 {
		lines = append(lines, fmt.Sprintf("%s of zeros, or of no part of a store, where segments may have been", count(c.BlankBytes, "byte")))
	}
	return lines
}

// does says what has to be done.
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

// from says how many segments come from which file.
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
func count[T int | int64](n T, thing string) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n != 1 {
		thing += "s"
	}
	return digits + " " + thing
}
