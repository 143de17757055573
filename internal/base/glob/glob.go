// Package glob compares names with patterns, as users write them after --exclude, --include
// and 'holdall find'.
//
// It is the one pattern language of the command. path.Match has no ** and no {a,b}.
package glob

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// A Pattern is compared with names.
type Pattern struct {
	re   *regexp.Regexp
	last bool // with the last element of a name
	hit  *atomic.Bool
}

// Meta are the characters that make a name a pattern.
const Meta = `*?[{\`

// Compile reads a pattern. * is anything except a slash, **, anything, ? one character,
// [a-z] and [!a-z] one of a set or none of it, and {a,b} either; a backslash takes the
// meaning of what follows it. A pattern without a slash is compared with the last element
// of a name, one with a slash with the whole name.
func Compile(pattern string, fold bool) (Pattern, error) {
	var re strings.Builder
	re.WriteString("^")
	depth := 0
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case strings.HasPrefix(pattern[i:], "**/"):
			re.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(pattern[i:], "**"):
			re.WriteString(".*")
			i++
		case c == '*':
			re.WriteString("[^/]*")
		case c == '?':
			re.WriteString("[^/]")
		case c == '[':
			end := strings.IndexByte(pattern[i+1:], ']')
			if end < 1 {
				return Pattern{}, fmt.Errorf("pattern %s: missing ]", pattern)
			}
			set := pattern[i+1 : i+1+end]
			if set[0] == '!' {
				set = "^" + set[1:]
			}
			re.WriteString("[" + strings.ReplaceAll(set, `\`, `\\`) + "]")
			i += end + 1
		case c == '{':
			re.WriteString("(?:")
			depth++
		case c == '}' && depth > 0:
			re.WriteString(")")
			depth--
		case c == ',' && depth > 0:
			re.WriteString("|")
		case c == '\\':
			if i++; i == len(pattern) {
				return Pattern{}, fmt.Errorf("pattern %s: nothing after \\", pattern)
			}
			re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	if depth > 0 {
		return Pattern{}, fmt.Errorf("pattern %s: missing }", pattern)
	}
	re.WriteString("$")
	flags := "(?s)"
	if fold {
		flags = "(?si)"
	}
	r, err := regexp.Compile(flags + re.String())
	if err != nil {
		return Pattern{}, fmt.Errorf("pattern %s: %w", pattern, err)
	}
	return Pattern{re: r, last: !strings.Contains(pattern, "/")}, nil
}

// Whole is the pattern compared with whole names, also if it has no slash.
func (p Pattern) Whole() Pattern { return Pattern{re: p.re} }

// Match reports whether a name is like the pattern.
func (p Pattern) Match(name string) bool {
	if p.last {
		name = path.Base(name)
	}
	return p.re.MatchString(name)
}

// A Filter selects names: those that it includes, or that are below what it includes, without
// those that it excludes, and what is below them. A Filter that includes nothing by a pattern
// includes all. A nil Filter selects everything.
type Filter struct {
	include, exclude []Pattern
	given            []string      // the patterns, those of include first
	hit              []atomic.Bool // which of them matched a name
}

// NewFilter returns a filter of patterns, nil if there are none. A slash before or after a
// pattern only means that the pattern is about whole names.
func NewFilter(include, exclude []string) (*Filter, error) {
	if len(include)+len(exclude) == 0 {
		return nil, nil
	}
	f := &Filter{given: slices.Concat(include, exclude), hit: make([]atomic.Bool, len(include)+len(exclude))}
	for i, s := range f.given {
		p, err := Compile(strings.Trim(s, "/"), false)
		if err != nil {
			return nil, err
		}
		p.last, p.hit = p.last && !strings.Contains(s, "/"), &f.hit[i]
		if i < len(include) {
			f.include = append(f.include, p)
		} else {
			f.exclude = append(f.exclude, p)
		}
	}
	return f, nil
}

// Unmatched returns the patterns that have matched nothing so far.
func (f *Filter) Unmatched() (patterns []string) {
	if f == nil {
		return nil
	}
	for i := range f.hit {
		if !f.hit[i].Load() {
			patterns = append(patterns, f.given[i])
		}
	}
	return patterns
}

// Wants compares the name with all patterns, so that each is known which matches something.
func (f *Filter) Wants(name string) bool {
	excluded := f.Excluded(name)
	return f.Includes(name) && !excluded
}

// Includes reports whether the filter selects a name if it does not exclude it.
func (f *Filter) Includes(name string) bool {
	return f == nil || f.include == nil || covered(name, f.include)
}

// Excluded reports whether the filter excludes a name, or a folder above it.
func (f *Filter) Excluded(name string) bool { return f != nil && covered(name, f.exclude) }

// Excludes is Excluded of a name below folders that are not.
func (f *Filter) Excludes(name string) bool { return f != nil && anyOf(f.exclude, name) }

// covered reports whether a name, or a folder above it, is like one of the patterns.
func covered(name string, patterns []Pattern) bool {
	if len(patterns) == 0 {
		return false
	}
	for i := 1; i < len(name); i++ {
		if name[i] == '/' && anyOf(patterns, name[:i]) {
			return true
		}
	}
	return anyOf(patterns, name)
}

// anyOf compares a name also with patterns after the first that matches, until each has matched
// once.
func anyOf(patterns []Pattern, name string) (any bool) {
	for i := range patterns {
		p := &patterns[i]
		if was := p.hit.Load(); any && was || !p.Match(name) {
			continue
		} else if any = true; !was {
			p.hit.Store(true)
		}
	}
	return any
}
