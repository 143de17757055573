package oak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// CopyOptions are options of [Store.Copy]. The zero value copies everything.
type CopyOptions struct {
	Last   int  // the journal gets at most this many revisions; 0 is all
	DryRun bool // write nothing

	Progress func(segments, bytes int64) // done since the last call
}

// Copied is what a copy did or, in a dry run, would do.
type Copied struct {
	Head      string          `json:"head"`
	Archives  []CopiedArchive `json:"archives"` // oldest first
	Segments  int64           `json:"segments"` // that were copied
	Bytes     int64           `json:"bytes"`
	There     int64           `json:"segments_there"` // that were there before
	Revisions int             `json:"revisions"`      // lines that the journal was given
	Stay      []string        `json:"stay"`           // archives that the source does not have
	Notes     []string        `json:"notes"`
}

type CopiedArchive struct {
	Name     string `json:"name"`
	Segments int    `json:"segments"`
	Copied   int    `json:"copied"`
	Bytes    int64  `json:"bytes"` // of these
}

// mostJournal limits the size of a journal that is copied: some ten million revisions.
const mostJournal = 1 << 30

// Copy copies the store to the folder name of to: as tars if that is local, otherwise with a blob
// for each segment. Existing segments are not copied again. The journal is written last. If the
// destination has anything that the store does not have, Copy leaves it unchanged and returns an
// error.
func (s *Store) Copy(ctx context.Context, to store.Store, name string, o CopyOptions) (_ *Copied, err error) {
	j, err := s.copyJob(ctx, to, name, o)
	if err != nil {
		return nil, err
	}
	if !o.DryRun {
		at, release, refused := place(ctx, to, name)
		if refused != nil {
			return nil, refused
		}
		defer func() { err = errors.Join(err, release()) }()
		j.to, j.placed = at, at != to
	}
	if err := j.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	if err := j.plan(ctx); err != nil || o.DryRun {
		return &j.c, err
	}
	for _, a := range j.archives {
		if err := j.archive(ctx, a); err != nil {
			return nil, err
		}
	}
	for _, name := range [...]string{repo.Manifest, repo.GCLog} {
		if err := j.file(ctx, name); err != nil {
			return nil, err
		}
	}
	return &j.c, j.writeJournal(ctx)
}

type copyJob struct {
	s  *Store
	to store.Store
	o  CopyOptions
	c  Copied

	dir      repo.Listing // of the folder, for names in it
	tars     bool         // copy to tars, not blobs
	placed   bool         // to makes blobs and parts of the journal by itself
	there    *repository  // the store in the folder; nil if there is none
	head     repo.Head
	archives []*copiedArchive
	added    []byte // lines for the journal
	old      []byte // the journal that is there

	mu sync.Mutex // for progress
}

type copiedArchive struct {
	from    *segmentTar
	order   []uint32 // of entries
	numbers []int    // that blobs of these have: of tars, their order
	missing []int    // which of them are to be copied
	there   *segmentTar
	whole   bool // complete, with its other parts
}

func (a *copiedArchive) at(i int) tarfile.Entry { return a.from.At(int(a.order[i])).Plain() }

func (s *Store) copyJob(ctx context.Context, to store.Store, name string, o CopyOptions) (*copyJob, error) {
	if s.r.single {
		return nil, fmt.Errorf("%s is one tar of a store: expected the folder: %w", s.r.name, errors.ErrUnsupported)
	}
	j := &copyJob{s: s, to: to, o: o, dir: repo.Listing{Dir: repo.Dir(name)}, tars: to.Can().Near}
	j.c = Copied{Archives: []CopiedArchive{}, Stay: []string{}, Notes: []string{}}
	var err error
	if j.head, err = s.r.head(ctx); err != nil {
		return nil, err
	}
	j.c.Head = j.head.Revision.String()
	if n := j.head.Rewound + j.head.Bad; n > 0 {
		j.c.Notes = append(j.c.Notes, fmt.Sprintf("the newest %d lines of the journal have no revision: not copied", n))
	}
	for i, t := range slices.Backward(s.r.tars) {
		if i > 0 && s.r.tars[i-1].Number == t.Number {
			return nil, refuse("%s and %s belong together and have no index: 'holdall repair' joins them", s.r.tars[i-1].Name, t.Name)
		}
		if t.Len() == 0 {
			continue
		}
		a := &copiedArchive{from: t, order: t.ByPosition()}
		a.numbers = make([]int, len(a.order))
		for k := range a.numbers {
			if a.numbers[k] = k; t.blobs != nil { // missing ones between them may still be copied
				a.numbers[k], _ = t.blobs.Number(k)
			}
		}
		j.archives = append(j.archives, a)
	}
	return j, nil
}

func (j *copyJob) open(ctx context.Context) (err error) {
	j.there, err = other(ctx, j.to, j.dir.Dir, j.s.r.limits)
	if r := j.there; r != nil && len(r.tars) > 0 && j.tars == (r.list.Blobs != nil) {
		err = errors.Join(refuse("%s: exists in the other form: tars and blobs cannot be mixed", storekit.AddressOf(j.to, j.dir.Dir)), j.close())
	}
	return err
}

func (j *copyJob) close() error {
	if j.there == nil {
		return nil
	}
	return j.there.close()
}

// plan finds what is missing. It returns an error if the copy would destroy something.
func (j *copyJob) plan(ctx context.Context) error {
	for _, a := range j.archives {
		if err := j.missing(a); err != nil {
			return err
		}
		told := CopiedArchive{Name: a.from.Name, Segments: len(a.order), Copied: len(a.missing)}
		for _, n := range a.missing {
			told.Bytes += int64(a.at(n).Len)
		}
		j.c.Archives = append(j.c.Archives, told)
		j.c.Segments, j.c.Bytes = j.c.Segments+int64(told.Copied), j.c.Bytes+told.Bytes
		j.c.There += int64(told.Segments - told.Copied)
	}
	j.c.Stay = j.stay()
	return j.planJournal(ctx)
}

// stay returns which archives of the copy the source does not have.
func (j *copyJob) stay() []string {
	names := []string{}
	if j.there == nil {
		return names
	}
	for _, t := range slices.Backward(j.there.list.Tars) {
		if j.s.r.byPath[j.s.r.list.Path(t.Name)] == nil {
			names = append(names, t.Name)
		}
	}
	return names
}

// missing finds the segments of an archive that are to be copied.
func (j *copyJob) missing(a *copiedArchive) error {
	places, there := make(map[segment.ID]int, len(a.order)), make([]bool, len(a.order))
	for i := range a.order {
		places[a.at(i).ID] = i
	}
	if j.there != nil {
		a.there = j.there.byPath[j.dir.Path(a.from.Name)]
	}
	if t := a.there; t != nil {
		a.whole = t.file != nil
		if t.blobs != nil { // it must also have all its parts besides segments
			a.whole = a.whole && t.blobs.SizeOf(cloud.Binaries) > 0 && t.blobs.SizeOf(cloud.Graph) > 0 &&
				(j.to.Can().ListHeaders != nil || t.blobs.SizeOf(cloud.Index) > 0)
		}
		for k, row := range t.ByPosition() {
			e, seen := t.At(int(row)), true
			i, ok := places[e.ID]
			if t.blobs == nil {
				e = e.Plain()
			} else if number, is := t.blobs.Number(k); ok {
				ok, seen = number == a.numbers[i], is
			}
			if !ok {
				return refuse("%s: expected a copy of the source, found another store: segment %s is not in the source, or at another place", t.path, e.ID)
			}
			want := a.at(i)
			there[i] = seen && want.Len == e.Len && want.Generation == e.Generation
		}
	}
	whole := !slices.Contains(there, false)
	for i, is := range there {
		if !is || !whole && j.tars { // a tar is written completely
			a.missing = append(a.missing, i)
		}
	}
	a.whole = a.whole && whole
	return nil
}

func (j *copyJob) archive(ctx context.Context, a *copiedArchive) error {
	switch {
	case a.whole:
		return nil
	case j.tars:
		_, err := transfer.Tar[int]{
			Read: func(ctx context.Context, i int, buf []byte) (segment.Finished, error) {
				return j.segment(ctx, a, i, buf)
			},
			Parts: func(ctx context.Context) (binaries, graph []byte, err error) { return j.s.parts(ctx, a.from) },
		}.Write(ctx, j.to, j.dir.Path(a.from.Name), a.missing)
		return err
	}
	sink := cloud.Sink{Store: j.to, Dir: j.dir.Path(""), Name: a.from.Name}
	if a.there != nil && a.there.blobs.Closed {
		if err := storekit.Remove(ctx, j.to, j.dir.Path(a.from.Name)+"/"+cloud.Closed); err != nil {
			return err
		}
	}
	send := func(ctx context.Context, i int) error {
		f, err := j.segment(ctx, a, i, nil)
		if err == nil {
			err = sink.Segment(ctx, a.numbers[i], a.at(i), f.Data, tarfile.Proves(f.ID, f.Header, f.Data))
		}
		return err
	}
	rest := a.missing
	if len(rest) > 0 { // the first segment is there before others, as Oak writes them
		if err := send(ctx, rest[0]); err != nil {
			return err
		}
		rest = rest[1:]
	}
	if err := pipe.Each(ctx, pipe.All(rest), transfer.AtOnce, send); err != nil {
		return err
	}
	binaries, graph, err := j.s.parts(ctx, a.from)
	if err != nil {
		return err
	}
	var rows []byte
	if j.to.Can().ListHeaders == nil { // only the index has the generations
		for i, number := range a.numbers {
			rows = cloud.AppendRow(rows, number, a.at(i))
		}
	}
	if err := sink.Parts(ctx, binaries, graph, rows); err != nil {
		return err
	}
	return sink.Close(ctx)
}

func (j *copyJob) progress(segments, bytes int64) {
	if j.o.Progress != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.o.Progress(segments, bytes)
	}
}

// segment reads a segment to be copied, with its header. A damaged segment is an error, because
// nothing would show the damage of a blob. If segments are not to be compared, a tar gets it.
func (j *copyJob) segment(ctx context.Context, a *copiedArchive, i int, buf []byte) (f segment.Finished, err error) {
	e, how := a.at(i), healing
	if j.tars {
		how = j.s.r.trust
	}
	f, err = a.from.readMoved(ctx, e, buf, how)
	if err == nil && e.ID.IsData() && how != asStored {
		if _, ok := segment.ParseHead(f.Data); !ok {
			err = &segment.Error{Class: segment.Altered, Segment: e.ID, Record: -1, Off: -1, What: "it does not begin like a data segment"}
		}
	}
	if err == nil {
		j.progress(1, int64(e.Len))
	}
	return f, j.s.r.corrupt(j.s.r.storeFault(err), "")
}

// parts are an archive's references to binaries and graph, which are generated if it has none.
func (s *Store) parts(ctx context.Context, t *segmentTar) (binaries, graph []byte, err error) {
	if t.file != nil {
		binaries, graph, err = t.file.Raw(ctx)
		if err == nil || !tarfile.IsDamage(err) {
			return binaries, graph, err
		}
	}
	w, names := tarfile.NewWriter(io.Discard, t.Name, nil), transfer.NewNames(t.path, s.source.Segment)
	read := func(ctx context.Context, e tarfile.Entry, buf []byte) (segment.Finished, error) {
		return t.readMoved(ctx, e, buf, s.r.trust)
	}
	err = transfer.Each(ctx, t.data(), read, func(_ tarfile.Entry, f segment.Finished) error {
		if err := names.Describe(ctx, &f, nil); err != nil {
			return err
		}
		return w.Put(f)
	})
	binaries, graph = w.Parts()
	return binaries, graph, s.r.corrupt(s.r.storeFault(err), "")
}

// files reads a file beside the archives, and reports whether it is the same in both stores. Manifests
// are the same if their versions are, because Java writes the time into them. A gc.log in the cloud
// is the same if its last line is, because lines are only added there.
func (j *copyJob) files(ctx context.Context, name string) (b []byte, same bool, err error) {
	if name == repo.GCLog {
		b, err = j.s.gcLog(ctx)
	} else {
		b, err = j.s.r.wholeFile(ctx, name, maxLog)
	}
	if err != nil || b == nil || j.there == nil {
		return b, b == nil, err
	}
	old, err := j.there.wholeFile(ctx, name, maxLog)
	if err != nil {
		return b, false, err
	}
	same = bytes.Equal(b, old)
	if old != nil && name == repo.Manifest {
		x, err := j.s.r.manifest(ctx)
		y, err2 := j.there.manifest(ctx)
		same = same || err == nil && err2 == nil && x.Version == y.Version
	}
	return b, same || name == repo.GCLog && !j.tars && cloud.LastLine(b) == cloud.LastLine(old), nil
}

func (j *copyJob) file(ctx context.Context, name string) error {
	b, same, err := j.files(ctx, name)
	if err != nil || same {
		return err
	}
	return kit.WriteBytes(ctx, j.to, j.dir.Path(name), b)
}

// planJournal finds the lines to add.
func (j *copyJob) planJournal(ctx context.Context) error {
	all, err := j.s.r.wholeFile(ctx, repo.Journal, mostJournal)
	if err != nil {
		return err
	}
	// Lines after the head lead to no segment that was listed.
	end := min(int64(len(all)), j.head.Offset+int64(len(j.head.Text)))
	all = append(all[:end:end], '\n')
	if j.there != nil {
		if j.old, err = j.there.wholeFile(ctx, repo.Journal, mostJournal); err != nil {
			return err
		}
	}
	j.added = all
	if last := cloud.LastLine(j.old); last != "" {
		at := bytes.LastIndex(append([]byte{'\n'}, all...), []byte("\n"+last+"\n"))
		if at < 0 {
			return refuse("%s: expected a copy of the source, found another store: its newest revision is not in the source: %.100s", storekit.AddressOf(j.to, j.dir.Path(repo.Journal)), last)
		}
		j.added = all[at+len(last)+1:]
	}
	if j.o.Last > 0 {
		lines := bytes.SplitAfter(j.added, []byte{'\n'})
		lines = lines[:len(lines)-1]
		j.added = bytes.Join(lines[max(0, len(lines)-j.o.Last):], nil)
	}
	j.c.Revisions = bytes.Count(j.added, []byte{'\n'})
	return nil
}

func (j *copyJob) writeJournal(ctx context.Context) error {
	if len(j.added) == 0 {
		return nil
	}
	if j.there != nil && !j.placed && len(j.there.journalParts()) > 0 { // in a bucket
		l := cloud.Log{Store: j.to, Dir: j.dir.Path(""), Parts: j.there.journalParts()}
		return l.Append(ctx, j.old, j.added)
	}
	if n := len(j.old); n > 0 && j.old[n-1] != '\n' {
		j.old = append(j.old, '\n')
	}
	return kit.WriteBytes(ctx, j.to, j.dir.Path(repo.Journal), slices.Concat(j.old, j.added))
}
