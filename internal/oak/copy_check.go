package oak

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// CopyCheck reports how a copy differs from its source.
type CopyCheck struct {
	Segments    int64        `json:"segments"` // that were compared
	Bytes       int64        `json:"bytes"`
	Different   int64        `json:"different"`
	Differences []Difference `json:"differences"` // the first of them
	Behind      int          `json:"behind"`      // revisions that the copy lacks
	Stay        []string     `json:"stay"`
}

// A Difference is something that is missing or different in a copy.
type Difference struct {
	Archive string `json:"archive,omitempty"`
	Segment string `json:"segment,omitempty"`
	What    string `json:"what"`
}

// mostDifferences is how many differences are listed.
const mostDifferences = 1000

// CheckCopy compares a copy in the folder name of to with the store, byte by byte. Nothing is
// written. Archives that only the copy has are not reported as differences.
func (s *Store) CheckCopy(ctx context.Context, to store.Store, name string, o CopyOptions) (_ *CopyCheck, err error) {
	j, err := s.copyJob(ctx, to, name, o)
	if err != nil {
		return nil, err
	}
	if err := j.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	c := &CopyCheck{Differences: []Difference{}, Stay: j.stay()}
	differ := func(archive, segment, what string) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if c.Different++; len(c.Differences) < mostDifferences {
			c.Differences = append(c.Differences, Difference{archive, segment, what})
		}
	}
	if j.there == nil {
		return nil, &fs.PathError{Op: "open", Path: storekit.AddressOf(to, j.dir.Dir), Err: fs.ErrNotExist}
	}
	for _, a := range j.archives {
		t := j.there.byPath[j.dir.Path(a.from.Name)]
		if t == nil {
			differ(a.from.Name, "", "missing in the copy")
			continue
		}
		if err := j.compare(ctx, a, t, c, differ); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(c.Differences, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Archive, b.Archive), cmp.Compare(a.Segment, b.Segment))
	})
	if err := j.planJournal(ctx); refused(err) {
		differ("", "", err.Error())
	} else if err != nil {
		return nil, err
	}
	c.Behind = j.c.Revisions
	for _, name := range [...]string{repo.Manifest, repo.GCLog} {
		if _, same, err := j.files(ctx, name); err != nil {
			return nil, err
		} else if !same {
			differ("", "", name+" differs from the source")
		}
	}
	return c, nil
}

func (j *copyJob) compare(ctx context.Context, a *copiedArchive, t *segmentTar, c *CopyCheck, differ func(archive, segment, what string)) error {
	err := pipe.Each(ctx, pipe.All(a.order), transfer.AtOnce, func(ctx context.Context, i uint32) error {
		e := a.from.At(int(i)).Plain()
		k, ok := t.Find(e.ID)
		if !ok {
			differ(a.from.Name, e.ID.String(), "missing in the copy")
			return nil
		}
		x := t.At(k).Plain()
		want, err := a.from.read(ctx, e, nil, asStored)
		if err != nil {
			return err
		}
		have, err := t.read(ctx, x, nil, asStored)
		if errors.Is(err, fs.ErrNotExist) {
			differ(a.from.Name, e.ID.String(), "missing in the copy")
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case !bytes.Equal(want, have):
			differ(a.from.Name, e.ID.String(), "the bytes differ")
		case e.Generation != x.Generation:
			differ(a.from.Name, e.ID.String(), fmt.Sprintf("generation %s, expected %s", x.Generation, e.Generation))
		}
		j.mu.Lock()
		c.Segments, c.Bytes = c.Segments+1, c.Bytes+int64(e.Len)
		j.mu.Unlock()
		j.progress(1, int64(e.Len))
		return nil
	})
	if err != nil {
		return err
	}
	if t.file == nil {
		differ(a.from.Name, "", "the copy is not closed")
		return nil
	}
	binaries, graph, err := j.s.parts(ctx, a.from)
	if err != nil {
		return err
	}
	haveBinaries, haveGraph, err := t.file.Raw(ctx)
	if err != nil && !tarfile.IsDamage(err) {
		return err
	}
	for _, p := range []struct {
		name       string
		want, have []byte
	}{{"references to binaries", binaries, haveBinaries}, {"lists of the graph", graph, haveGraph}} {
		if !bytes.Equal(p.want, p.have) {
			differ(a.from.Name, "", p.name+" differ")
		}
	}
	return nil
}
