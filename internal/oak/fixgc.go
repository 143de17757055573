package oak

import (
	"context"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/sweep"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
)

// A FixGC says what made a store unsafe from Oak's own cleanup, and what was written so that it is
// safe.
type FixGC struct {
	Findings []format.Problem `json:"-"`
	Revised                   // if the order of the segments was the reason
	Removed  int              `json:"removed_lines"`  // of gc.log
	Line     string           `json:"line,omitempty"` // added to gc.log
}

// FixGC makes a store safe from Oak's own cleanup, which deletes segments in use if gc.log does not
// name the newest compaction (OAK-12119), or if segments are not in the order of a compaction
// (OAK-12400).
//
// A cleanup of Oak goes from the newest segment to the oldest. It deletes compacted segments until
// it meets the root of the last line of gc.log, and bulk segments that none before it refers to.
// So a segment is written that refers to the bulk segments which come too late, then a revision that
// equals the newest one, and a line of gc.log that names it.
func (s *Store) FixGC(ctx context.Context, dryRun bool) (*FixGC, error) {
	v, err := s.reviser(ctx, dryRun)
	if err != nil {
		return nil, err
	}
	f := &FixGC{Findings: []format.Problem{}, Revised: v.said}
	x := s.r.audit()
	var bad *format.Problem
	order := false
	err = x.Across(ctx, func(p audit.Problem) {
		found := s.r.problemOf(p)
		switch {
		case p.Severity <= format.Note:
		case p.Class == audit.Order, p.Class == audit.StaleGCLog, p.Class == audit.NoGCRoot:
			f.Findings = append(f.Findings, found)
			order = order || p.Class == audit.Order
		case bad == nil && (p.Severity == format.Error || p.Class == audit.TooLarge):
			bad = &found
		}
	})
	switch {
	case err != nil:
		return nil, s.r.storeFault(err)
	case len(f.Findings) == 0 || dryRun:
		return f, nil
	case bad != nil:
		return nil, refuse("it is not certain what the newest revision needs: %s: %s", bad.Volume, bad.Message)
	}
	_, e, _ := s.r.locate(v.head.Segment)
	line := repo.GC{Millis: time.Now().UnixMilli(), Generation: e.Generation, Root: v.head.Revision}
	line.Generation.Compacted = false // as in all lines
	if order {
		if err := v.refer(ctx, x.Late, e.Generation); err != nil {
			return nil, err
		}
		if f.Revised, err = v.commit(ctx, &change{}); err != nil {
			return nil, err
		}
		if line.Root, err = repo.ParseRevision(f.Revision); err != nil {
			return nil, err
		}
	}
	for _, t := range s.r.tars {
		line.RepoSize += t.size
	}
	old, err := s.r.wholeFile(ctx, repo.GCLog, maxLog)
	if err != nil {
		return nil, err
	}
	var log []byte
	log, _, f.Removed = sweep.Lines(old, func(root segment.ID) bool {
		_, _, ok := s.r.locate(root)
		return ok
	})
	f.Line = line.String()
	return f, kit.WriteBytes(ctx, s.r.st, s.r.list.Path(repo.GCLog), append(append(log, f.Line...), '\n'))
}

// refer writes segments that refer to bulk segments. They count as compacted, so that they stay as
// long as those that really refer to them: a compaction of the tail keeps what is compacted.
func (v *reviser) refer(ctx context.Context, bulk []segment.ID, g tarfile.Generation) error {
	if len(bulk) == 0 {
		return nil
	}
	g.Compacted = true
	b := segment.NewBuilder(segment.BuilderOptions{Generation: g, Thrifty: true, Millis: func() int64 { return time.Now().UnixMilli() }}, v.write)
	blocks := make([]segment.RecordID, len(bulk))
	for i, id := range bulk {
		blocks[i].Segment = id
	}
	if _, err := b.Values(ctx, blocks); err != nil {
		return err
	}
	return b.Flush(ctx)
}
