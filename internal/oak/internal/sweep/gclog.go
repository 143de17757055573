package sweep

import (
	"bytes"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/repo"
)

// Log makes of a gc.log the one that suits the store once the plan is carried out,
// and returns how many lines had to go: those whose root is garbage or in no tar, and
// those that cannot be read. By such a line Oak would take all that was compacted for
// garbage, or fail.
//
// A line for the newest revision is added, which head describes, where Oak would add
// one: if its generation is not that of the last line. Oak itself adds none in a
// cleanup by hand, after which the next collection removes what was compacted since
// the last line. A compacted revision that is the last line's root needs no other.
func (p *Plan) Log(old []byte, head repo.GC) (log []byte, gone int) {
	head.Generation.Gen, head.Generation.Full = p.Head.Gen, p.Head.Full
	var last repo.GC // as Oak has it: without one it is generation 0, which is not compacted
	for line := range bytes.Lines(old) {
		text := strings.TrimRight(string(line), "\r\n")
		l, err := repo.ParseGC(text)
		if err != nil || l.HasRoot && !p.Keeps(l.Root.Segment) {
			gone++
			continue
		}
		last = l
		log = append(append(log, text...), '\n')
	}
	same := last.Generation == head.Generation && (!p.Head.Compacted || last.Root == head.Root)
	if !same {
		log = append(append(log, head.String()...), '\n')
	}
	return log, gone
}
