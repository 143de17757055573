package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/store"
)

// Directory reports problems of names, letters and the manifest, and segments that are in two tars.
// It returns an error only if the source fails.
func (a *Audit) Directory(ctx context.Context, report func(Problem)) error {
	t := newTeller(report)
	defer t.end()
	l := a.src.Listing
	for _, i := range l.Ignored {
		if i.TooLarge {
			t.about(NumberTooLarge, Error, i.Name, -1, "name: number with more than 31 bits")
			continue
		}
		t.about(IgnoredTar, Warning, i.Name, -1, "name: expected five digits or more and a letter")
	}
	for _, c := range l.Clashes() {
		t.about(NameClash, Error, c[0].Name, -1, "name: number %d and letter %c, like %s", c[0].Number, c[0].Letter, c[1].Name)
	}
	for _, f := range l.Tars {
		if f.Letterless() {
			t.about(NoLetter, Warning, f.Name, -1, "name: no letter")
		}
	}
	a.letters(t)
	if n := len(l.Backups); n > 0 {
		size := int64(0)
		for _, b := range l.Backups {
			size += b.Size
		}
		t.about(Leftovers, Note, l.Backups[0].Name, -1, "%d files of %d bytes left by recoveries; this is the first", n, size)
	}
	if err := a.manifest(ctx, t); err != nil {
		return err
	}
	a.duplicates(t)
	return nil
}

func (a *Audit) letters(t *teller) {
	for _, letters := range a.numbers {
		newest := letters[0]
		keep := counting(letters)
		switch {
		case len(letters) == 1 || letters[1].Letter == newest.Letter:
		case a.src.Written && len(keep) == 1: // a cleanup is at work
		case newest.t == nil && len(keep) == 1:
			t.about(Letters, Error, newest.Name, -1,
				"no valid index (%s), but %s has one: opened for writing, Oak shows %s and deletes %s; opened read-only, it shows what can be recovered of %s; the heads may differ",
				newest.none, keep[0].Name, keep[0].Name, names(letters, keep[0]), newest.Name)
		case newest.t == nil:
			t.about(Letters, Error, newest.Name, -1,
				"neither it nor %s has a valid index: opened for writing, Oak recovers all into one tar; opened read-only, it shows what can be recovered of %s",
				names(letters, newest), newest.Name)
		default:
			only := 0
			for _, l := range letters[1:] {
				for _, e := range l.All() {
					if _, ok := newest.Find(e.ID); !ok {
						only++
					}
				}
			}
			lost := ""
			if only > 0 {
				lost = fmt.Sprintf(", with %d segments that are not in %s", only, newest.Name)
			}
			t.about(Letters, Warning, newest.Name, -1, "Oak shows it, and deletes %s when opened for writing%s", names(letters, keep[0]), lost)
		}
	}
}

func names(letters []*unit, keep *unit) string {
	var all []string
	for _, l := range letters {
		if l != keep {
			all = append(all, l.Name)
		}
	}
	return strings.Join(all, " and ")
}

// open opens a file that may be missing, and reports what is wrong with it. It returns nil if
// there is no such file.
func (a *Audit) open(ctx context.Context, name string) (store.Object, error) {
	obj, err := a.src.File(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return obj, err
}

func (a *Audit) manifest(ctx context.Context, t *teller) error {
	var obj store.Object
	var err error
	if a.src.Listing.Manifest != nil {
		obj, err = a.open(ctx, repo.Manifest)
	}
	if err != nil {
		return err
	}
	if obj == nil {
		if len(a.tars) > 0 {
			t.about(BadManifest, Error, repo.Manifest, -1, "missing: expected beside tars")
		}
		return nil
	}
	defer obj.Close()
	p, err := repo.ReadManifest(ctx, obj)
	if e, ok := errors.AsType[*repo.Error](err); ok {
		t.about(BadManifest, Error, repo.Manifest, e.Offset, "%s", e.What)
		return nil
	}
	switch {
	case err != nil:
		return err
	case p.Assumed:
		t.about(BadManifest, Warning, repo.Manifest, -1, "store.version: expected a number, found none: Oak assumes 2")
	case p.Version == 1:
		t.about(OldManifest, Note, repo.Manifest, -1, "store.version: 1, of Oak 1.6")
	}
	return nil
}

func (a *Audit) duplicates(t *teller) {
	rows := a.known.rows
	for i := 1; i < len(rows); i++ {
		if rows[i-1].compare(rows[i]) != 0 {
			continue
		}
		newer, older := a.tars[rows[i-1].tar], a.tars[rows[i].tar]
		n, o := newer.At(int(rows[i-1].entry)), older.At(int(rows[i].entry))
		severity, what := Warning, "with the same length"
		if n.Len != o.Len {
			severity, what = Error, fmt.Sprintf("with %d bytes, here %d", n.Len, o.Len)
		}
		t.of(DuplicateTars, severity, older.Name, o.Pos, o.ID, "%s also has a segment with this id, %s", newer.Name, what)
	}
}
