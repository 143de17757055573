package sweep

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format/oak/internal/segment"
	"github.com/holdall/holdall/format/oak/internal/tarfile"
)

// A LogLine is a line of gc.log: what a collection of garbage came to. Oak goes by
// the last one: by its root it tells compacted segments that are whole from those
// that are left of a compaction that was broken off.
type LogLine struct {
	RepoSize, ReclaimedSize int64 // bytes
	Millis                  int64 // since 1970
	Generation, Full        int32
	Nodes                   int64 // that were compacted; Oak does not need it
	Root                    segment.RecordID
}

func (l LogLine) String() string {
	return fmt.Sprintf("%d,%d,%d,%d,%d,%d,%s", l.RepoSize, l.ReclaimedSize, l.Millis, l.Generation, l.Full, l.Nodes, l.Root)
}

// ParseLogLine reads a line as Oak writes it, or as Oak 1.6 did: that had no full
// generation, and at first no root, which is then none.
func ParseLogLine(s string) (l LogLine, err error) {
	fields := strings.Split(s, ",")
	if len(fields) < 5 || len(fields) > 7 {
		return l, fmt.Errorf("gc.log: %.100q: expected 5 to 7 fields, found %d", s, len(fields))
	}
	i := 0
	number := func(bits int, v *int64) {
		if err == nil {
			if *v, err = strconv.ParseInt(fields[i], 10, bits); err != nil {
				err = fmt.Errorf("gc.log: %.100q: field %d: expected a number of %d bits", s, i+1, bits)
			}
		}
		i++
	}
	var gen, full int64
	number(64, &l.RepoSize)
	number(64, &l.ReclaimedSize)
	number(64, &l.Millis)
	number(32, &gen)
	full = gen
	if len(fields) == 7 {
		number(32, &full)
	}
	number(64, &l.Nodes)
	if err != nil {
		return LogLine{}, err
	}
	l.Generation, l.Full = int32(gen), int32(full)
	if i < len(fields) {
		if l.Root, err = segment.ParseRecordID(fields[i]); err != nil {
			return LogLine{}, fmt.Errorf("gc.log: %.100q: %w", s, err)
		}
	}
	return l, nil
}

// HasRoot reports whether the line has a root.
func (l LogLine) HasRoot() bool { return l.Root.Segment != segment.ID{} }

// Log makes of a gc.log the one that suits the store once the plan is carried out,
// and returns how many lines had to go: those whose root is garbage or in no tar, and
// those that cannot be read. By such a line Oak would take all that was compacted for
// garbage, or fail.
//
// A line for the newest revision is added, which head describes, where Oak would add
// one: if its generation is not that of the last line. Oak itself adds none in a
// cleanup by hand, after which the next collection removes what was compacted since
// the last line. A compacted revision that is the last line's root needs no other.
func (p *Plan) Log(old []byte, head LogLine) (log []byte, gone int) {
	head.Generation, head.Full = p.Head.Gen, p.Head.Full
	var last LogLine // as Oak has it: without one it is generation 0, which is not compacted
	for line := range bytes.Lines(old) {
		text := strings.TrimRight(string(line), "\r\n")
		l, err := ParseLogLine(text)
		if err != nil || l.HasRoot() && !p.Keeps(tarfile.ID(l.Root.Segment)) {
			gone++
			continue
		}
		last = l
		log = append(append(log, text...), '\n')
	}
	same := last.Generation == head.Generation && last.Full == head.Full && (!p.Head.Compacted || last.Root == head.Root)
	if !same {
		log = append(append(log, head.String()...), '\n')
	}
	return log, gone
}
