package book

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/rows"
	"github.com/holdall/holdall/internal/base/scan"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Beside an archive that is in the folder of its catalogue, or below, lies a small object that says
// which commit has added it. What was deleted from the catalogue lies beside the catalogue. So one that
// is lost can be made again. Names of both end in the ID of the catalogue: another one never replaces
// them.
const (
	addedSuffix = ".added-"
	goneSuffix  = ".gone"

	addedMagic = "holdall added 1\n"
	goneMagic  = "holdall gone 1\n"

	mostBeside = 16 << 20
)

// A Record is what lies beside.
type Record struct {
	Catalog string        `json:"catalog"`
	Commit  int64         `json:"commit"`
	Hash    string        `json:"hash"` // of the commit
	Ordinal int           `json:"ordinal,omitempty"`
	Time    time.Time     `json:"time"`
	Roots   catalog.Roots `json:"roots,omitempty"`
	Facts   text          `json:"facts,omitempty"`
	Seq     int64         `json:"seq,omitempty"`     // of all files, or Various; 0 is Commit
	Gone    []text        `json:"dropped,omitempty"` // addresses of archives, as they were stored

	Object  string   `json:"-"` // that has it
	Archive string   `json:"-"` // the address of the archive that was added, or ""
	Dropped []string `json:"-"` // addresses of archives that were removed
	Deleted []string `json:"-"` // names of files

	seqs   Versions // if they are various
	offset int64    // in the catalogue that is made of it
}

// Versions are those of files, one after the other. Many in a row have the same one.
type Versions []stretch

// A stretch is a number of files with one Seq.
type stretch struct{ n, seq int64 }

// Add adds the version of a further file.
func (v *Versions) Add(seq int64) {
	if n := len(*v); n > 0 && (*v)[n-1].seq == seq {
		(*v)[n-1].n++
	} else {
		*v = append(*v, stretch{1, seq})
	}
}

// Next returns a function that returns the version of each file, as long as there is one.
func (v Versions) Next() func() (seq int64, ok bool) {
	n := int64(0)
	return func() (int64, bool) {
		for n++; len(v) > 0 && n > v[0].n; {
			v, n = v[1:], 1
		}
		if len(v) == 0 {
			return 0, false
		}
		return v[0].seq, true
	}
}

// Numbered yields files of the archive with their versions.
func (r *Record) Numbered(files iter.Seq2[catalog.Location, error]) iter.Seq2[catalog.Location, error] {
	if len(r.seqs) > 0 {
		files = byName(files)
	}
	return func(yield func(catalog.Location, error) bool) {
		next := r.seqs.Next()
		for l, err := range files {
			seq, ok := next()
			if !ok {
				seq = cmp.Or(max(r.Seq, 0), r.Commit)
			}
			l.Seq = r.offset + seq
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// byName yields files in byte order of their names. If several have the same name, it yields the last of them.
func byName(files iter.Seq2[catalog.Location, error]) iter.Seq2[catalog.Location, error] {
	return func(yield func(catalog.Location, error) bool) {
		var all []catalog.Location
		for l, err := range files {
			if err != nil {
				yield(l, err)
				return
			}
			all = append(all, l)
		}
		slices.SortStableFunc(all, func(a, b catalog.Location) int { return strings.Compare(a.Path, b.Path) })
		for i, l := range all {
			if i+1 < len(all) && all[i+1].Path == l.Path {
				continue
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// Deletions are rows of the files that were deleted.
func (r *Record) Deletions(yield func(*rows.Row, error) bool) {
	for _, name := range r.Deleted {
		if !yield(&rows.Row{Name: name, What: rows.Delete, Seq: r.offset + cmp.Or(r.Seq, r.Commit)}, nil) {
			return
		}
	}
}

// Follow makes room in a new catalogue for what others had: numbers of commits that say which version of a
// file is newer. The records must be in their order.
func (b *Book) Follow(ctx context.Context, all []Record) error {
	last, id, begun := int64(0), "", int64(0)
	for i := range all {
		r := &all[i]
		if r.Commit == 0 {
			continue
		}
		if r.Catalog != id {
			id, begun = r.Catalog, last
		}
		r.offset = begun
		if last = max(last, begun+r.Commit); last > rows.MostCommit/2 {
			return fmt.Errorf("commit %d of catalogue %s: there is no room for it", r.Commit, format.Escape(r.Catalog))
		}
	}
	if s := b.current(); last < s.Number {
		return nil
	}
	_, err := b.Commit(ctx, func(s *State) (*Commit, error) { return &Commit{Next: max(last+1, s.Number+2)}, nil })
	return err
}

// Compare returns the order in which things were done.
func (r Record) Compare(x Record) int {
	if r.Commit == x.Commit && (r.Archive == "") != (x.Archive == "") {
		if r.Archive == "" { // what a commit removes was there before
			return -1
		}
		return 1
	}
	return (rows.ArchiveID{Commit: r.Commit, Ordinal: r.Ordinal}).Compare(rows.ArchiveID{Commit: x.Commit, Ordinal: x.Ordinal})
}

// A side is an object that lies beside.
type side struct {
	name   string
	object []byte
}

// sides returns what lies beside for a commit.
func (b *Book) sides(ctx context.Context, c numberedCommit) (all []side, err error) {
	r := Record{Catalog: c.Catalog, Commit: c.Number, Hash: c.hash, Time: c.Time}
	parent := path.Dir(strings.TrimSuffix(b.dir, "/"))
	seqs, names, seq, err := b.besides(ctx, c)
	if err != nil {
		return nil, err
	}
	for i, a := range c.Add {
		name, near := strings.CutPrefix(string(a.Address), "./")
		if !near {
			continue
		}
		r.Ordinal, r.Roots, r.Facts, r.Seq = i, a.Roots, a.Facts, a.Seq
		var more []byte
		for _, x := range seqs[i] {
			more = binary.AppendUvarint(binary.AppendUvarint(more, uint64(x.n)), uint64(x.seq))
		}
		o, err := framed(addedMagic, r, more)
		if err != nil {
			return nil, err
		}
		all = append(all, side{path.Join(parent, name) + addedSuffix + c.Catalog, o})
	}
	r.Ordinal, r.Roots, r.Facts, r.Seq, r.Gone = 0, "", "", seq, c.Gone
	if len(c.Gone) == 0 && len(names) == 0 {
		return all, nil
	}
	o, err := framed(goneMagic, r, names)
	return append(all, side{strings.TrimSuffix(b.dir, "/") + goneSuffix + fmt.Sprintf("/%016d-%s", c.Number, c.Catalog), o}), err
}

// besides returns what only the rows of a commit know: the versions of files, for archives where they are
// various, and the names of deleted files, with the version of these deletions.
func (b *Book) besides(ctx context.Context, c numberedCommit) (seqs map[int]Versions, deleted []byte, seq int64, err error) {
	seqs = map[int]Versions{}
	if !c.Deletes && !slices.ContainsFunc(c.Add, func(a Archive) bool { return a.Seq == Various }) {
		return seqs, nil, 0, nil
	}
	for i := range c.Runs {
		run, err := b.open(ctx, &c.Runs[i])
		if err != nil {
			return nil, nil, 0, err
		}
		for x, err := range run.All(ctx) {
			if err != nil {
				return nil, nil, 0, err
			}
			switch i := x.Archive.Ordinal; {
			case x.What == rows.Delete:
				if deleted = scan.AppendText(deleted, x.Name); x.Seq != c.Number {
					seq = x.Seq
				}
			case x.What != rows.Put || x.Archive.Commit != c.Number || i >= len(c.Add) || c.Add[i].Seq != Various:
			default:
				v := seqs[i]
				v.Add(x.Seq)
				seqs[i] = v
			}
		}
	}
	return seqs, deleted, seq, nil
}

// note writes what lies beside for a commit.
func (b *Book) note(ctx context.Context, c numberedCommit) error {
	all, err := b.sides(ctx, c)
	put := func(ctx context.Context, x side) error { return b.putBeside(ctx, x.name, x.object) }
	if n := len(all); err == nil && n > 0 { // the last is written last
		if err = pipe.Each(ctx, pipe.All(all[:n-1]), 16, put); err == nil {
			err = put(ctx, all[n-1])
		}
	}
	if err == nil {
		b.noted = c.Number
	}
	return err
}

// noteLast writes what lies beside for the newest commit, if its writer was killed before it did. Since
// everybody does that before a commit, nothing is missing for older ones.
func (b *Book) noteLast(ctx context.Context, s *State) error {
	if b.noted >= s.Number {
		return nil
	}
	last := s.last
	if last == nil {
		c, err := b.commit(ctx, s.Number)
		if err != nil {
			return b.fail(commitName(s.Number), err)
		}
		last = &c
	}
	all, err := b.sides(ctx, *last)
	if err != nil {
		return err
	}
	if n := len(all); n > 0 {
		there, err := b.hasSide(ctx, all[n-1])
		if err != nil {
			return &Error{all[n-1].name, err}
		}
		if !there {
			return b.note(ctx, *last)
		}
	}
	b.noted = s.Number
	return nil
}

// marker is an object beside the catalogue that names its newest commit, or one of those before. It is
// written with the head, as a record of nothing that is gone.
func (b *Book) marker(catalog string) string { return b.Name() + goneSuffix + "/last-" + catalog }

func (b *Book) mark(ctx context.Context, s *State) error {
	o, err := framed(goneMagic, Record{Catalog: s.Catalog, Commit: s.Number, Hash: s.Hash, Time: s.Time}, nil)
	if err == nil {
		err = b.putBeside(ctx, b.marker(s.Catalog), o)
	}
	return err
}

// reaches compares the commits with the marker, which an older copy of the catalogue that was put back
// does not reach.
func (b *Book) reaches(ctx context.Context) error {
	name := b.marker(b.current().Catalog)
	o, err := b.getBeside(ctx, name, mostBeside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r := Record{}
	if err == nil {
		r, err = parseRecord(o, true)
	}
	if err != nil {
		return &Error{name, err}
	}
	if r.Object = name; r.Commit > b.current().Number { // another may have just created it
		if err := b.follow(ctx); err != nil {
			return err
		}
	}
	s, hash := b.current(), ""
	if hash = s.Hash; r.Commit < s.Number {
		c, err := b.commit(ctx, r.Commit)
		if err != nil {
			return b.fail(commitName(r.Commit), err)
		}
		hash = c.hash
	}
	return r.isOf(s.Number, hash)
}

// isOf returns an error if a record is of a commit after the last one, or of another one with its number,
// which has that hash.
func (r Record) isOf(last int64, hash string) error {
	if r.Commit <= last && r.Hash == hash {
		return nil
	}
	why := fmt.Sprintf("it is of another commit %d", r.Commit)
	if r.Commit > last {
		why = fmt.Sprintf("it is of commit %d, and the last one is %d", r.Commit, last)
	}
	return &Error{r.Object, broken(fmt.Errorf("%s: an older copy of the catalogue was put back", why))}
}

// hasSide reports whether an object that lies beside is as it should be. One of an earlier commit may
// have the same name.
func (b *Book) hasSide(ctx context.Context, x side) (bool, error) {
	is, err := b.getBeside(ctx, x.name, mostBeside)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrChanged) {
		return false, nil
	}
	return bytes.Equal(is, x.object), err
}

func (b *Book) putBeside(ctx context.Context, name string, content []byte) error {
	_, err := storekit.Write(ctx, b.st, name, func(w store.Writer) error {
		_, err := w.Write(content)
		return err
	})
	if err != nil {
		err = &Error{name, err}
	}
	return err
}

// Records finds what lies beside archives and catalogues below a folder, in the order in which it was
// done. Of several catalogues, the oldest comes first: the others were made of what it had. unknown are other objects there
// that may be archives.
func Records(ctx context.Context, st store.Store, folder string, mayBe func(name string) bool) (all []Record, unknown []string, err error) {
	known := map[string]bool{}
	var others []string
	if folder = strings.TrimRight(folder, "/"); folder == "." {
		folder = ""
	} else if folder != "" {
		folder += "/"
	}
	for info, err := range storekit.List(ctx, st, folder) {
		if err != nil {
			return nil, nil, err
		}
		archive, added := WasAdded(info.Name)
		archive = path.Join(path.Dir(info.Name), archive)
		gone := strings.HasSuffix(path.Dir(info.Name), Suffix+goneSuffix)
		switch {
		case added || gone:
			r, err := readRecord(ctx, st, info, gone)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, nil, &Error{info.Name, err}
			}
			if r.Object = info.Name; added {
				r.Archive = storekit.AddressOf(st, archive)
				known[archive] = true
			}
			for _, a := range r.Gone {
				address := string(a)
				if name, near := strings.CutPrefix(address, "./"); near {
					address = storekit.AddressOf(st, path.Join(path.Dir(path.Dir(info.Name)), name))
				}
				r.Dropped = append(r.Dropped, address)
			}
			all = append(all, r)
		case strings.Contains(info.Name, Suffix+"/"): // a catalogue
		case mayBe(info.Name):
			others = append(others, info.Name)
		}
	}
	begun := map[string]time.Time{}
	for _, r := range all {
		if at, ok := begun[r.Catalog]; !ok || r.Time.Before(at) {
			begun[r.Catalog] = r.Time
		}
	}
	slices.SortStableFunc(all, func(a, b Record) int {
		if a.Catalog != b.Catalog {
			return cmp.Or(begun[a.Catalog].Compare(begun[b.Catalog]), strings.Compare(a.Catalog, b.Catalog))
		}
		return a.Compare(b)
	})
	for _, name := range others {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return all, unknown, nil
}

func readRecord(ctx context.Context, st store.Store, info store.Info, gone bool) (r Record, err error) {
	if info.Size > mostBeside {
		return r, fmt.Errorf("%d bytes, expected at most %d", info.Size, mostBeside)
	}
	o, err := storekit.OpenAs(ctx, st, info)
	if err != nil {
		return r, err
	}
	defer o.Close()
	b := make([]byte, info.Size)
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return r, err
	}
	return parseRecord(b, gone)
}

func parseRecord(b []byte, gone bool) (r Record, err error) {
	magic := addedMagic
	if gone {
		magic = goneMagic
	}
	more, err := unframed(b, magic, &r)
	if err == nil && (r.Commit < 1 || r.Ordinal < 0 || r.Seq < Various || r.Seq > r.Commit) {
		err = errFrame
	}
	for c := (&scan.Scanner{B: more}); err == nil && c.At < len(more); {
		if gone {
			r.Deleted = append(r.Deleted, string(c.Text()))
		} else {
			r.seqs = append(r.seqs, stretch{c.Size(), c.Size()})
		}
		if c.Bad {
			err = errFrame
		}
	}
	return r, err
}
