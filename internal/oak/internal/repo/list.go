package repo

import (
	"cmp"
	"context"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// Names of the files that there is one of.
const (
	Journal  = "journal.log"
	Manifest = "manifest"
	GCLog    = "gc.log"
	Lock     = "repo.lock"
)

type File struct {
	Name string // in the directory
	Size int64
}

func (f File) compare(g File) int { return cmp.Compare(f.Name, g.Name) }

// A Tar is a file that Oak reads.
type Tar struct {
	File
	Number int
	Letter byte
}

// Letterless reports whether the name has no letter, which counts as a. Oak's
// cleanup makes a wrong name for what it leaves of such a tar, and loses it.
func (t Tar) Letterless() bool { return t.Name[len(t.Name)-len("a.tar")] != t.Letter }

// An IgnoredTar looks like a tar and is none for Oak.
type IgnoredTar struct {
	File
	TooLarge bool // the number is of more than 31 bits: Oak does not open the store
}

type Listing struct {
	Dir     string
	Tars    []Tar // newest number first; of one number, last letter first
	Ignored []IgnoredTar
	Backups []File // that recoveries left
	Others  []File // that belong to no repository

	// Those that there may be one of; nil is none.
	Journal, Manifest, GCLog, Lock *File

	// Guessed says that the store cannot list: what [Listing.Beside] looks for is not
	// known yet, and tars after a long gap are not found.
	Guessed bool
	held    []store.Object
}

// Path returns the name of a file of the directory in the store.
func (l *Listing) Path(name string) string { return in(l.Dir, name) }

func in(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Numbers returns the tars number by number: the letters of each are one slice.
func (l *Listing) Numbers() [][]Tar {
	var all [][]Tar
	for rest := l.Tars; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Number == rest[0].Number {
			n++
		}
		all = append(all, rest[:n:n])
		rest = rest[n:]
	}
	return all
}

// Clashes returns the tars of one number and letter, by twos: with and without a
// letter in their name. With such a pair Oak does not open the store.
func (l *Listing) Clashes() [][2]Tar {
	var all [][2]Tar
	for i := 1; i < len(l.Tars); i++ {
		if a, b := l.Tars[i-1], l.Tars[i]; a.Number == b.Number && a.Letter == b.Letter {
			all = append(all, [2]Tar{a, b})
		}
	}
	return all
}

// List says what is in a directory of a store; "" is the store itself. In a store
// that cannot list it guesses: the listing must be released.
func List(ctx context.Context, st store.Store, dir string) (Listing, error) {
	l := Listing{Dir: Dir(dir)}
	prefix := in(l.Dir, "")
	for info, err := range store.List(ctx, st, prefix) {
		if errors.Is(err, errors.ErrUnsupported) {
			return guess(ctx, st, l.Dir)
		}
		if err != nil {
			return Listing{}, err
		}
		name := strings.TrimPrefix(info.Name, prefix)
		if !strings.Contains(name, "/") {
			l.add(File{name, info.Size})
		}
	}
	l.sort()
	return l, nil
}

// Dir is how a folder is written here: the store itself is "".
func Dir(dir string) string {
	if dir = path.Clean(dir); dir == "." {
		return ""
	}
	return dir
}

var backupName = regexp.MustCompile(`^.+\.tar(\.[0-9]+)?(\.ro)?\.bak$|^journal\.log\.bak\.[0-9]{3}$`)

// tooLarge is a name with a number that Oak's reader tries to read, and fails.
var tooLarge = regexp.MustCompile(`^data([1-9][0-9]{5,})[a-z]?\.tar$`)

func (l *Listing) add(f File) {
	if number, letter, ok := tarfile.ParseName(f.Name); ok {
		l.Tars = append(l.Tars, Tar{f, number, letter})
		return
	}
	switch lower := strings.ToLower(f.Name); {
	case backupName.MatchString(f.Name):
		l.Backups = append(l.Backups, f)
	case f.Name == Journal:
		l.Journal = &f
	case f.Name == Manifest:
		l.Manifest = &f
	case f.Name == GCLog:
		l.GCLog = &f
	case f.Name == Lock:
		l.Lock = &f
	// What somebody could take for a part of the store, or has renamed.
	case strings.HasSuffix(lower, ".tar"), strings.HasPrefix(lower, "data") && strings.Contains(lower, ".tar"):
		i := IgnoredTar{File: f}
		if m := tooLarge.FindStringSubmatch(f.Name); m != nil {
			_, err := strconv.ParseInt(m[1], 10, 32)
			i.TooLarge = err != nil
		}
		l.Ignored = append(l.Ignored, i)
	default:
		l.Others = append(l.Others, f)
	}
}

func (l *Listing) sort() {
	slices.SortFunc(l.Tars, func(a, b Tar) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(b.Letter, a.Letter), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(l.Ignored, func(a, b IgnoredTar) int { return a.File.compare(b.File) })
	slices.SortFunc(l.Backups, File.compare)
	slices.SortFunc(l.Others, File.compare)
}
