package audit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

const strange = "00000000-0000-4000-a000-000000000001"

var (
	quickly  = []bool{false}
	fully    = []bool{true}
	bothWays = []bool{false, true}
)

// plants are kinds of damage, each with what is reported: "class severity file".
var plants = []struct {
	name  string
	depth []bool // full
	plant func(m made)
	want  []string
}{
	{"a number of four digits", bothWays, func(m made) { m.Put("data0001a.tar", nil) }, []string{"ignored-tar warning data0001a.tar"}},
	{"a number of 40 bits", bothWays, func(m made) { m.Put("data999999999999a.tar", nil) }, []string{"number-too-large error data999999999999a.tar"}},
	{"a copy without a letter", bothWays, func(m made) { m.Put("data00000.tar", m.Get(oldest)) },
		[]string{"name-clash error data00000.tar", "no-letter warning data00000.tar"}},
	{"two sound letters", bothWays, func(m made) { m.write("data00001b.tar", m.parts(older)) }, []string{"letters warning data00001b.tar"}},
	{"a newer letter that is cut", bothWays, func(m made) { m.Put("data00001b.tar", m.Get(older)); m.cut("data00001b.tar", 9000) }, []string{"letters error data00001b.tar"}},
	{"two letters that are cut", fully, func(m made) {
		m.Put("data00003b.tar", m.Get(newest))
		m.cut("data00003b.tar", 1024)
		m.cut(newest, 1024)
	}, []string{"letters error data00003b.tar", "not-closed warning data00003b.tar", "not-closed warning " + newest}},
	{"backups", bothWays, func(m made) { m.Put(oldest+".bak", []byte("x")); m.Put(oldest+".2.ro.bak", []byte("x")) }, []string{"leftovers note data00000a.tar.2.ro.bak"}},
	{"no manifest", bothWays, func(m made) { m.remove(repo.Manifest) }, []string{"manifest error manifest"}},
	{"a manifest of the future", bothWays, func(m made) { m.Put(repo.Manifest, []byte("store.version=3")) }, []string{"manifest error manifest"}},
	{"a manifest without a version", bothWays, func(m made) { m.Put(repo.Manifest, nil) }, []string{"manifest warning manifest"}},
	{"a manifest of Oak 1.6", bothWays, func(m made) { m.Put(repo.Manifest, []byte("store.version=1")) }, []string{"manifest-old note manifest"}},
	{"a segment in two tars", bothWays, func(m made) { m.write(newest, append(m.parts(newest), m.parts(oldest)[0])) }, []string{"duplicate-segment warning " + oldest, "order error " + newest}},
	{"two segments of one id", bothWays, func(m made) {
		p := m.bulk(oldest)
		p.data = p.data[:100]
		m.write(newest, append(m.parts(newest), p))
	}, []string{"duplicate-segment error " + oldest, "order error " + newest}},

	{"no index of the newest", quickly, func(m made) { m.cut(newest, 2048) }, []string{"not-closed warning " + newest, "head-unknown warning journal.log"}},
	{"no index of the newest, scanned", fully, func(m made) { m.cut(newest, 2048) }, []string{"not-closed warning " + newest}},
	{"no index of an older one", quickly, func(m made) { m.cut(older, 2048) }, []string{"no-index error " + older, "unknown-segment warning"}},
	{"no index of an older one, scanned", fully, func(m made) { m.cut(older, 2048) }, []string{"no-index error " + older}},
	{"a flipped bit in the index", fully, func(m made) { m.flip(older, int64(len(m.Get(older)))-1100) }, []string{"no-index error " + older}},
	{"an empty tar", bothWays, func(m made) { m.Put("data00004a.tar", nil) }, []string{"empty-tar error data00004a.tar"}},
	{"a tar of zeros", fully, func(m made) { m.Put("data00004a.tar", make([]byte, 8192)) },
		[]string{"not-closed warning data00004a.tar", "unrecoverable error data00004a.tar", "empty-tar error data00004a.tar"}},
	{"an entry of the index outside of the file", quickly, func(m made) {
		m.index(older, func(b []byte) { binary.BigEndian.PutUint32(b[16:], 1<<30) })
	}, []string{"gap warning " + older, "index error " + older, "order error " + older}},
	{"an entry of the index that is too long", quickly, func(m made) {
		m.index(older, func(b []byte) { b[20+2] ^= 6 })
	}, []string{"index error " + older}},
	{"a block before the references", bothWays, func(m made) {
		at := m.layout(older).Segments.Len
		m.change(older, func(b []byte) []byte { return slices.Insert(b, int(at), bytes.Repeat([]byte("x"), 512)...) })
	}, []string{"gap warning " + older}},
	{"a flipped bit in the graph", bothWays, func(m made) { l := m.layout(older).Graph; m.flip(older, l.Off+l.Len-20) }, []string{"graph error " + older}},
	{"a flipped bit in the references", bothWays, func(m made) { l := m.layout(older).Binaries; m.flip(older, l.Off+l.Len-20) }, []string{"binaries error " + older}},
	{"a flipped bit in the graph's magic", bothWays, func(m made) { l := m.layout(older).Graph; m.flip(older, l.Off+l.Len-1) }, []string{"graph error " + older, "binaries error " + older}},
	{"a graph that is too large", bothWays, nil, []string{"too-large warning " + older}},
	{"a flipped bit in the last zeros", bothWays, func(m made) { m.flip(older, int64(len(m.Get(older)))-5) }, []string{"tail warning " + older}},
	{"a flipped bit in the index' header", bothWays, func(m made) { m.flip(older, m.layout(older).Index.Off+3) }, []string{"tail warning " + older}},
	{"a segment that refers to itself", quickly, func(m made) {
		m.rewrite(older, func(p *part) bool { p.refs = append(slices.Clone(p.refs), p.ID[:]...); return p.ID.IsData() })
	}, []string{"graph-odd warning " + older}},
	{"references of another generation", quickly, func(m made) {
		m.rewrite(older, func(p *part) bool { return p.binaries != nil })
		id := m.with(older, func(p part) bool { return p.binaries != nil }).ID
		m.index(older, func(b []byte) {
			for ; !bytes.HasPrefix(b, id[:]); b = b[33:] {
			}
			b[27]++
		})
	}, []string{"binaries-odd warning " + older}},

	{"a flipped bit in an id", fully, func(m made) { m.flip(older, m.entry(older, true).Pos-512+4) }, []string{"entry-header warning " + older}},
	{"a flipped bit in the checksum of a name", fully, func(m made) { m.flip(older, m.entry(older, true).Pos-512+40) }, []string{"entry-header warning " + older}},
	{"a flipped bit in a size", fully, func(m made) { m.flip(older, m.entry(older, false).Pos-512+130) }, []string{"entry-header warning " + older}},
	{"a flipped bit in the rest of a header", fully, func(m made) { m.flip(older, m.entry(older, false).Pos-3) }, []string{"entry-header warning " + older}},
	{"a flipped bit in a bulk segment", fully, func(m made) { m.flip(older, m.entry(older, false).Pos+7777) }, []string{"checksum error " + older}},
	{"a flipped bit in a record", fully, func(m made) { e := m.entry(older, true); m.flip(older, e.Pos+int64(e.Len)-40) }, []string{"checksum error " + older}},
	{"a flipped bit behind a segment", fully, func(m made) { e := m.entry(older, false); m.flip(older, e.Pos+int64(e.Len)) }, []string{"padding warning " + older}},
	{"a segment of version 11", fully, func(m made) {
		m.rewrite(older, func(p *part) bool { p.data[3] = 11; return p.ID.IsData() })
	}, []string{"segment error " + older}},
	{"another generation in the index", fully, func(m made) {
		m.rewrite(older, func(p *part) bool { p.Generation.Gen = 7; return p.ID.IsData() })
	}, []string{"generation warning " + older}},
	{"a record of a type that is none", fully, func(m made) {
		m.rewrite(older, func(p *part) bool {
			if p.ID.IsData() {
				refs := int(binary.BigEndian.Uint32(p.data[14:]))
				p.data[32+16*refs+4] = 77 // of the first row, which is the segment info
			}
			return p.ID.IsData()
		})
	}, []string{"records error " + older, "records note " + older}},
	{"a graph without a bulk segment", fully, func(m made) {
		m.rewrite(older, func(p *part) bool { return p.drop(false) })
	}, []string{"graph-wrong error " + older}},
	{"a graph without a data segment", fully, func(m made) {
		m.rewrite(newest, func(p *part) bool { return p.drop(true) })
	}, []string{"graph-wrong warning " + newest}},
	{"a graph with another segment", fully, func(m made) {
		id := m.entry(oldest, false).ID
		m.rewrite(older, func(p *part) bool { p.refs = append(slices.Clone(p.refs), id[:]...); return p.ID.IsData() })
	}, []string{"graph-wrong warning " + older}},
	{"references without one", fully, func(m made) {
		m.rewrite(older, func(p *part) bool { p.binaries = p.binaries[min(1, len(p.binaries)):]; return p.binaries != nil })
	}, []string{"binaries-wrong error " + older}},
	{"references with another one", fully, func(m made) {
		m.rewrite(older, func(p *part) bool { p.binaries = append(p.binaries, "other"); return p.ID.IsData() })
	}, []string{"binaries-wrong warning " + older}},
	{"damage in a tar that was not closed", fully, func(m made) {
		at := m.entry(newest, false).Pos
		m.cut(newest, 2048)
		m.flip(newest, at+100)
	}, []string{"not-closed warning " + newest, "unrecoverable error " + newest, "missing-segment error " + newest}},

	{"no journal", bothWays, func(m made) { m.remove(repo.Journal) }, []string{"no-journal error journal.log"}},
	{"an empty journal", bothWays, func(m made) { m.Put(repo.Journal, nil) }, []string{"no-journal error journal.log"}},
	{"a journal of another store", bothWays, func(m made) { m.Put(repo.Journal, []byte(strange+":1 root 1\n")) }, []string{"no-journal error journal.log"}},
	{"a line that is none", bothWays, func(m made) { m.line(repo.Journal, "hello\n") }, []string{"journal-line warning journal.log"}},
	{"a line without its end", bothWays, func(m made) { m.Put(repo.Journal, []byte(m.head.String()+" root 1700000000001")) }, []string{"journal-end warning journal.log"}},
	{"a line that is cut off", bothWays, func(m made) {
		m.Put(repo.Journal, []byte(m.head.String()+" root 1700000000001\n"+m.head.String()+" root 17000"))
	}, []string{"journal-cut error journal.log"}},
	{"a line that was cut off, and has an end", bothWays, func(m made) {
		m.Put(repo.Journal, []byte(m.head.String()+" root 1700000000001\n"+m.head.String()+" root\n"))
	}, []string{"journal-cut error journal.log"}},
	{"the only line, cut off", bothWays, func(m made) { m.Put(repo.Journal, []byte(m.head.String()+" root 170000000")) }, []string{"journal-cut error journal.log"}},
	{"a line that continues one that was cut off", bothWays, func(m made) {
		m.Put(repo.Journal, []byte(m.head.String()+" root 17"+m.head.String()+" root 1700000000001\n"))
	}, []string{"journal-cut error journal.log"}},
	{"a revision that is lost", bothWays, func(m made) { m.line(repo.Journal, strange+":1 root 1\n") }, []string{"head-rewound error journal.log"}},
	{"a head that is no record", bothWays, func(m made) { m.line(repo.Journal, m.head.Segment.String()+":99999 root 1\n") }, []string{"head-broken error " + newest}},
	{"a head that is no node", bothWays, func(m made) { m.line(repo.Journal, m.head.Segment.String()+":0 root 1\n") }, []string{"head-broken error " + newest}},
	{"many bad lines", quickly, func(m made) { m.line(repo.Journal, strings.Repeat("x\n", ofAClass+7)) }, []string{"journal-line warning journal.log", "more warning journal.log"}},
	{"a bulk segment that is gone", bothWays, func(m made) { m.without(older, false) }, []string{"missing-segment error"}},
	{"a bulk segment that comes too late", bothWays, func(m made) {
		all := m.parts(older)
		i := slices.IndexFunc(all, func(p part) bool { return !p.ID.IsData() })
		m.write(older, slices.Delete(slices.Clone(all), i, i+1))
		m.write("data00009a.tar", all[i:i+1])
	}, []string{"order error data00009a.tar"}},
	{"a data segment that is gone", bothWays, func(m made) { m.without(older, true) }, []string{"missing-segment error"}},
	{"garbage that refers to what is gone", bothWays, func(m made) { m.garbage() }, []string{"garbage-references note " + oldest}},
	{"a line of the log that is none", bothWays, func(m made) { m.Put(repo.GCLog, []byte("hello\n")) }, []string{"gc-log-line warning gc.log"}},
	{"a root of the log that is gone", bothWays, func(m made) { m.Put(repo.GCLog, []byte("1,2,3,0,0,6,"+strange+":1\n")) }, []string{"gc-log-root note gc.log"}},
}

// compacted are plants in a store that a compaction wrote.
var compacted = []struct {
	name  string
	plant func(m made)
	want  []string
}{
	{"a root of the log that is gone", func(m made) { m.Put(repo.GCLog, []byte("1,2,3,1,1,6,"+strange+":1\n")) }, []string{"gc-log-root error gc.log"}},
	{"a root of the log that is old", func(m made) {
		m.Put(repo.GCLog, []byte("1,2,3,0,0,6,"+m.entry(older, true).ID.String()+":1\n"))
	}, []string{"gc-log-stale error " + newest}},
	{"a tar that comes too late", func(m made) {
		all := m.parts(older)
		m.write("data00009a.tar", all)
		m.remove(older)
	}, []string{"order error data00009a.tar"}},
	{"a tar that comes too late, and a log that is old", func(m made) {
		m.Put(repo.GCLog, []byte("1,2,3,0,0,6,"+m.entry(oldest, true).ID.String()+":1\n"))
		m.write("data00009a.tar", m.parts(older))
		m.remove(older)
	}, []string{"order error data00009a.tar"}},
	{"the head in the log", func(m made) { m.Put(repo.GCLog, []byte("1,2,3,1,1,6,"+m.head.String()+"\n")) }, nil},
	{"a log of Oak 1.6", func(m made) { m.Put(repo.GCLog, []byte("1,2,3,1,6\n")) }, nil},
}

func (m made) remove(name string) {
	if err := m.Remove(m.t.Context(), name); err != nil {
		m.t.Fatal(err)
	}
}

func (m made) line(name, text string) {
	m.change(name, func(b []byte) []byte { return append(b, text...) })
}

func (m made) with(name string, is func(part) bool) part {
	all := m.parts(name)
	i := slices.IndexFunc(all, is)
	if i < 0 {
		m.t.Fatal("no such part")
	}
	return all[i]
}

func (m made) bulk(name string) part {
	return m.with(name, func(p part) bool { return p.ID.IsBulk() })
}

// drop leaves a reference out of the graph.
func (p *part) drop(data bool) bool {
	for i := range p.refs.Len() {
		if tarfile.ID(p.refs[16*i:]).IsData() == data {
			p.refs = slices.Delete(slices.Clone(p.refs), 16*i, 16*i+16)
			return true
		}
	}
	return false
}

// without takes a segment out of a tar.
func (m made) without(name string, data bool) {
	all := m.parts(name)
	i := slices.IndexFunc(all, func(p part) bool { return p.ID.IsData() == data })
	m.write(name, slices.Delete(all, i, i+1))
}

// garbage adds a segment that nothing refers to and that refers to nothing that is
// there.
func (m made) garbage() {
	b := segment.NewBuilder(segment.BuilderOptions{}, func(_ context.Context, s segment.Finished) error {
		p := part{data: s.Data, Entry: tarfile.Entry{ID: s.ID}}
		for _, r := range s.Refs {
			p.refs = append(p.refs, r[:]...)
		}
		m.write(oldest, append(m.parts(oldest), p))
		return nil
	})
	id, err := segment.ParseRecordID(strange + ":1")
	if err == nil {
		_, err = b.Node(m.t.Context(), segment.NewNode{Children: []segment.Child{{Name: "x", Node: id}}})
	}
	if err == nil {
		err = b.Flush(m.t.Context())
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// sameProblems compares classes, severities and files, each once.
func sameProblems(t *testing.T, all []Problem, want []string) {
	t.Helper()
	var got []string
	for _, p := range all {
		s := fmt.Sprint(p.Class, " ", p.Severity, " ", p.Tar)
		for _, w := range want {
			if strings.Count(w, " ") == 1 && strings.HasPrefix(s, w+" ") {
				s = w
			}
		}
		if !slices.Contains(got, s) {
			got = append(got, s)
		}
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
		for _, p := range all[:min(len(all), 5)] {
			t.Log(p)
		}
	}
}

func TestPlantedDamageIsToldAndNoOther(t *testing.T) {
	for _, c := range plants {
		t.Run(c.name, func(t *testing.T) {
			if c.plant == nil {
				t.Skip("it has a test of its own")
			}
			for _, full := range c.depth {
				m := newMade(t, segment.Generation{})
				c.plant(m)
				sameProblems(t, problems(t, m.Mem, full), c.want)
			}
		})
	}
	for _, c := range compacted {
		t.Run("compacted/"+c.name, func(t *testing.T) {
			m := newMade(t, segment.Generation{Gen: 1, Full: 1, Compacted: true})
			c.plant(m)
			sameProblems(t, problems(t, m.Mem, false), c.want)
		})
	}
}

func TestGraphOverTheLimitIsToldAndDoneWithout(t *testing.T) {
	m := newMade(t, segment.Generation{})
	src := source(t, m.Mem)
	open := src.Tar
	src.Tar = func(ctx context.Context, f repo.Tar) (store.Object, *tarfile.Tar, error) {
		obj, x, err := open(ctx, f)
		if f.Name == older {
			x, err = tarfile.Open(ctx, obj, f.Name, tarfile.Options{MaxPart: 64})
		}
		return obj, x, err
	}
	for _, full := range bothWays {
		sameProblems(t, audited(t, src, full), []string{"too-large warning " + older})
	}
}

func TestTarThatChangesMeanwhileIsTold(t *testing.T) {
	m := newMade(t, segment.Generation{})
	a, err := Open(t.Context(), source(t, m.Mem))
	if err != nil {
		t.Fatal(err)
	}
	m.Put(older, m.Get(older))
	var all []Problem
	if err := a.Full(t.Context(), func(p Problem) { all = append(all, p) }); err != nil {
		t.Fatal(err)
	}
	sameProblems(t, all, []string{"unreadable error " + older})
}

func TestErrorsOfTheStoreAreReturned(t *testing.T) {
	m := newMade(t, segment.Generation{})
	broken := errors.New("broken")
	for _, op := range []string{"open", "info", "read", "tail"} {
		for k := 1; ; k++ {
			count := storetest.Count(storetest.Nth(op, k, broken))
			st := storetest.Fault(m.Mem, count.Inject)
			a, err := Open(t.Context(), source(t, st))
			if err == nil {
				err = a.Full(t.Context(), func(p Problem) {})
			}
			if n, _ := count.Injected(); n == 0 {
				if k < 4 {
					t.Error(op, "only", k-1)
				}
				break
			}
			if !errors.Is(err, broken) {
				t.Fatal(op, k, err)
			}
		}
	}
}
