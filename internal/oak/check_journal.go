package oak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/store"
)

// A JournalChange is what became of the journal.
type JournalChange struct {
	Head    string   `json:"head"`             // the newest revision of the new journal
	Lines   int      `json:"lines"`            // that were dropped from the old journal
	Backup  string   `json:"backup,omitempty"` // what the old journal is called now
	Notes   []string `json:"notes"`
	Changed bool     `json:"changed"`
}

// ErrNothingGood says that no revision is whole.
var ErrNothingGood = errors.New("no revision is whole")

// FixJournal drops the lines of the journal that are newer than the newest good
// revision which a check has found. The old journal is kept as a backup, which is
// written first; the new one takes its place at once. The caller has the store's lock,
// and had it before the store was opened.
func (s *Store) FixJournal(ctx context.Context, r CheckResult) (JournalChange, error) {
	if r.Good == nil {
		return JournalChange{}, fmt.Errorf("oak: %s: %w", s.r.list.Path(repo.Journal), ErrNothingGood)
	}
	c := JournalChange{Head: r.Good.Revision, Lines: r.Good.Newer, Notes: []string{}}
	if c.Lines == 0 {
		return c, nil
	}
	err := s.replaceJournal(ctx, &c, func() error { return s.shorten(ctx, repo.Journal, r.end) })
	return c, err
}

// replaceJournal keeps the journal as a backup, brings gc.log in line, and puts a new
// journal in its place. Whenever that is cut off, there is a journal, the old one or
// the new one.
func (s *Store) replaceJournal(ctx context.Context, c *JournalChange, write func() error) error {
	if s.r.list.Journal != nil {
		backup, err := s.backupName()
		if err != nil {
			return err
		}
		if err := formatkit.Copy(ctx, s.r.st, s.r.list.Path(backup), s.r.st, s.r.list.Path(repo.Journal), nil, nil); err != nil {
			return err
		}
		c.Backup = backup
	}
	err := s.trimGCLog(ctx, c)
	if err == nil {
		err = write()
	}
	c.Changed = err == nil
	return err
}

// backupName is the first that is free of the names that Oak's own recovery gives.
func (s *Store) backupName() (string, error) {
	taken := map[string]bool{}
	for _, b := range s.r.list.Backups {
		taken[b.Name] = true
	}
	for i := range 1000 {
		if name := fmt.Sprintf("%s.bak.%03d", repo.Journal, i); !taken[name] {
			return name, nil
		}
	}
	return "", fmt.Errorf("oak: %s: expected a free name for a backup, found %s.bak.000 to 999: %w", s.r.name, repo.Journal, fs.ErrExist)
}

// shorten writes a file anew, of its first n bytes.
func (s *Store) shorten(ctx context.Context, name string, n int64) error {
	o, err := s.r.st.Open(ctx, s.r.list.Path(name))
	if err != nil {
		return err
	}
	defer o.Close()
	_, err = store.Write(ctx, s.r.st, s.r.list.Path(name), func(w store.Writer) error { return store.WriteRange(ctx, w, o, 0, n) })
	return err
}

// trimGCLog drops the last lines of gc.log whose roots are in no tar. By such a line
// the next collection of a running Oak takes all that was compacted for garbage, among
// which is what an older head needs. A root that is there and newer than the head does
// no harm: only what was compacted after it is garbage then.
func (s *Store) trimGCLog(ctx context.Context, c *JournalChange) error {
	if s.r.list.GCLog == nil {
		return nil
	}
	log, err := s.r.st.Open(ctx, s.r.list.Path(repo.GCLog))
	if err != nil {
		return err
	}
	defer log.Close()
	gone, end := 0, int64(-1)
	for gc, err := range repo.GCs(ctx, log) {
		off := gc.Offset
		bad, isBad := err.(*repo.Error)
		switch {
		case isBad:
			off = bad.Offset
		case err != nil:
			return err
		default:
			if _, _, there := s.r.locate(gc.Root.Segment); there || !gc.HasRoot {
				off = -1
			}
		}
		if off < 0 {
			break
		}
		gone, end = gone+1, off
	}
	if gone == 0 {
		return nil
	}
	c.Notes = append(c.Notes, fmt.Sprintf("%d lines of gc.log are gone, whose revisions are", gone))
	return s.shorten(ctx, repo.GCLog, end)
}
