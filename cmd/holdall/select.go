package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/glob"
)

type selection struct{ include, exclude, from []string }

func (s *selection) register(fs *pflag.FlagSet) {
	fs.StringArrayVar(&s.include, "include", nil, "take only names that match this pattern, and what is below them: '*.md'; may be repeated")
	fs.StringArrayVar(&s.exclude, "exclude", nil, excludeUsage)
	fs.StringArrayVar(&s.from, "exclude-from", nil, "read patterns for --exclude from this file, one per line; - is standard input")
}

const excludeUsage = "leave out names that match this pattern: '*.tmp', 'cache/*'; may be repeated"

func (s *selection) given() bool { return len(s.include)+len(s.exclude)+len(s.from) > 0 }

// patterns returns all given patterns. In pattern files, empty lines and lines
// that begin with # are skipped.
func (s *selection) patterns(a *app) (include, exclude []string, err error) {
	exclude = s.exclude
	for _, file := range s.from {
		lines, err := a.readList(file)
		if err != nil {
			return nil, nil, fmt.Errorf("--exclude-from: %w", err)
		}
		for _, line := range lines {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				exclude = append(exclude, line)
			}
		}
	}
	include, exclude = fromRoot(s.include), fromRoot(exclude)
	if _, err := glob.NewFilter(include, exclude); err != nil {
		return nil, nil, &usageError{err}
	}
	a.patterns = fromRoot(slices.Concat(s.include, s.exclude))
	return include, exclude, nil
}

// fromRoot returns patterns that begin with "./", as users of tar write them, as those of whole names.
func fromRoot(patterns []string) []string {
	patterns = slices.Clone(patterns)
	for i, p := range patterns {
		if strings.HasPrefix(p, "./") {
			patterns[i] = p[1:]
		}
	}
	return patterns
}

// tellUnmatched names the patterns of flags that matched nothing. Those in files
// are often for other folders, too.
func (a *app) tellUnmatched(patterns []string) {
	patterns = slices.DeleteFunc(slices.Clone(patterns), func(s string) bool { return !slices.Contains(a.patterns, s) })
	if len(patterns) == 0 {
		return
	}
	why := ""
	if isFolder(a.single) {
		why = ": names are relative to " + printable(a.single)
	}
	a.warn("matched nothing: %s%s", printable(strings.Join(patterns, ", ")), why)
}

// tellAgain names the inputs that were named again.
func (a *app) tellAgain(inputs []string) {
	if len(inputs) > 0 {
		first := printable(inputs[0])
		if n := len(inputs) - 1; n > 0 {
			first += fmt.Sprintf(", and %s more", thousands(int64(n)))
		}
		a.warn("named twice, used once: %s", first)
	}
}

// compared does tellUnmatched for a verb that has compared all names, and
// returns the verb's error.
func (a *app) compared(names *glob.Filter, err error) error {
	if err == nil || errors.Is(err, errNo) {
		a.tellUnmatched(names.Unmatched())
	}
	return err
}

func (s *selection) filter(a *app) (*glob.Filter, error) {
	include, exclude, err := s.patterns(a)
	if err != nil {
		return nil, err
	}
	return glob.NewFilter(include, exclude)
}

// verboseFlag defines -v for a verb that processes entries one by one.
func (a *app) verboseFlag(fs *pflag.FlagSet) {
	fs.BoolVarP(&a.verbose, "verbose", "v", false, "print the name of each entry to standard error when it is done")
}

func (a *app) newMeter() *holdall.Meter {
	m := &holdall.Meter{}
	if a.verbose {
		m.OnEntry = a.nameDone
	}
	return m
}

var oneLine sync.Mutex

func (a *app) nameDone(name string) {
	if a.verbose {
		oneLine.Lock()
		defer oneLine.Unlock()
		fmt.Fprintln(a.stderr, quoteEmpty(format.Escape(name)))
	}
}
