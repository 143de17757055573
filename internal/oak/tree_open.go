package oak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
)

// Parameters that select the tree that is shown.
const (
	// revisionParam is UUID:NUMBER, or a time: the newest revision not after it.
	revisionParam = "revision"
	// checkpointParam is the name of a checkpoint.
	checkpointParam = "checkpoint"
	// superParam, if "true", shows what Oak stores above the tree: root and checkpoints.
	superParam = "super"
	// datastoreParam is where the contents of external binaries are: a FileDataStore, given by an
	// address or by a path relative to the folder that contains the store.
	datastoreParam = "datastore"
)

const (
	rootName        = "root"
	checkpointsName = "checkpoints"
)

// treeDepth is the default limit of a tree's depth. It is larger than holdall's general limit of
// nested structures, because levels cost little here.
const treeDepth = 1000

// newTree opens a tree. With guess, it shows what damaged segments have for names and places.
func newTree(ctx context.Context, r *repository, records *segment.Reader, o format.OpenOptions, guess bool) (*treeReader, error) {
	t := &treeReader{
		repository: r, records: records, shape: records,
		depth: cmp.Or(o.Limits.Depth, treeDepth), datastore: o.Param[datastoreParam], checkpoint: o.Param[checkpointParam],
	}
	if t.paths = t; guess {
		t.guess()
	}
	if err := t.choose(ctx, o.Param); err != nil {
		return t, err
	}
	if r.st.Can().Near {
		near := *t
		near.records = segment.NewReader(&parsed{r: r, trust: r.trust, sparse: true})
		near.shape, near.paths = near.records, &near
		if t.paths = &near; guess {
			near.guess()
		}
	}
	return t, nil
}

func (t *treeReader) guess() {
	if t.trust != asStored {
		t.shape = segment.NewReader(guesser{t.records.Source(), &parsed{r: t.repository, trust: asStored}})
	}
}

// choose finds the node that is shown as the root. It reads the journal, the super root and, for
// a checkpoint, the nodes on the path to it.
func (t *treeReader) choose(ctx context.Context, param map[string]string) (err error) {
	super := param[superParam] == "true"
	if super && t.checkpoint != "" {
		return fmt.Errorf("oak: expected one of %s and %s: %w", superParam, checkpointParam, fs.ErrInvalid)
	}
	if t.shown, err = t.revision(ctx, param[revisionParam]); err != nil {
		return err
	}
	t.super = t.shown.Revision
	if t.top = t.super; super {
		return nil
	}
	if t.checkpoint == "" {
		return t.down(ctx, rootName)
	}
	err = t.down(ctx, checkpointsName, t.checkpoint, rootName)
	if errors.Is(err, errNoChild) {
		return fmt.Errorf("oak: checkpoint %q of revision %s: %w", t.checkpoint, t.shown.Revision, fs.ErrNotExist)
	}
	return err
}

// errNoChild means that a node on the path to the shown root does not exist.
var errNoChild = errors.New("no such child")

// down descends from the top to a child of it, then to a child of that, and so on.
func (t *treeReader) down(ctx context.Context, names ...string) error {
	var missing string
	var err error
	t.top, missing, err = t.shape.Down(ctx, t.top, names...)
	if missing != "" {
		c := t.treeFault(noRoot, t.top.Segment, 0, "revision %s: expected a super root with a child %q, found none", t.shown.Revision, missing)
		c.Err = errNoChild
		return c
	}
	return t.corrupt(err, "")
}

// revision finds the line of the journal to be shown; by default that of Oak's head.
func (t *treeReader) revision(ctx context.Context, said string) (repo.Entry, error) {
	if said != "" {
		if rev, err := repo.ParseRevision(said); err == nil {
			return repo.Entry{Revision: rev, Millis: -1}, nil
		}
	}
	if t.single {
		return repo.Entry{}, fmt.Errorf("oak: %s: a single tar has no journal: its tree needs %s=UUID:NUMBER: %w", t.name, revisionParam, errors.ErrUnsupported)
	}
	if said == "" {
		h, err := t.head(ctx)
		return h.Entry, t.journalFault(err)
	}
	limit, err := time.Parse(time.RFC3339, said)
	if err != nil {
		return repo.Entry{}, fmt.Errorf("oak: %s: expected UUID:NUMBER, or a time as 2006-01-02T15:04:05Z, found %.80q: %w", revisionParam, said, fs.ErrInvalid)
	}
	return t.revisionAt(ctx, limit)
}

// revisionAt finds the newest revision that exists and is not after a time. The time of a line
// without one is not known.
func (t *treeReader) revisionAt(ctx context.Context, limit time.Time) (repo.Entry, error) {
	if t.list.Journal == nil {
		_, err := t.head(ctx)
		return repo.Entry{}, t.journalFault(err)
	}
	for e, err := range t.revisions(ctx) {
		if err != nil {
			return repo.Entry{}, err
		}
		if _, _, there := t.locate(e.Segment); there && e.Millis >= 0 && e.Millis <= limit.UnixMilli() {
			return e, nil
		}
	}
	return repo.Entry{}, fmt.Errorf("oak: %s: no revision at or before %s: %w", t.list.Path(repo.Journal), limit.Format(time.RFC3339), fs.ErrNotExist)
}

// journalFault converts an error about a journal to a CorruptError.
func (t *treeReader) journalFault(err error) error {
	if e, ok := errors.AsType[*repo.Error](err); ok {
		code := format.Dangling
		if t.list.Journal == nil {
			code = format.MissingIndex
		}
		return &format.CorruptError{Format: "oak", Problem: format.Problem{
			Code: code, Class: noHead, Severity: format.Error, Volume: t.list.Path(repo.Journal), Off: e.Offset, Message: e.What,
		}}
	}
	return err
}

// Classes of faults of a tree.
const (
	noHead         = "no-head"         // the journal leads nowhere
	headRewound    = "head-rewound"    // it leads to an older revision than it should
	noRoot         = "no-root"         // a revision that is not a super root
	missingSegment = "missing-segment" // that a record refers to
	badRecord      = "bad-record"
	badChecksum    = "checksum"      // of a segment
	treeLimit      = "tree-limit"    // too large for untrusted data
	externalBlob   = "external-blob" // content that is in a data store
)

// treeFault makes a CorruptError about a place in a segment.
func (r *repository) treeFault(class string, id segment.ID, off int64, msg string, args ...any) *format.CorruptError {
	c := fault(class, r.list.Dir, -1, msg, args...)
	if tar, e, ok := r.locate(id); ok {
		c.Volume, c.Off = tar.lies(e.Pos)
		c.Off += max(off, 0)
	}
	return c
}

// damage converts an error about a damaged part of the tree to a CorruptError. It returns nil for
// any other error, of the store or the caller.
func (r *repository) damage(err error) *format.CorruptError {
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return c
	}
	e, ok := errors.AsType[*segment.Error](err)
	if !ok {
		return nil
	}
	class := badRecord
	if e.Class == segment.Limit {
		class = treeLimit
	} else if e.Class == segment.Altered {
		class = badChecksum
	} else if _, _, there := r.locate(e.Segment); !there {
		class = missingSegment
	}
	return r.treeFault(class, e.Segment, e.Off, "%v", e)
}

// corrupt converts damage to an error about an entry. It returns other errors unchanged.
func (r *repository) corrupt(err error, entry string) error {
	c := r.damage(err)
	if c == nil {
		return err
	}
	about := *c
	about.Entry, about.HasEntry = entry, entry != ""
	return &about
}

// lost records that damage hides an entry. It returns other errors.
func (t *treeReader) lost(e *format.Entry, err error) error {
	err = t.corrupt(err, e.Name)
	c, ok := err.(*format.CorruptError)
	if !ok {
		return err
	}
	e.Fault, e.Ref = &c.Problem, nil
	return nil
}
