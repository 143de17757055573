package catalog

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/holdall/holdall/format"
)

// This file records what happens to files and archives after packing:
// originals are removed, files are deleted, archives are rewritten.

// Mark records what became of the originals of files. An original that was
// removed stays removed. If an archive is rewritten at the same time, the new
// one takes over the records, or it is in the catalogue already when Mark
// returns.
func (c *Catalog) Mark(ctx context.Context, all []Location, o Original) error {
	set, only := Location{Original: o}.marks(), ""
	if o != OriginalLeft {
		only = " AND kind & 1024 = 0"
	}
	return c.db.write(ctx, nil, func(s session) error {
		if o == OriginalLeaving {
			if err := decide(ctx, s); err != nil {
				return err
			}
		}
		for _, l := range all {
			if _, err := s.exec(ctx, "UPDATE locations SET kind = (kind & ~1536) | $3 WHERE archive = $2 AND "+s.dialect().is("path", "=", "$1")+only, blob(l.Path), l.Archive, set); err != nil {
				return err
			}
		}
		return nil
	})
}

// An Identity distinguishes a catalogue from others, and from its own copies of
// an earlier time.
type Identity struct {
	ID        string
	Deletions int64  // transactions that decided to remove originals or archives
	Token     string // random, of the last of them
}

func (c *Catalog) Identity(ctx context.Context) (Identity, error) {
	return readOne(ctx, c, "identity", func(i *Identity) []any { return []any{&i.ID, &i.Deletions, &i.Token} }, "SELECT id, deletions, token FROM identity")
}

// decide begins a transaction that decides to remove something.
func decide(ctx context.Context, s session) error {
	_, err := s.exec(ctx, s.dialect().lockPublishing)
	if err == nil {
		_, err = s.exec(ctx, "UPDATE identity SET deletions = deletions + 1, token = $1", rand.Text())
	}
	return err
}

// Markers is what the names of markers begin with. A marker is a small object
// that shows the last deletion of a catalogue to older copies of it.
const Markers = ".holdall-catalogue-"

func (i Identity) Marker() string {
	return fmt.Sprintf("%s%s/%016d-%s", Markers, i.ID, i.Deletions, i.Token)
}

var marker = regexp.MustCompile(regexp.QuoteMeta(Markers) + "([0-9a-f]{32})/([0-9]{16})-([0-9A-Z]{26})$")

// ParseMarker returns what a name that ends like that of a marker has. Such an
// object is not one of the user's.
func ParseMarker(name string) (i Identity, ok bool) {
	m := marker.FindStringSubmatch(name)
	if m == nil {
		return i, false
	}
	i.ID, i.Token = m[1], m[3]
	i.Deletions, _ = strconv.ParseInt(m[2], 10, 64) // it has digits only
	return i, true
}

func IsMarker(name string) bool { return marker.MatchString(name) }

// Listed records what a listing of all originals of archives found: which are
// missing or unseen among those of changed. It becomes the listing of
// Archive.Listed, unless a newer one than before is. Archives after the last one
// may have originals that were not there yet.
func (c *Catalog) Listed(ctx context.Context, roots Roots, last int64, at, before time.Time, changed iter.Seq2[Location, error]) error {
	return c.db.write(ctx, nil, func(s session) error {
		for l, err := range changed {
			if err == nil {
				_, err = s.exec(ctx, "UPDATE locations SET kind = (kind & ~6144) | $3 WHERE "+s.dialect().is("path", "=", "$1")+" AND archive IN (SELECT id FROM archives WHERE roots = $2)", blob(l.Path), blob(roots), l.marks())
			}
			if err != nil {
				return err
			}
		}
		_, err := s.exec(ctx, "UPDATE archives SET listed = $3 WHERE roots = $1 AND id <= $2 AND listed <= $4", blob(roots), last, at.UnixMicro(), before.UnixMicro())
		return err
	})
}

// Every yields all locations of all archives, including deleted ones, in byte
// order of the paths. For each path the newest comes first.
func (c *Catalog) Every(ctx context.Context) iter.Seq2[Location, error] {
	return func(yield func(Location, error) bool) {
		last, archive := "", int64(0)
		for l, err := range paged(ctx, c, (*Location).columns, behindScoped(),
			"SELECT "+locationColumns+" FROM locations AS l WHERE "+c.db.dialect().is("l.path", ">=", "$1")+" ORDER BY "+c.db.dialect().order("l.path")+", l.archive DESC LIMIT CAST($2 AS bigint)", blob("")) {
			if err == nil && archive > 0 && l.Path == last && l.Archive >= archive { // the same row, read twice
				continue
			}
			last, archive = l.Path, l.Archive
			if !yield(l, err) {
				return
			}
		}
	}
}

// Delete marks files as deleted in the archives with the given roots, or in
// all archives if roots is empty. Readers do not see them any more, but their
// bytes stay until the archives are rewritten. Plans treat an object with such
// a path as new. Archives added after the one whose ID is last keep their
// files; a last of 0 sets no such limit. Delete returns how many of the paths
// were visible before.
func (c *Catalog) Delete(ctx context.Context, roots Roots, paths []string, last int64) (n int64, err error) {
	last = cmp.Or(last, math.MaxInt64)
	return write(ctx, c, nil, func(s session) (n int64, err error) {
		for _, path := range paths {
			changed, err := rowsOf(ctx, s, func(m *memberOf) []any { return []any{&m.archive, &m.size} }, "UPDATE locations SET kind = kind | 256 WHERE "+s.dialect().is("path", "=", "$1")+" AND kind & 256 = 0 AND archive <= $4 AND (CAST($3 AS bigint) = 1 OR archive IN (SELECT id FROM archives WHERE roots = $2)) RETURNING archive, size",
				blob(path), blob(roots), boolean(roots == ""), last)
			if err != nil {
				return 0, err
			}
			if len(changed) > 0 {
				n++
			}
			for _, m := range changed {
				if err := m.uncount(ctx, s, path); err != nil {
					return 0, err
				}
			}
			// Plans skip recorded members that are packed, so remove these.
			members, err := rowsOf(ctx, s, func(m *memberOf) []any { return []any{&m.chunk, &m.size} }, `SELECT m.chunk, m.size FROM members AS m
				WHERE m.chunk IN (SELECT id FROM chunks WHERE state = $3 AND first <= $1 AND last >= $1 AND archive <= $6 AND (CAST($4 AS bigint) = 1 OR archive IN (SELECT id FROM archives WHERE roots = $2))) AND `+s.dialect().is("m.path", "=", "$1")+` AND coalesce(m.outcome, $5) = $5`,
				blob(path), blob(roots), int(ChunkDone), boolean(roots == ""), int(Packed), last)
			if err != nil {
				return 0, err
			}
			for _, m := range members {
				if err := m.forget(ctx, s, path); err != nil {
					return 0, err
				}
			}
		}
		return n, nil
	})
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A memberOf is a member of a chunk, or an archive's file that was a member of
// one.
type memberOf struct{ chunk, archive, size int64 }

// uncount subtracts an archive's file from the counts of its chunk, if the
// member has no row.
func (m memberOf) uncount(ctx context.Context, s session, path string) error {
	_, err := s.exec(ctx, `UPDATE chunks SET objects = objects - 1, bytes = bytes - $3 WHERE archive = $2 AND archive > 0 AND from_locations = 1 AND first <= $1 AND last >= $1
		AND NOT EXISTS (SELECT 1 FROM members AS m WHERE m.chunk = chunks.id AND `+s.dialect().is("m.path", "=", "$1")+`)`, blob(path), m.archive, m.size)
	return err
}

func (m memberOf) forget(ctx context.Context, s session, path string) error {
	_, err := s.exec(ctx, "DELETE FROM members WHERE chunk = $2 AND "+s.dialect().is("path", "=", "$1"), blob(path), m.chunk)
	if err == nil {
		_, err = s.exec(ctx, "UPDATE chunks SET objects = objects - 1, bytes = bytes - $2 WHERE id = $1", m.chunk, m.size)
	}
	return err
}

// Spare records, with the current time, that no file of the dead archives is
// visible, unless that is recorded already. For the alive archives it clears
// that record.
func (c *Catalog) Spare(ctx context.Context, dead, alive []int64) error {
	if len(dead)+len(alive) == 0 {
		return nil
	}
	return c.db.write(ctx, nil, func(s session) error {
		_, err := s.exec(ctx, "UPDATE archives SET dead = "+s.dialect().clock+" WHERE dead = 0 AND "+s.dialect().among("id", "$2"), c.db.clock(), dead)
		if err == nil {
			_, err = s.exec(ctx, "UPDATE archives SET dead = 0 WHERE "+s.dialect().among("id", "$1"), alive)
		}
		return err
	})
}

// Drop removes an archive from the catalogue after none of its files was
// visible for a while, and records that the archive itself is to be removed.
// If one of its files is visible now, Drop returns an error and changes
// nothing.
func (c *Catalog) Drop(ctx context.Context, id int64, after time.Duration) error {
	return c.db.write(ctx, nil, func(s session) error {
		if err := decide(ctx, s); err != nil {
			return err
		}
		type bounds struct{ first, last, address, roots string }
		b, err := one(ctx, s, func(b *bounds) []any {
			return []any{(*blob)(&b.first), (*blob)(&b.last), (*blob)(&b.address), (*blob)(&b.roots)}
		}, Absent(fmt.Sprintf("archive %d", id)), "SELECT first, last, address, roots FROM archives WHERE id = $2 AND dead > 0 AND dead <= "+s.dialect().clock+" - $3", c.db.clock(), id, after.Microseconds())
		if err != nil {
			return err
		}
		// A file is visible if it is the newest among the archives with these roots.
		seen, err := rowsOf(ctx, s, pathIn, `SELECT l.path FROM locations AS l WHERE l.archive = $1 AND l.kind & 256 = 0 AND `+s.dialect().is("l.path", ">=", "$2")+` AND `+s.dialect().is("l.path", "<=", "$3")+`
			AND NOT EXISTS (SELECT 1 FROM locations AS n JOIN archives AS a ON a.id = n.archive WHERE `+s.dialect().is("n.path", "=", "l.path")+` AND n.archive > l.archive AND n.kind & 256 = 0 AND a.roots = $4) LIMIT 1`, id, blob(b.first), blob(b.last), blob(b.roots))
		if err == nil && len(seen) > 0 {
			err = fmt.Errorf("%s: still has a current file, %s", format.Escape(b.address), format.Escape(seen[0]))
		}
		if err == nil {
			_, err = s.exec(ctx, "INSERT INTO removals (address, size, version) SELECT address, size, version FROM archives WHERE id = $1", id)
		}
		// By now other chunks have its planned members, except those that were left
		// out.
		if err == nil {
			_, err = s.exec(ctx, "DELETE FROM members WHERE chunk IN (SELECT id FROM chunks WHERE archive = $1) AND coalesce(outcome, $2) = $2", id, int(Packed))
		}
		if err == nil {
			_, err = s.exec(ctx, "UPDATE chunks SET objects = vanished + changed + set_aside + damaged, bytes = 0, proven = '', from_locations = 0 WHERE archive = $1", id)
		}
		if err == nil {
			_, err = forget(ctx, s, b.address)
		}
		return err
	})
}

// A Removal is an archive that is no longer in the catalogue and is to be
// removed: the version that was recorded, not another one that may have
// replaced it.
type Removal struct {
	id      int64
	Address string
	Size    int64
	Version string
}

func (r *Removal) columns() []any {
	return []any{&r.id, (*blob)(&r.Address), &r.Size, (*blob)(&r.Version)}
}

func (c *Catalog) Removals(ctx context.Context) ([]Removal, error) {
	return read(ctx, c, (*Removal).columns, "SELECT id, address, size, version FROM removals ORDER BY id")
}

func (c *Catalog) Removed(ctx context.Context, r Removal) error {
	return c.db.write(ctx, nil, func(s session) error {
		_, err := s.exec(ctx, "DELETE FROM removals WHERE id = $1", r.id)
		return err
	})
}

// SetRoots records where the archives of a plan were packed from. Older
// versions of holdall did not record this.
func (c *Catalog) SetRoots(ctx context.Context, plan int64, roots Roots) error {
	lacking, err := read(ctx, c, numberIn, "SELECT a.id FROM archives AS a JOIN chunks AS k ON k.archive = a.id WHERE k.plan = $1 AND a.roots = $2 LIMIT 1", plan, blob(""))
	if err != nil || len(lacking) == 0 {
		return err
	}
	return c.db.write(ctx, nil, func(s session) error {
		_, err := s.exec(ctx, "UPDATE archives SET roots = $2 WHERE roots = $3 AND id IN (SELECT archive FROM chunks WHERE plan = $1)", plan, blob(roots), blob(""))
		return err
	})
}

// Elsewhere is the outcome that Finish gets for a member of a chunk that
// rewrites packed files, if the file has since been deleted or packed in
// another archive. It is no longer a member of the chunk.
const Elsewhere = outcomes

// supersede copies the recorded marks and attributes of files to the archive
// of a chunk that rewrote them. Files that were replaced or deleted since are
// marked as deleted from the start.
func supersede(ctx context.Context, s session, k Chunk, a Archive) error {
	if !k.Rewrites || a.ID == 0 {
		return nil
	}
	// The archive that had a file before is the newest with the same roots.
	wasOf := "(SELECT max(o.archive) FROM locations AS o JOIN archives AS b ON b.id = o.archive WHERE " + s.dialect().is("o.path", "=", "l.path") + " AND o.archive < $1 AND b.roots = $4)"
	packed := " WHERE l.archive = $1 AND " + s.dialect().is("l.path", ">=", "$2") + " AND " + s.dialect().is("l.path", "<=", "$3")
	args := []any{a.ID, blob(k.first), blob(k.last), blob(a.Roots)}
	_, err := s.exec(ctx, `UPDATE locations AS l SET object = coalesce(object, (SELECT n.object FROM locations AS n WHERE `+s.dialect().is("n.path", "=", "l.path")+` AND n.archive = `+wasOf+`)),
		kind = kind | coalesce((SELECT n.kind & 7680 FROM locations AS n WHERE `+s.dialect().is("n.path", "=", "l.path")+` AND n.archive = `+wasOf+`), 0)`+packed, args...)
	if err == nil {
		_, err = s.exec(ctx, "UPDATE archives SET listed = coalesce((SELECT CASE WHEN min(b.listed) = 0 THEN 0 ELSE max(b.listed) END FROM locations AS l JOIN archives AS b ON b.id = "+wasOf+packed+"), 0) WHERE id = $1", args...)
	}
	if err != nil {
		return err
	}
	stale, err := rowsOf(ctx, s, pathIn, "SELECT l.path FROM locations AS l"+packed+` AND NOT EXISTS (SELECT 1 FROM locations AS n
		WHERE `+s.dialect().is("n.path", "=", "l.path")+` AND n.kind & 256 = 0 AND n.size = l.size AND n.archive = `+wasOf+`
			AND (n.object = l.object OR n.object IS NULL AND (n.digest IS NULL OR l.digest IS NULL OR n.digest = l.digest)))`, args...)
	for _, path := range stale {
		if err == nil {
			_, err = s.exec(ctx, "UPDATE locations SET kind = kind | 256 WHERE archive = $2 AND "+s.dialect().is("path", "=", "$1"), blob(path), a.ID)
		}
	}
	return err
}

// Marks counts the files of an archive that were deleted, and those whose
// originals were removed.
type Marks struct{ Gone, Left int64 }

// Marks counts the marked files of all archives. It reads all locations.
func (c *Catalog) Marks(ctx context.Context) (map[int64]Marks, error) {
	type sum struct{ archive, marks, n int64 }
	all, err := read(ctx, c, func(s *sum) []any { return []any{&s.archive, &s.marks, &s.n} },
		"SELECT archive, kind / 256, count(*) FROM locations WHERE kind >= 256 GROUP BY archive, kind / 256")
	found := map[int64]Marks{}
	for _, s := range all {
		m := found[s.archive]
		if s.marks&1 != 0 {
			m.Gone += s.n
		}
		if s.marks&4 != 0 {
			m.Left += s.n
		}
		found[s.archive] = m
	}
	return found, err
}
