package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/proof"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// A Store is an open segment store. It shows more than an archive does: records, references and
// garbage. Its methods may be called in parallel.
type Store struct {
	r       *repository
	records *segment.Reader
	source  *parsed
}

// OpenStore opens the store in a folder, or a single tar. It must be closed.
func OpenStore(ctx context.Context, st store.Store, name string, o format.OpenOptions) (*Store, error) {
	r, err := openRepository(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	return r.store(), nil
}

func (r *repository) store() *Store {
	src := &parsed{r: r, trust: r.trust}
	return &Store{r: r, records: segment.NewReader(src), source: src}
}

func (s *Store) Close() error { return s.r.close() }

// Doubt returns the problem that the journal shows with the chosen revisions, or nil.
func (s *Store) Doubt() *format.Problem { return s.r.doubt.Load() }

// SegmentInfo is what a segment contains about itself, and what its tar contains about it.
type SegmentInfo struct {
	ID         string         `json:"id"`
	Kind       string         `json:"kind"` // data, bulk or neither
	Tar        string         `json:"tar"`
	Position   int64          `json:"position"`
	Size       int            `json:"size"`
	Copies     []string       `json:"copies,omitempty"` // in older tars
	Version    int            `json:"version,omitempty"`
	Generation int32          `json:"generation"`
	Full       int32          `json:"full_generation"`
	Compacted  bool           `json:"compacted"`
	Info       string         `json:"info,omitempty"` // its writer, in JSON
	References []Reference    `json:"references,omitempty"`
	Types      map[string]int `json:"types,omitempty"` // number of records of each type
	Records    []RecordRow    `json:"records,omitempty"`
	Problems   []string       `json:"problems,omitempty"`
}

type Reference struct {
	Number int    `json:"number"` // by which records name it
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Tar    string `json:"tar,omitempty"` // empty if no tar has it
}

type RecordRow struct {
	Number   int32  `json:"number"`
	Type     string `json:"type"`
	Position int    `json:"position"` // in the segment; -1 if the row is damaged
}

func (s *Store) Segment(ctx context.Context, id string) (SegmentInfo, error) {
	t, e, err := s.find(id)
	if err != nil {
		return SegmentInfo{}, err
	}
	x := e.ID
	info := SegmentInfo{ID: id, Kind: kindOf(x), Tar: t.Name, Position: e.Pos, Size: e.Len,
		Generation: e.Generation.Gen, Full: e.Generation.Full, Compacted: e.Generation.Compacted}
	for _, other := range s.r.tars[slices.Index(s.r.tars, t)+1:] {
		if _, ok := other.Find(x); ok {
			info.Copies = append(info.Copies, other.Name)
		}
	}
	b, err := t.read(ctx, e, nil, s.r.proving())
	if bad := proof.Damage(err); bad != nil {
		info.Problems = append(info.Problems, bad.What)
		b, err = t.read(ctx, e, nil, asStored)
	}
	if err != nil {
		return info, s.r.storeFault(err)
	}
	g, err := segment.Parse(x, b)
	if bad, ok := errors.AsType[*segment.Error](err); ok {
		info.Problems = append(info.Problems, bad.What)
		return info, nil
	}
	if err != nil || !x.IsData() {
		return info, err
	}
	info.Version = g.Version()
	for i := range g.RefCount() {
		to := g.Ref(i)
		ref := Reference{Number: i + 1, ID: to.String(), Kind: kindOf(to)}
		if at, _, ok := s.r.locate(to); ok {
			ref.Tar = at.Name
		}
		info.References = append(info.References, ref)
	}
	info.Types = map[string]int{}
	for row := range g.Records() {
		info.Types[row.Type.String()]++
		out := RecordRow{Number: row.Number, Type: row.Type.String(), Position: -1}
		if r, err := g.Record(row.Number); err == nil {
			out.Position = r.Pos()
		}
		info.Records = append(info.Records, out)
	}
	said, err := g.Info()
	if info.Info = said.JSON; err != nil && info.Info == "" {
		info.Problems = append(info.Problems, err.Error())
	}
	g.Check(func(p segment.Problem) {
		info.Problems = append(info.Problems, fmt.Sprintf("at %d: %s", p.Off, p.What))
	})
	return info, nil
}

func (s *Store) Bytes(ctx context.Context, id string) ([]byte, error) {
	t, e, err := s.find(id)
	if err != nil {
		return nil, err
	}
	b, err := t.read(ctx, e, nil, asStored) // Segment reports their problems
	return b, s.r.storeFault(err)
}

func (s *Store) find(id string) (*segmentTar, tarfile.Entry, error) {
	x, err := segment.ParseID(id)
	if err != nil {
		return nil, tarfile.Entry{}, err
	}
	t, e, ok := s.r.locate(x)
	if !ok {
		err = fmt.Errorf("segment %s: %w", id, fs.ErrNotExist)
	}
	return t, e, err
}

type RecordInfo = segment.Description

func (s *Store) Record(ctx context.Context, id string) (RecordInfo, error) {
	x, err := segment.ParseRecordID(id)
	if err != nil {
		return RecordInfo{}, err
	}
	d, err := s.records.Describe(ctx, x)
	if t, _, ok := s.r.locate(x.Segment); ok {
		d.Tar = t.Name
	}
	return d, err
}

type Edges struct {
	Tar  string   `json:"tar"`
	From string   `json:"from"`
	To   []string `json:"to"`
}

// Graph yields the references of all data segments, in the order in which they were written. They
// come from the graphs of the tars or, if one is damaged or missing, from the segments
// themselves.
func (s *Store) Graph(ctx context.Context) iter.Seq2[Edges, error] {
	return pipe.Told(func(tell func(Edges) error) error {
		r := &segmentReader{repository: s.r}
		for _, t := range slices.Backward(r.tars) {
			for e := range t.data() {
				targets, err := r.targets(ctx, t, e)
				if err != nil {
					return err
				}
				out := Edges{Tar: t.Name, From: e.ID.String(), To: []string{}}
				for id := range targets.All() {
					out.To = append(out.To, id.String())
				}
				if err := tell(out); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
