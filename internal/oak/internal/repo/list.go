package repo

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Names of the files that occur once.
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

// Letterless reports whether the name has no letter, which is treated as a. Oak's cleanup gives
// such a tar a wrong name when it rewrites it, and loses its segments.
func (t Tar) Letterless() bool { return t.Name[len(t.Name)-len("a.tar")] != t.Letter }

// An IgnoredTar looks like a tar, but Oak ignores it.
type IgnoredTar struct {
	File
	TooLarge bool // the number is of more than 31 bits: Oak does not open the store
}

type Listing struct {
	Dir     string
	Tars    []Tar // newest number first, then last letter first
	Ignored []IgnoredTar
	Backups []File // that recoveries left
	Others  []File // that do not belong to a repository

	// Files of which there may be one; nil means that it is missing.
	Journal, Manifest, GCLog, Lock *File

	// Blobs is set if archives are folders of blobs. Tars and Journal are then what [cloud.View]
	// presents.
	Blobs *cloud.Listing

	// Guessed means that the store cannot list: what [Listing.Beside] looks for is not
	// known yet, and tars after a long gap are not found.
	Guessed bool
	held    []store.Object
}

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

// Next returns the number of the next tar.
func (l *Listing) Next() (n int) {
	if l.Blobs != nil {
		n = l.Blobs.Next
	}
	if len(l.Tars) > 0 {
		n = max(n, l.Tars[0].Number+1)
	}
	return n
}

// Clashes returns pairs of tars with the same number and letter, with and without the letter in
// their name. With such a pair, Oak does not open the store.
func (l *Listing) Clashes() [][2]Tar {
	var all [][2]Tar
	for i := 1; i < len(l.Tars); i++ {
		if a, b := l.Tars[i-1], l.Tars[i]; a.Number == b.Number && a.Letter == b.Letter {
			all = append(all, [2]Tar{a, b})
		}
	}
	return all
}

// List lists a directory of a store; "" is the store itself. In a store that cannot list it
// guesses names, and the listing must be released.
func List(ctx context.Context, st store.Store, dir string) (Listing, error) {
	l := Listing{Dir: Dir(dir)}
	prefix := in(l.Dir, "")
	var blobs cloud.Listing
	for info, err := range storekit.ListHeaders(ctx, st, prefix) {
		if errors.Is(err, errors.ErrUnsupported) {
			return guess(ctx, st, l.Dir)
		}
		if err != nil {
			return Listing{}, err
		}
		name := strings.TrimPrefix(info.Name, prefix)
		if taken, err := blobs.Add(name, info.Size, info.Headers); err != nil {
			return Listing{}, &store.Error{Op: "list", Name: prefix, Off: -1, Err: err}
		} else if !taken && !strings.Contains(name, "/") {
			l.add(File{name, info.Size})
		}
	}
	l.blobs(&blobs)
	l.sort()
	return l, nil
}

// blobs adds the tars and the journal that archives and parts of the journal are presented as.
// Beside tars, parts of a journal are ignored.
func (l *Listing) blobs(b *cloud.Listing) {
	archives := b.Settle()
	if len(archives) == 0 && (len(l.Tars) > 0 || l.Journal != nil) {
		for _, p := range b.Parts {
			l.add(File{p.Name, p.Size})
		}
		return
	}
	if !b.Any() {
		return
	}
	l.Blobs = b
	if len(b.Parts) > 0 {
		l.Journal = &File{Journal, cloud.JournalSize(b.Parts)}
	}
	for _, a := range archives {
		l.add(File{a.Name, a.Size()})
	}
}

// Dir returns the form of a folder's name in this package: the store itself is "".
func Dir(dir string) string {
	if dir = path.Clean(dir); dir == "." {
		return ""
	}
	return dir
}

var backupName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^.+\.tar(\.[0-9]+)?(\.ro)?\.bak$|^journal\.log\.bak\.[0-9]{3}$`)
})

// tooLarge matches a name with a number that Oak's reader tries to parse but cannot.
var tooLarge = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^data([1-9][0-9]{5,})[a-z]?\.tar$`) })

func (l *Listing) add(f File) {
	if number, letter, ok := tarfile.ParseName(f.Name); ok {
		l.Tars = append(l.Tars, Tar{f, number, letter})
		return
	}
	switch lower := strings.ToLower(f.Name); {
	case backupName().MatchString(f.Name):
		l.Backups = append(l.Backups, f)
	case f.Name == Journal:
		l.Journal = &f
	case f.Name == Manifest:
		l.Manifest = &f
	case f.Name == GCLog:
		l.GCLog = &f
	case f.Name == Lock:
		l.Lock = &f
	// This may look like a part of the store, or be a renamed one.
	case strings.HasSuffix(lower, ".tar"), strings.HasPrefix(lower, "data") && strings.Contains(lower, ".tar"):
		i := IgnoredTar{File: f}
		if m := tooLarge().FindStringSubmatch(f.Name); m != nil {
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

const (
	guessGap    = 64
	mostNumbers = 1 << 16
	atOnce      = 8 // requests
)

// guess finds the journal and the tars of a directory by their names, in stores that cannot list.
// [Listing.Beside] finds what reading does not need.
//
// It looks for letter a of each number in ascending order, because a new tar has letter a, which
// the newest one usually has. It requests two numbers at once, then four, then eight. It stops if
// the next number has no letter a and the segment of the newest revision is in a tar that was
// found, because anything written later belongs to no revision. Otherwise it stops after 64
// numbers without one. For the numbers before that, it looks for other letters. If there is an a,
// it looks for b, and so on until one is missing, because a cleanup takes the next letter. If
// there is no a, it looks for all letters. If the newest revision was not found, it does that for
// the next eight numbers too.
//
// It does not find what follows 64 numbers without an a, as many cleanups can leave, nor backups,
// nor names that Oak ignores.
func guess(ctx context.Context, st store.Store, dir string) (_ Listing, err error) {
	g := guesser{ctx: ctx, st: st, l: Listing{Dir: dir, Guessed: true}}
	defer func() {
		if err != nil {
			g.l.Release()
		}
	}()
	names, end, known := []string{Journal}, 0, false // end is after the last that has an a
	var hasA []bool
	for some := 2; len(hasA) < min(end+guessGap, mostNumbers) && !known; some = min(2*some, atOnce) {
		for i := range some {
			names = append(names, tarfile.Name(len(hasA)+i, 'a'))
		}
		found, err := g.try(names...)
		if err != nil {
			return g.l, err
		}
		hasA = append(hasA, found[len(names)-some:]...)
		for end = len(hasA); end > 0 && !hasA[end-1]; {
			end--
		}
		if end < len(hasA) {
			if known, err = g.hasHead(); err != nil {
				return g.l, err
			}
		}
		names = names[:0]
	}
	if g.l.Journal != nil && !known {
		end = min(end+atOnce, len(hasA))
	}
	var next, missing []string
	for n, a := range hasA[:end] {
		if a {
			next = append(next, tarfile.Name(n, 'b'))
			continue
		}
		for letter := byte('b'); letter <= 'z'; letter++ {
			missing = append(missing, tarfile.Name(n, letter))
		}
	}
	if _, err := g.try(missing...); err != nil {
		return g.l, err
	}
	for len(next) > 0 {
		found, err := g.try(next...)
		if err != nil {
			return g.l, err
		}
		var more []string
		for i, ok := range found {
			if number, letter, _ := tarfile.ParseName(next[i]); ok && letter < 'z' {
				more = append(more, tarfile.Name(number, letter+1))
			}
		}
		next = more
	}
	g.l.sort()
	return g.l, nil
}

// Beside requests the files that a guess has not requested yet, in a store that cannot list. The
// known tars and the journal may be read at the same time.
func (l *Listing) Beside(ctx context.Context, st store.Store) error {
	g := guesser{ctx: ctx, st: st, l: Listing{Dir: l.Dir}}
	defer g.l.Release()
	_, err := g.try(Manifest, GCLog, Lock)
	l.Manifest, l.GCLog, l.Lock = g.l.Manifest, g.l.GCLog, g.l.Lock
	return err
}

// Release releases what a guess has read and kept for the next caller that opens the files.
func (l *Listing) Release() {
	for _, o := range l.held {
		o.Close()
	}
	l.held = nil
}

type guesser struct {
	ctx  context.Context
	st   store.Store
	l    Listing
	seen int // how many of the tars have been searched for the newest revision
}

// try adds the files that exist. It reads and keeps the ends of the journal and of tars, which show
// their sizes and are needed next.
func (g *guesser) try(names ...string) (found []bool, err error) {
	type wanted struct {
		File
		obj store.Object
	}
	all := make([]*wanted, len(names))
	for i, name := range names {
		all[i] = &wanted{File: File{Name: name}}
	}
	err = pipe.Each(g.ctx, pipe.All(all), atOnce, func(ctx context.Context, f *wanted) (err error) {
		if f.obj, err = storekit.OpenGrowing(ctx, g.st, g.l.Path(f.Name)); err != nil {
			return unlessMissing(err)
		}
		if f.Name == Journal || strings.HasSuffix(f.Name, ".tar") {
			_, err = storekit.ReadTail(ctx, f.obj, make([]byte, window))
		}
		var info store.Info
		if err == nil {
			info, err = f.obj.Info(ctx)
			f.Size = info.Size
		}
		if err != nil {
			err = unlessMissing(errors.Join(err, f.obj.Close()))
			f.obj = nil
		}
		return err
	})
	for _, f := range all {
		if found = append(found, f.obj != nil); f.obj != nil {
			g.l.add(f.File)
			g.l.held = append(g.l.held, f.obj)
		}
	}
	return found, err
}

func unlessMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// hasHead reports whether the newest revision is in a tar that was found.
func (g *guesser) hasHead() (bool, error) {
	if g.l.Journal == nil {
		return false, nil
	}
	journal, err := storekit.OpenGrowing(g.ctx, g.st, g.l.Path(Journal))
	if err != nil {
		return false, err
	}
	defer journal.Close()
	for head, err := range Entries(g.ctx, journal) {
		if _, bad := err.(*Error); bad {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, t := range slices.Backward(g.l.Tars[g.seen:]) {
			if ok, err := g.has(t, head.Segment); ok || err != nil {
				return ok, err
			}
		}
		g.seen = len(g.l.Tars)
		return false, nil
	}
	return false, nil
}

// has reports whether a tar has a segment, by its index, if it has one.
func (g *guesser) has(t Tar, id tarfile.ID) (bool, error) {
	o, err := storekit.OpenGrowing(g.ctx, g.st, g.l.Path(t.Name))
	if err != nil {
		return false, err
	}
	defer o.Close()
	tar, err := tarfile.Open(g.ctx, o, t.Name, tarfile.Options{Tail: window})
	if _, none := errors.AsType[*tarfile.NoIndex](err); none || tarfile.IsDamage(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, ok := tar.Index().Find(id)
	return ok, nil
}
