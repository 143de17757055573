package oak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/newstore"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/oak/internal/transfer"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// BackupOptions are options of a backup. The zero value makes a plain backup.
type BackupOptions struct {
	// Check reads the contents of the other store, and copies damaged segments again.
	Check bool
	// Restore is for a store that is to become a copy of a backup. The store may have any origin.
	// Its journal is kept as a backup, and nothing is removed from it.
	Restore bool
	// DryRun means that the other store discards its writes. So its new state is not checked, and
	// no garbage is removed from it.
	DryRun bool
	// Progress, if not nil, is called as segments are copied.
	Progress func(segments, bytes int64)
}

type BackedUp struct {
	Head      string   `json:"head"`      // of both
	Revisions int      `json:"revisions"` // in the journal
	Segments  int64    `json:"segments"`  // that were copied
	Bytes     int64    `json:"bytes"`     // of the files that were written
	Known     int64    `json:"known"`     // segments that were there
	Files     []string `json:"files"`     // that were written
	Freed     int64    `json:"freed"`     // bytes of garbage that the store no longer has
	Aside     []string `json:"aside"`     // tars that were damaged or written again, and are TAR.bak now
	Journal   string   `json:"journal,omitempty"`
	Notes     []string `json:"notes"`
}

// Backup copies the newest revision of the store into the store name of to. Other programs may
// write to the store while it is copied. Backup copies only segments that the other store does
// not have, after comparing them with their checksums, and writes them as tars of the next
// numbers. So the other store is complete at any time: it has the old head until its journal is
// replaced. The next backup resumes an interrupted one. The caller must hold the lock of the
// other store.
//
// Garbage that was removed from the store after a compaction is removed from the backup too.
func (s *Store) Backup(ctx context.Context, to store.Store, name string, o BackupOptions) (BackedUp, error) {
	c := &copying{s: s, o: o, st: to, said: BackedUp{Files: []string{}, Aside: []string{}, Notes: []string{}}}
	st, release, err := place(ctx, to, name)
	if err != nil {
		return c.said, err
	}
	c.st, c.blobs = st, st != to
	err = errors.Join(c.run(ctx, name), release())
	if c.d != nil {
		err = errors.Join(err, c.d.close())
	}
	return c.said, err
}

type copying struct {
	s    *Store
	o    BackupOptions
	st   store.Store
	list repo.Listing         // of the other store
	d    *repository          // the other store; nil if it is empty
	bad  map[*segmentTar]bool // tars that are not used
	all  []segment.ID         // of the store, in the order in which they were written
	head repo.Head
	said BackedUp

	blobs bool // of what is written
}

func (c *copying) run(ctx context.Context, name string) (err error) {
	if c.s.r.single {
		return refuse("a backup needs the whole store; a single tar has no journal")
	}
	if c.head, err = c.s.r.head(ctx); err != nil {
		return err
	}
	if c.head.Rewound > 0 {
		return refuse("the newest %d revisions of the journal are lost: 'holdall oak check' finds an intact one", c.head.Rewound)
	}
	c.said.Head = c.head.Revision.String()
	if err := c.open(ctx, name); err != nil {
		return err
	}
	manifest, err := c.s.r.wholeFile(ctx, repo.Manifest, maxLog)
	if err == nil && c.list.Manifest == nil {
		err = c.file(ctx, repo.Manifest, manifest)
	}
	if err != nil {
		return err
	}
	log, err := c.s.gcLog(ctx)
	if err == nil {
		err = c.order(ctx, log)
	}
	if err == nil {
		err = c.segments(ctx)
	}
	if err == nil {
		err = c.file(ctx, repo.GCLog, log)
	}
	if err == nil {
		err = c.journal(ctx)
	}
	if err == nil {
		err = c.setAside(ctx)
	}
	if err == nil && !c.o.DryRun {
		err = c.proof(ctx, name)
	}
	return err
}

// open opens the other store, if it exists. A store of another origin is an error.
func (c *copying) open(ctx context.Context, name string) (err error) {
	c.list.Dir = repo.Dir(name)
	if c.d, err = other(ctx, c.st, name, format.Limits{}); err != nil || c.d == nil {
		return err
	}
	switch c.list = c.d.list; {
	case c.list.Guessed:
		return fmt.Errorf("oak: %s: cannot copy to a place that cannot be listed: %w", name, errors.ErrUnsupported)
	case c.list.Blobs != nil && !c.blobs && !c.o.DryRun:
		return fmt.Errorf("oak: %s: %w", name, errBlobs)
	}
	c.bad = map[*segmentTar]bool{}
	related := len(c.d.tars) == 0 || c.o.Restore
	for _, t := range c.d.tars {
		c.bad[t] = t.file == nil
		for i := 0; i < t.Len() && !c.bad[t]; i++ {
			e := t.At(i)
			if !related {
				_, _, related = c.s.r.locate(e.ID)
			}
			if c.o.Check {
				err := t.check(ctx, e, strict)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				c.bad[t] = err != nil
			}
		}
	}
	if !related {
		return refuse("%s is a store with no segment in common: use another folder for the backup", name)
	}
	return nil
}

// has reports whether the other store has a segment in a tar that counts.
func (c *copying) has(id segment.ID) bool {
	if c.d == nil {
		return false
	}
	for _, t := range c.d.tars {
		if c.bad[t] {
			continue
		}
		if _, ok := t.Find(id); ok {
			return true
		}
	}
	return false
}

// order stops using the tars of the other store if a cleanup of Oak would delete copied segments for
// their place after those in them. Then everything is copied, and the tars are renamed like damaged
// ones. A backup that only appends segments keeps their order.
func (c *copying) order(ctx context.Context, log []byte) error {
	met, lacks, appends := map[segment.ID]bool{}, false, true
	for _, t := range slices.Backward(c.s.r.tars) {
		for _, i := range t.ByPosition() {
			id := t.At(int(i)).ID
			if !met[id] {
				has := c.has(id)
				lacks, appends = lacks || !has, appends && !(lacks && has)
				met[id], c.all = true, append(c.all, id)
			}
		}
	}
	if appends && !c.o.Restore {
		return nil
	}
	wrong, err := c.misplaced(ctx, log)
	if wrong && c.d != nil {
		for _, t := range c.d.tars {
			c.bad[t] = true
		}
		c.said.Notes = append(c.said.Notes, "everything is copied, because a cleanup of Oak depends on the order of segments")
		wrong, err = c.misplaced(ctx, log)
	}
	if wrong && c.o.Restore { // a backup is like its store
		return refuse("the segments of the backup are not in the order of a compaction, and the next cleanup of Oak would delete some that are in use: 'holdall oak compact' makes a store of it that is in order")
	}
	return err
}

// misplaced reports whether a cleanup of Oak would delete segments for their place if the missing
// ones came last. After an interrupted restore it may delete segments that are there twice, too.
func (c *copying) misplaced(ctx context.Context, log []byte) (wrong bool, err error) {
	var added []tarfile.Entry
	for _, id := range c.all {
		if _, e, _ := c.s.r.locate(id); !c.has(id) {
			e.Pos = int64(len(added)+1) * tarfile.BlockSize
			added = append(added, e)
		}
	}
	held := []audit.Held{{Index: tarfile.NewIndex(added), Read: func(ctx context.Context, e tarfile.Entry) ([]byte, error) {
		t, e, _ := c.s.r.locate(e.ID)
		return t.read(ctx, e, nil, asStored)
	}}}
	met := map[segment.ID]bool{}
	for i := 0; c.d != nil && i < len(c.d.tars); i++ {
		if t := c.d.tars[i]; !c.bad[t] {
			held = append(held, t.held())
			for _, e := range t.All() {
				wrong, met[e.ID] = wrong || c.o.Restore && met[e.ID], true
			}
		}
	}
	src := audit.Source{Listing: c.s.r.list, File: c.s.r.shownFile}
	if gc, err := repo.ParseGC(cloud.LastLine(log)); err == nil && gc.HasRoot {
		src.Roots = []segment.ID{gc.Root.Segment}
	}
	_, err = audit.Of(src, held).Needed(ctx, nil, func(p audit.Problem) { wrong = wrong || p.Class == audit.Order }, nil)
	return wrong, err
}

// segments copies the missing segments in the order in which they were written, so that each
// comes after the segments that it refers to.
func (c *copying) segments(ctx context.Context) (err error) {
	w := newstore.New(c.st, c.list.Dir, newstore.Options{First: c.list.Next()})
	defer func() { err = errors.Join(err, w.Abort()) }()
	c.said.Known = int64(len(c.all))
	c.all = slices.DeleteFunc(c.all, c.has)
	c.said.Known -= int64(len(c.all))
	m, names := &mover{r: c.s.r}, transfer.NewNames(c.s.r.name, c.s.source.Segment)
	read := func(ctx context.Context, id segment.ID, buf []byte) (segment.Finished, error) {
		f, err := m.read(ctx, id, buf)
		return f, c.s.r.corrupt(err, id.String())
	}
	err = transfer.Each(ctx, pipe.All(c.all), read, func(id segment.ID, f segment.Finished) error {
		if err := names.Describe(ctx, &f, nil); err != nil {
			return c.s.r.corrupt(c.s.r.storeFault(err), id.String())
		}
		if err := w.Write(ctx, f); err != nil || c.o.Progress == nil {
			return err
		}
		c.o.Progress(1, int64(len(f.Data)))
		return nil
	})
	if err != nil {
		return err
	}
	sum, err := w.Tars(ctx)
	c.said.Segments = sum.Segments
	c.said.Bytes += sum.Bytes
	c.said.Files = append(c.said.Files, sum.Files...)
	return err
}

// file writes a file beside the tars if its content differs from the existing one. An empty file
// is written only to replace an existing one.
func (c *copying) file(ctx context.Context, name string, content []byte) error {
	var old []byte
	if c.d != nil {
		var err error
		if old, err = c.d.wholeFile(ctx, name, maxLog); err != nil {
			return err
		}
	}
	if bytes.Equal(old, content) {
		return nil
	}
	c.wrote(name, int64(len(content)))
	return kit.WriteBytes(ctx, c.st, c.list.Path(name), content)
}

func (c *copying) wrote(name string, bytes int64) {
	c.said.Files = append(c.said.Files, c.list.Path(name))
	c.said.Bytes += bytes
}

// journal writes the lines of the journal up to the head whose revisions exist in the store.
func (c *copying) journal(ctx context.Context) error {
	var lines []repo.Entry // the newest first
	for e, err := range c.s.r.journal(ctx) {
		if _, bad := err.(*repo.Error); bad {
			continue
		}
		if err != nil {
			return err
		}
		if _, _, there := c.s.r.locate(e.Segment); there && e.Offset <= c.head.Offset {
			e.Text = ""
			lines = append(lines, e)
		}
	}
	c.said.Revisions = len(lines)
	write := func() error {
		slices.Reverse(lines)
		size, err := repo.WriteJournal(ctx, c.st, c.list.Path(repo.Journal), slices.Values(lines))
		c.wrote(repo.Journal, size)
		return err
	}
	if c.d == nil || !c.o.Restore {
		return write()
	}
	if old, err := c.d.head(ctx); err == nil && old.Rewound+old.Bad == 0 && old.Revision == c.head.Revision {
		return nil // it already leads to the head
	}
	backup, err := (&Store{r: c.d}).keepJournal(ctx)
	c.said.Journal = backup
	if err == nil {
		err = write()
	}
	return err
}

// setAside renames tars that were not used, as Oak's recovery does. The segments that the store
// needs from them have been written again. Otherwise other letters of these tars would be used
// instead.
func (c *copying) setAside(ctx context.Context) error {
	if c.d == nil {
		return nil
	}
	var names []string
	for _, t := range c.d.tars {
		if c.bad[t] {
			names = append(append(names, c.d.others(t.Number)...), t.Name)
		}
	}
	for _, name := range names {
		aside, err := keepTar(ctx, c.st, c.st, c.list.Path(name))
		if err == nil {
			err = storekit.Remove(ctx, c.st, c.list.Path(name))
		}
		if err != nil {
			return err
		}
		c.said.Aside = append(c.said.Aside, aside)
	}
	return nil
}

// proof opens the other store in its present state, and checks that its newest revision is the
// one that was copied. From a backup it removes garbage.
func (c *copying) proof(ctx context.Context, name string) (err error) {
	s, err := OpenStore(ctx, c.st, name, format.OpenOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	head, err := s.r.head(ctx)
	if err == nil && head.Revision != c.head.Revision {
		err = fmt.Errorf("oak: %s: its newest revision is %s, expected %s", name, head.Revision, c.head.Revision)
	}
	if err != nil || c.o.Restore {
		return err
	}
	const online = 2 // generations that a running Oak keeps
	x, err := s.PlanCleanup(ctx, CleanupOptions{Retain: online, keep: func(id segment.ID) bool { _, _, ok := c.s.r.locate(id); return ok }})
	if err != nil {
		if refused(err) {
			c.said.Notes = append(c.said.Notes, "garbage stays in the backup: "+err.Error())
			return nil
		}
		return err
	}
	if !x.Changes() {
		return nil
	}
	c.said.Freed = x.Before - x.After
	return x.Apply(ctx)
}
