package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/compact"
	"github.com/holdall/holdall/internal/oak/internal/newstore"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/store"
)

// CompactOptions are options of a compaction. The zero value is valid.
type CompactOptions struct {
	// History is how many revisions before the head are kept too; -1 is all.
	History int
	// NoCheckpoints leaves out the checkpoints.
	NoCheckpoints bool
	// Progress, if not nil, is called as nodes are written.
	Progress func(nodes int64)
}

type Compaction struct {
	Head      string   `json:"head"` // the revision that was copied
	NewHead   string   `json:"new_head"`
	Revisions int      `json:"revisions"` // in the new journal
	Nodes     int64    `json:"nodes"`
	Before    int64    `json:"bytes_before"` // of tars
	After     int64    `json:"bytes_after"`  // of files
	Segments  int64    `json:"segments"`
	Files     []string `json:"files"`
	Notes     []string `json:"notes"`
}

// Compact writes the newest revision, including checkpoints, as a new store in the folder name of
// to. It compares everything that it reads with its checksum. Damage is an error, because the new
// store would have correct checksums of wrong content. to should be a [storekit.Stage].
func (s *Store) Compact(ctx context.Context, to store.Store, name string, o CompactOptions) (c Compaction, err error) {
	if s.r.single {
		return c, fmt.Errorf("%s is one tar of a store: the newest revision is only in the journal: %w", s.r.name, errors.ErrUnsupported)
	}
	head, err := s.r.head(ctx)
	if err != nil {
		return c, err
	}
	c = Compaction{Head: head.Revision.String(), Notes: []string{}}
	if head.Rewound+head.Bad > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("the newest %d revisions of the journal are lost: this is the one before them", head.Rewound+head.Bad))
	}
	for _, t := range s.r.tars {
		c.Before += t.size
	}
	revisions := []repo.Entry{head.Entry}
	if o.History != 0 {
		if revisions, err = s.revisionsBefore(ctx, head.Entry, o.History); err != nil {
			return c, err
		}
	}
	job := s.compaction(o.Progress)
	journal, sum, err := job.run(ctx, to, name, func(ctx context.Context) ([]repo.Entry, error) { return job.copy(ctx, revisions, o) })
	if err != nil {
		return c, err
	}
	c.NewHead, c.Revisions, c.Nodes = journal[len(journal)-1].Revision.String(), len(journal), job.copier.Nodes()
	c.After, c.Segments, c.Files = sum.Bytes, sum.Segments, sum.Files
	return c, nil
}

// revisionsBefore returns the last existing revisions up to the head, the oldest first.
func (s *Store) revisionsBefore(ctx context.Context, head repo.Entry, most int) (some []repo.Entry, err error) {
	for e, err := range s.r.revisions(ctx) {
		if err != nil {
			return nil, err
		}
		if _, _, ok := s.r.locate(e.Segment); !ok || e.Offset > head.Offset {
			continue
		}
		if some = append(some, e); len(some) == most+1 {
			break
		}
	}
	slices.Reverse(some)
	return some, nil
}

// A compaction copies parts of a store into a new one.
type compaction struct {
	s      *Store
	from   *mover
	source *parsed
	read   *segment.Reader // of source; what it cannot read is damage
	b      *segment.Builder
	copier *compact.Copier
	tell   func(segment.Finished) error
}

func (s *Store) compaction(progress func(nodes int64)) *compaction {
	j := &compaction{s: s, from: &mover{r: s.r}}
	j.source = j.from.parsed()
	j.read = segment.NewReader(provable{j.source})
	j.b = segment.NewBuilder(segment.BuilderOptions{Thrifty: true, Millis: func() int64 { return time.Now().UnixMilli() }},
		func(_ context.Context, f segment.Finished) error { return j.tell(j.from.made(f)) })
	j.copier = compact.New(j.read, j.b, j.bulk, compact.Options{Depth: treeDepth, Progress: progress})
	return j
}

// run writes a store of what fill writes. Segments are written while the next are being read.
func (j *compaction) run(ctx context.Context, to store.Store, name string, fill func(context.Context) ([]repo.Entry, error)) (journal []repo.Entry, sum newstore.Summary, err error) {
	w := newstore.New(to, name, newstore.Options{})
	defer w.Abort()
	segments := pipe.Told(func(tell func(segment.Finished) error) (err error) {
		j.tell = tell
		if journal, err = fill(ctx); err == nil {
			err = j.b.Flush(ctx)
		}
		return err
	})
	err = pipe.Ordered(ctx, segments, 1, func(context.Context, segment.Finished) {},
		func(f segment.Finished) error { return w.Write(ctx, f) }, func(segment.Finished) {})
	if err == nil {
		sum, err = w.Commit(ctx, journal...)
	}
	return journal, sum, err
}

func (j *compaction) copy(ctx context.Context, revisions []repo.Entry, o CompactOptions) (journal []repo.Entry, err error) {
	for _, e := range revisions {
		id := e.Revision
		if o.NoCheckpoints {
			id, err = j.copier.Without(ctx, id, checkpointsName)
		} else {
			id, err = j.copier.Node(ctx, id)
		}
		if at, ok := errors.AsType[*compact.Error](err); ok {
			err = j.s.r.corrupt(at.Err, cmp.Or(at.Path, "."))
		}
		if err != nil {
			return nil, err
		}
		journal = append(journal, repo.Entry{Revision: id, Millis: max(e.Millis, 0)})
	}
	return journal, nil
}

// bulk copies a bulk segment, if it has not been copied.
func (j *compaction) bulk(ctx context.Context, id segment.ID) error {
	if !j.from.first(id) {
		return nil
	}
	f, err := j.from.read(ctx, id, nil)
	if err != nil {
		return err
	}
	return j.tell(f)
}
