package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store"
)

// A span is the names in [from, before). If before is empty, there is no upper bound.
type span struct{ from, before string }

func unescapedSpan(from, before string) span {
	return span{naming.Unescape(from), naming.Unescape(before)}
}

func (s span) has(name string) bool { return s.from <= name && (s.before == "" || name < s.before) }

// meets reports whether spans have names in common.
func (s span) meets(o span) bool {
	return (s.before == "" || o.from < s.before) && (o.before == "" || s.from < o.before)
}

func haveName(all []span, name string) bool {
	return slices.ContainsFunc(all, func(s span) bool { return s.has(name) })
}

// without returns what some spans have besides another one.
func without(all []span, o span) (left []span) {
	for _, s := range all {
		if !s.meets(o) {
			left = append(left, s)
			continue
		}
		if s.from < o.from {
			left = append(left, span{s.from, o.from})
		}
		if o.before != "" && (s.before == "" || o.before < s.before) {
			left = append(left, span{o.before, s.before})
		}
	}
	return left
}

// spansOf returns the names that begin with any of some prefixes, in byte order; without prefixes, all names.
func spansOf(prefixes []string) (all []span) {
	if len(prefixes) == 0 {
		return []span{{}}
	}
	last := "" // of those that are kept
	for i, p := range slices.Sorted(slices.Values(prefixes)) {
		if i == 0 || !strings.HasPrefix(p, last) {
			all, last = append(all, span{p, catalog.After(p)}), p
		}
	}
	return all
}

// within returns those names of a span that are below a folder, without the folder's prefix. It is false if
// there are none.
func (s span) within(folder string) (span, bool) {
	if !s.meets(span{folder, catalog.After(folder)}) {
		return span{}, false
	}
	from, _ := strings.CutPrefix(s.from, folder)
	before, is := strings.CutPrefix(s.before, folder)
	if from == s.from && folder != "" { // it begins before the folder
		from = ""
	}
	if !is { // it ends after the folder
		before = ""
	}
	return span{from, before}, true
}

// prefix is what all names of a span begin with.
func (s span) prefix() string {
	if s.before == catalog.After(s.from) {
		return s.from
	}
	n := 0
	for n < min(len(s.from), len(s.before)) && s.from[n] == s.before[n] {
		n++
	}
	return s.from[:n]
}

// objects yields the objects of a source in some spans of its plan's names, in byte order: from its listing,
// or from the given list.
func (o origin) objects(ctx context.Context, spans []span) iter.Seq2[store.Info, error] {
	if o.list != nil {
		return o.list.infos(ctx)
	}
	return func(yield func(store.Info, error) bool) {
		for _, s := range spans {
			s, ok := s.within(o.prefix)
			begin := s.prefix()
			if strings.HasPrefix(o.begin, begin) {
				begin = o.begin
			}
			if !ok || !strings.HasPrefix(begin, o.begin) {
				continue
			}
			for info, err := range branches(ctx, o.st, begin, s, listPage, listHeld) {
				if !yield(info, err) || err != nil {
					return
				}
			}
		}
	}
}

// listings are the complete listings of a plan's sources, each of a span of names. A span replaces those
// within it, so a name is in several if it was listed in several ways.
type listings []book.Listing

func spanOf(l book.Listing) span { return span{string(l.From), string(l.Before)} }

// listedAs are the roots of a plan's listings, which say nothing of what the plan excludes.
func (j *job) listedAs() catalog.Roots {
	roots := j.roots()
	for _, pattern := range j.set.Exclude {
		roots += catalog.Roots("\n" + pattern)
	}
	return roots
}

// listingsOf returns those that meet any of some spans.
func (j *job) listingsOf(s *book.State, spans []span) (all listings) {
	for _, l := range s.Listings {
		if l.Roots == j.listedAs() && slices.ContainsFunc(spans, spanOf(l).meets) {
			all = append(all, l)
		}
	}
	return all
}

// of returns the commit that began the last complete listing in which a name would have been found; 0 if
// there was none.
func (all listings) of(name string) (last int64) {
	for _, l := range all {
		if spanOf(l).has(name) {
			last = max(last, l.Number)
		}
	}
	return last
}

// whole returns a commit after which all names have been listed; 0 if there is none.
func (all listings) whole() int64 {
	least := all.of("")
	for _, l := range all { // the answer changes only where one begins or ends
		least = min(least, all.of(string(l.From)))
		if l.Before != "" {
			least = min(least, all.of(string(l.Before)))
		}
	}
	return least
}

// alone returns what is left of some spans without those of which another listing has ended since a planner
// began. What the planner found missing may have been there in that one, and the reverse.
func (pl *planner) alone(s *book.State, spans []span) []span {
	for _, l := range pl.j.listingsOf(s, spans) {
		if !slices.Contains(pl.seen, l) {
			spans = without(spans, spanOf(l))
		}
	}
	return spans
}

// mostOnly is how many parts of the names a plan lists at once. Each takes a commit.
const mostOnly = 1000

// checkOnly returns an error if parts cannot be listed.
func (s Spec) checkOnly() error {
	switch {
	case s.Ranges < 0 || s.Ranges > mostRanges:
		return fmt.Errorf("expected up to %d ranges, found %d", mostRanges, s.Ranges)
	case s.Ranges > 0 && (s.listed() || len(s.Only) > 0):
		return errors.New("expected ranges of all names, found a list or prefixes")
	case len(s.Only) == 0:
		return nil
	case s.listed():
		return errors.New("expected a list, or prefixes to be listed, found both")
	case len(s.Only) > mostOnly:
		return fmt.Errorf("expected at most %d prefixes, found %d", mostOnly, len(s.Only))
	case slices.Contains(s.Only, ""):
		return fmt.Errorf("expected a prefix of names, found %s", format.Escape(`""`))
	}
	return nil
}
