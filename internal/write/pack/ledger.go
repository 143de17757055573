package pack

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/write/tree"
)

// A ledger records what an archive does not have of its source.
type ledger struct {
	had     format.Keeps // the attributes that entries have
	headers bool         // some entries have headers of objects

	stored  func(time.Time) time.Time // the time that the format keeps; nil is any
	rounded atomic.Bool               // it keeps another time of some entry

	mu    sync.Mutex
	seen  map[tree.Same]bool // files with several names
	links bool               // such a file was read several times
	files format.Keeps       // the attributes of files that were read
}

// mostLeft is how many entries that are left out are listed. All are counted.
const mostLeft = 10_000

// leave records an entry that is not in the archive.
func (s *Summary) leave(name, class, why string) {
	if len(s.LeftOut) < mostLeft {
		s.LeftOut = append(s.LeftOut, format.Problem{Severity: format.Error, Code: format.Unsupported, Class: class, Off: -1, Entry: name, HasEntry: true, Message: why})
	}
}

// drop records an entry of a kind that the format cannot store.
func (p *packer) drop(name, kind string) {
	if p.sum.Dropped == nil {
		p.sum.Dropped = map[string]int64{}
	}
	p.sum.Dropped[kind]++
	p.sum.leave(name, kind, p.f.Name+" cannot store an entry of kind "+kind)
}

// note records the attributes that an entry has in the source. A format that keeps the headers of
// objects keeps their times, too.
func (p *packer) note(e *format.Entry) {
	has := attributes(e)
	if kit.HasObjectAttr(*e) {
		if p.ledger.headers = true; p.keepsHeaders() {
			has &^= format.KeepsTimes
		}
	}
	p.ledger.had |= has
	p.ledger.time(e.ModTime)
}

// time records the time of an entry.
func (l *ledger) time(t time.Time) {
	if l.stored != nil && !t.IsZero() && !l.rounded.Load() && !l.stored(t).Equal(t) {
		l.rounded.Store(true)
	}
}

// attributes returns which attributes an entry has.
func attributes(e *format.Entry) (k format.Keeps) {
	if e.HasMode {
		k |= format.KeepsModes
	}
	if !e.ModTime.IsZero() {
		k |= format.KeepsTimes
	}
	if e.Owner != "" || e.Group != "" {
		k |= format.KeepsOwners
	}
	if e.Kind == format.Property {
		k |= format.KeepsProperties
	}
	return k
}

// AttributesOf returns the attributes of a file on a disk.
func AttributesOf(m tree.Meta) format.Keeps {
	k := format.KeepsModes | format.KeepsTimes
	if m.UID >= 0 {
		k |= format.KeepsOwners
	}
	return k
}

// read records a file that was opened. It may have been packed under another name before. Several
// goroutines may call it.
func (l *ledger) read(m tree.Meta) {
	l.time(m.ModTime)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files |= AttributesOf(m); !m.Several {
		return
	}
	if l.seen == nil {
		l.seen = map[tree.Same]bool{}
	}
	l.links = l.links || l.seen[m.Same]
	l.seen[m.Same] = true
}

// lost returns what the archive does not keep of its entries.
func (p *packer) lost() []string {
	words := Lost((p.ledger.had | p.ledger.files) &^ p.f.Keeps)
	if p.ledger.rounded.Load() {
		words = append(words, "exact times")
	}
	if p.ledger.links && p.f.Keeps&format.KeepsHardLinks == 0 {
		words = append(words, "hard links (stored as copies)")
	}
	if p.ledger.headers && !p.keepsHeaders() {
		words = append(words, "headers of objects")
	}
	return words
}

// Lost returns words for attributes.
func Lost(k format.Keeps) (words []string) {
	for _, w := range []struct {
		k    format.Keeps
		name string
	}{
		{format.KeepsModes, "modes"}, {format.KeepsTimes, "times"}, {format.KeepsOwners, "owners"}, {format.KeepsProperties, "types of properties"},
	} {
		if k&w.k != 0 {
			words = append(words, w.name)
		}
	}
	return words
}
