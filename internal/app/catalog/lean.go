package catalog

import (
	"context"
	"slices"
	"strings"
)

// Without this file, a packed member would keep two rows forever: its own and
// the archive's location. If the location has everything that planning again
// needs, the member's own row is removed when its chunk is done.

// A pathRange is the paths in [from, before). If before is empty, there is no upper
// bound.
type pathRange struct {
	origin       int
	from, before string
}

// spans returns the ranges of paths between first and last that belong to the
// archive's roots. It returns none if the roots are unknown or ambiguous, or if
// there are too many ranges.
func (a Archive) spans(first, last string) (all []pathRange) {
	const most = 16
	roots := a.Roots.All()
	for i, r := range roots {
		if s := (pathRange{i, r.Prefix, After(r.Prefix)}); s.from <= last && (s.before == "" || s.before > first) {
			if all = append(all, s); len(all) > most {
				return nil
			}
		}
	}
	for _, s := range all {
		// A path that two roots match could be from either.
		if slices.ContainsFunc(all, func(t pathRange) bool { return s.origin != t.origin && strings.HasPrefix(s.from, t.from) }) {
			return nil
		}
	}
	return all
}

// crowded limits the use of locations in place of members. An archive's files
// may lie among at most this many times as many files of other archives,
// because a reader has to skip those.
const crowded = 4

// leave removes the rows of members of chunks that are about to be done. It
// removes a row if the archive's location has the same size and version, and if
// the member was compared with the same checksum as most members.
func leave(ctx context.Context, s session, of []int64, a Archive) error {
	type bounds struct{ first, last string }
	b, err := one(ctx, s, func(b *bounds) []any { return []any{(*blob)(&b.first), (*blob)(&b.last)} }, nil, "SELECT first, last FROM archives WHERE id = $1", a.ID)
	spans := a.spans(b.first, b.last)
	if err != nil || len(spans) == 0 {
		return err
	}
	among, err := one(ctx, s, numberIn, nil, "SELECT CAST(coalesce(sum(entries), 0) AS bigint) FROM archives WHERE first <= $2 AND last >= $1", blob(b.first), blob(b.last))
	if err != nil || among > crowded*a.Entries {
		return err
	}
	left := int64(0)
	for _, span := range spans {
		n, err := s.exec(ctx, `DELETE FROM members AS m WHERE `+s.dialect().among("m.chunk", "$1")+` AND coalesce(m.outcome, $2) = $2 AND m.origin = $4 AND m.note IS NULL AND m.proof IS NULL
			AND m.path >= $5 AND (CAST($7 AS bigint) = 1 OR m.path < $6)
			AND EXISTS (SELECT 1 FROM `+s.dialect().listed+` WHERE l.path = m.path AND l.size = m.size AND `+s.dialect().etag+` = m.version)`,
			of, int(Packed), a.ID, span.origin, blob(span.from), blob(span.before), boolean(span.before == ""))
		if err != nil {
			return err
		}
		left += n
	}
	if left > 0 {
		_, err = s.exec(ctx, "UPDATE chunks SET from_locations = 1 WHERE "+s.dialect().among("id", "$1"), of)
	}
	return err
}

// A lean chunk has members without rows.
type lean struct {
	chunk       int64
	first, last string
	in          Archive
}

const leanColumns = "SELECT k.id, k.first, k.last, a.id, a.roots FROM chunks AS k JOIN archives AS a ON a.id = k.archive WHERE k.from_locations = 1 AND "

func (l *lean) columns() []any {
	return []any{&l.chunk, (*blob)(&l.first), (*blob)(&l.last), &l.in.ID, (*blob)(&l.in.Roots)}
}

// withLocations merges rows, the first n members of a chunk from a path on,
// with the members that only locations have.
func withLocations(ctx context.Context, s session, chunk int64, from string, n int, rows []Member) ([]Member, error) {
	of, err := rowsOf(ctx, s, (*lean).columns, leanColumns+"k.id = $1", chunk)
	if err != nil || len(of) == 0 {
		return rows, err
	}
	k := of[0]
	if _, err := s.exec(ctx, s.dialect().inOrder); err != nil {
		return rows, err
	}
	located, err := rowsOf(ctx, s, (*Location).columns, "SELECT "+locationColumns+` FROM locations AS l
		WHERE l.archive = $3 AND `+s.dialect().is("l.path", ">=", "$1")+` AND `+s.dialect().is("l.path", "<=", "$4")+` AND `+there+` ORDER BY `+s.dialect().order("l.path")+` LIMIT CAST($2 AS bigint)`, blob(max(from, k.first)), n, k.in.ID, blob(k.last))
	if err != nil || len(located) == 0 {
		return rows, err
	}
	spans := k.in.spans(located[0].Path, located[len(located)-1].Path)
	all := make([]Member, 0, min(n, len(rows)+len(located)))
	for len(all) < n && len(rows)+len(located) > 0 {
		if len(located) == 0 || len(rows) > 0 && rows[0].Path <= located[0].Path {
			if len(located) > 0 && rows[0].Path == located[0].Path {
				rows[0].Modified, located = located[0].Modified, located[1:]
			}
			all, rows = append(all, rows[0]), rows[1:]
			continue
		}
		m := Member{Path: located[0].Path, Size: located[0].Size, Version: located[0].ETag, Modified: located[0].Modified, Outcome: Packed}
		if i := slices.IndexFunc(spans, func(s pathRange) bool { return strings.HasPrefix(m.Path, s.from) }); i >= 0 {
			m.Origin = spans[i].origin
		}
		all, located = append(all, m), located[1:]
	}
	return all, nil
}

// remember restores the rows of members that only an archive has, before the
// archive is removed from the catalogue.
func remember(ctx context.Context, s session, a Archive) error {
	of, err := rowsOf(ctx, s, (*lean).columns, leanColumns+"a.id = $1", a.ID)
	for _, k := range of {
		for _, span := range k.in.spans(k.first, k.last) {
			if err != nil {
				return err
			}
			_, err = s.exec(ctx, `INSERT INTO members (chunk, path, origin, size, version) SELECT CAST($2 AS bigint), l.path, CAST($3 AS int), l.size, `+s.dialect().etag+` FROM locations AS l
				WHERE l.archive = $1 AND `+s.dialect().is("l.path", ">=", "$4")+` AND `+s.dialect().is("l.path", "<=", "$5")+` AND l.path >= $6 AND (CAST($8 AS bigint) = 1 OR l.path < $7) AND `+there+`
					AND NOT EXISTS (SELECT 1 FROM members AS m WHERE m.chunk = $2 AND `+s.dialect().is("m.path", "=", "l.path")+`) ORDER BY `+s.dialect().order("l.path"),
				a.ID, k.chunk, span.origin, blob(k.first), blob(k.last), blob(span.from), blob(span.before), boolean(span.before == ""))
		}
		if err == nil {
			_, err = s.exec(ctx, "UPDATE chunks SET from_locations = 0 WHERE id = $1", k.chunk)
		}
	}
	return err
}
