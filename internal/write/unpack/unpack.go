// Package unpack writes entries of an archive into a folder, and never outside it.
package unpack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/base/people"
	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/listing"
)

// Options of an extraction; see holdall.Options.
type Options struct {
	Names        []string
	Overwrite    bool
	Changed      bool
	NoOwner      bool
	OutsideLinks bool
	NoVerify     bool
	KeepDamaged  bool
	DryRun       bool
	Strip        int // elements to remove from the beginning of each name
	Max          Limits
	OnError      func(p format.Problem, err error)
	Meter        *meter.Meter
	Filter       *glob.Filter // selects among Names
	// Hash, if it is not nil, hashes each file while it is written. Hashed gets the results, on
	// several goroutines.
	Hash   func() hash.Hash
	Hashed func(name string, sum []byte)
}

// Limits bound an extraction; zero means the usual limit, a negative number means no limit.
type Limits struct {
	Entries, Bytes, Ratio int64
	Depth                 int
}

const (
	usualMaxEntries = 20_000_000
	usualMaxRatio   = 1000
	ratioFrom       = 1 << 30
)

func (l Limits) orUsual() Limits {
	usual := func(v *int64, n int64) {
		if *v == 0 {
			*v = n
		}
		if *v < 0 {
			*v = 1<<63 - 1
		}
	}
	depth := int64(l.Depth)
	usual(&l.Entries, usualMaxEntries)
	usual(&l.Bytes, 1<<63-1)
	usual(&l.Ratio, usualMaxRatio)
	usual(&depth, naming.MostFolders)
	l.Depth = int(min(depth, 1<<31-1))
	return l
}

// Done reports what an extraction did. Stripped counts names whose leading slashes were removed.
type Done struct {
	Entries, Bytes, Failed, Stripped int64
	Unmatched                        []string // patterns of the filter
	Unchanged                        int64
}

// Extract writes entries of src to into or below it, never outside. It refuses and reports names
// that would lead outside, links that would, and entries that would replace one another. A file
// appears under its name once its content is complete and, if the archive has its digest,
// verified.
func Extract(ctx context.Context, src *content.Source, into *os.Root, o Options) (Done, error) {
	x := &extraction{src: src, root: into, o: o, owners: !o.NoOwner && os.Geteuid() == 0, max: o.Max.orUsual(), made: map[string]format.Kind{}, folders: map[string]bool{".": false}, failed: map[string]bool{},
		run: rand.Text()[:12], mask: maskOfProcess()}
	defer x.closeFolders()
	defer x.end()
	if !o.DryRun {
		if err := x.begin(ctx); err != nil {
			return Done{}, err
		}
	}
	stored, err := src.StoredSize(ctx)
	if err != nil {
		return Done{}, err
	}
	x.stored = stored
	entries, err := x.wanted(ctx)
	if err != nil {
		return x.sum, err
	}
	if o.Filter != nil {
		entries = listing.Only(entries, func(e format.Entry) bool { return o.Filter.Wants(e.Name) })
	}
	if len(o.Names) == 0 {
		if err := src.Expect(ctx, o.Meter, func(e format.Entry) bool { return !e.Internal && o.Filter.Wants(e.Name) }); err != nil {
			return x.sum, err
		}
	}
	err = src.Sweep(ctx, x.admitted(ctx, entries), content.AnyOrder, func(c content.Content, err error) error {
		to, _ := x.named(c.Entry)
		if err == nil {
			err = x.file(ctx, c, to)
		} else {
			err = &unreadable{err: err}
		}
		if x.o.KeepDamaged {
			err = x.keep(ctx, c.Entry, to, err)
		}
		return x.done(ctx, to, err)
	})
	if err == nil {
		err = x.links(ctx)
	}
	if err == nil && !o.DryRun {
		err = x.folderModes()
	}
	x.sum.Stripped, x.sum.Unmatched = x.admitSum.Stripped, o.Filter.Unmatched()
	return x.sum, err
}

// extraction is the state of one Extract. What admitted keeps belongs to the
// goroutine that feeds the sweep; sum and report are shared.
type extraction struct {
	src    *content.Source
	root   *os.Root
	mark   *os.File // marks root as being extracted into
	o      Options
	owners bool // set the owners of files, as only root may
	max    Limits
	stored int64
	holes  int64 // bytes of what was admitted that are not written
	folds  bool  // the file system ignores case in names

	made     map[string]format.Kind // by the name as the file system sees it
	later    []format.Entry         // links, which are made after all files
	dirs     []format.Entry         // their modes and times are set last
	admitSum Done

	mask  int64  // for the modes of new files; -1 if that is not known
	run   string // in temporary names
	temps atomic.Int64

	people people.People

	mu      sync.Mutex
	sum     Done
	folders map[string]bool // folders that exist; true if this extraction made them
	open    []*sharedFolder // the latest is the last
	failed  map[string]bool // files that are not there, or not ours
}

// key returns the same string for all names that are the same to the file system.
func (x *extraction) key(name string) string {
	if x.folds {
		return strings.ToLower(name)
	}
	return name
}

func (x *extraction) wanted(ctx context.Context) (iter.Seq2[format.Entry, error], error) {
	if len(x.o.Names) == 0 {
		return x.src.Packed(ctx), nil
	}
	names, below := map[string]bool{}, []string{}
	for _, n := range x.o.Names {
		n = strings.TrimSuffix(n, "/")
		e, err := x.src.Reader.Lookup(ctx, n)
		if err != nil {
			return nil, err
		}
		names[n] = true
		if e.Kind == format.Dir {
			below = append(below, n+"/")
		}
		if n == "." {
			return x.src.Packed(ctx), nil
		}
	}
	if x.src.Reader.Can().EntriesBelow != nil {
		return x.descend(ctx, names), nil
	}
	return listing.Only(x.src.Reader.Entries(ctx), func(e format.Entry) bool {
		return names[e.Name] || slices.ContainsFunc(below, func(dir string) bool { return strings.HasPrefix(e.Name, dir) })
	}), nil
}

// descend yields entries and what is below them, each once.
func (x *extraction) descend(ctx context.Context, names map[string]bool) iter.Seq2[format.Entry, error] {
	above := func(n string) bool {
		for i := strings.LastIndexByte(n, '/'); i > 0; i = strings.LastIndexByte(n[:i], '/') {
			if names[n[:i]] {
				return true
			}
		}
		return false
	}
	return func(yield func(format.Entry, error) bool) {
		for _, n := range slices.Sorted(maps.Keys(names)) {
			if above(n) {
				continue
			}
			e, err := x.src.Reader.Lookup(ctx, n)
			if !yield(e, err) || err != nil {
				return
			}
			if e.Kind != format.Dir || e.Fault != nil {
				continue
			}
			for e, err := range x.src.Below(ctx, n) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// admitted yields the files that may be written. It refuses what is unsafe,
// makes folders, and keeps links for later.
func (x *extraction) admitted(ctx context.Context, entries iter.Seq2[format.Entry, error]) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		for e, err := range entries {
			if err == nil {
				err = x.withinLimits(ctx, e)
			}
			if err != nil {
				yield(format.Entry{}, err)
				return
			}
			own := e // what is read has the archive's name
			var ok bool
			if e, ok = x.named(own); !ok {
				continue
			}
			if strings.HasPrefix(own.Name, "/") && !strings.HasPrefix(e.Name, "/") {
				x.admitSum.Stripped++
			}
			if p := x.refuse(e); p != nil {
				refused := &content.Refusal{Told: *p}
				if x.done(ctx, e, refused) != nil {
					yield(format.Entry{}, refused)
					return
				}
				continue
			}
			switch {
			case e.Kind == format.Dir:
				err = x.makeFolder(e.Name)
				x.dirs = append(x.dirs, e)
			case e.Kind.HasContent() && x.has(ctx, e.Name, own):
			case e.Kind.HasContent():
				if !yield(own, nil) {
					return
				}
				continue
			default:
				x.later = append(x.later, e)
				continue
			}
			if err := x.done(ctx, e, err); err != nil {
				yield(format.Entry{}, err)
				return
			}
		}
	}
}

// has reports whether a file that is there has e's content, as digests show, and need not be written.
func (x *extraction) has(ctx context.Context, name string, e format.Entry) bool {
	if !x.o.Changed {
		return false
	}
	info := x.there(name)
	if info == nil || !info.Mode().IsRegular() || info.Size() != e.Size {
		return false
	}
	f, err := x.root.OpenFile(name, os.O_RDONLY|sysfile.DontWait, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	same := x.src.Is(ctx, e, f)
	if same {
		x.mu.Lock()
		x.sum.Unchanged++
		x.mu.Unlock()
	}
	return same
}

// withinLimits returns an error if the archive as a whole exceeds a limit.
func (x *extraction) withinLimits(ctx context.Context, e format.Entry) error {
	s := &x.admitSum
	s.Entries++
	if e.Fault == nil { // else nothing is written
		s.Bytes += e.Size
	}
	x.holes += x.holesOf(ctx, e)
	what := ""
	switch {
	case s.Entries > x.max.Entries:
		what = fmt.Sprintf("more than %d entries", x.max.Entries)
	case s.Bytes > x.max.Bytes || s.Bytes < 0:
		what = fmt.Sprintf("more than %d bytes of content", x.max.Bytes)
	case s.Bytes-x.holes > ratioFrom && (s.Bytes-x.holes)/max(x.stored, 1) > x.max.Ratio:
		what = fmt.Sprintf("%d bytes of content from %d stored bytes, more than %d times as many", s.Bytes-x.holes, x.stored, x.max.Ratio)
	default:
		return nil
	}
	return &format.CorruptError{Format: x.src.Format.Name, Problem: format.Problem{
		Code: format.Limit, Severity: format.Error, Volume: x.src.Name, Off: -1, Entry: e.Name, HasEntry: true,
		Message: "extraction stopped: " + what,
	}}
}

// named returns an entry by the name that it gets on disk: without leading slashes, as other
// tools do it, and without its first Strip elements. It reports false if nothing is left.
func (x *extraction) named(e format.Entry) (format.Entry, bool) {
	strip := func(name string) string {
		rel := strings.TrimLeft(name, "/")
		if rel != "" && rel != name && !slices.Contains(strings.Split(rel, "/"), "..") {
			name = path.Clean(rel)
		}
		if slices.Contains(strings.Split(name, "/"), "..") {
			return name // it is refused, whatever is left of it
		}
		for n := x.o.Strip; n > 0 && name != ""; n-- {
			_, name, _ = strings.Cut(name, "/")
		}
		return name
	}
	e.Name = strip(e.Name)
	if e.Kind == format.HardLink {
		e.Link = strip(e.Link)
	}
	return e, e.Name != "" || x.o.Strip == 0
}

// refuse returns the reason if an entry must not be extracted.
func (x *extraction) refuse(e format.Entry) *format.Problem {
	unsafe := func(class, msg string) *format.Problem {
		return &format.Problem{Code: format.UnsafePath, Class: class, Severity: format.Error, Volume: x.src.Name, Off: -1, Entry: e.Name, HasEntry: true, Message: msg}
	}
	if e.Fault != nil {
		return e.Fault
	}
	if class := naming.Fault(e.Name); class != "" {
		return unsafe(class, "not extracted: "+naming.Advice(class))
	}
	if strings.Count(e.Name, "/") >= x.max.Depth {
		p := unsafe("", fmt.Sprintf("not extracted: more than %d folders deep", x.max.Depth))
		p.Code = format.Limit
		return p
	}
	// First come, first served: the stored order decides, regardless of the order in which things
	// get written.
	for dir := path.Dir(e.Name); dir != "."; dir = path.Dir(dir) {
		k, ok := x.made[x.key(dir)]
		if ok && k != format.Dir {
			return unsafe("name-conflict", fmt.Sprintf("not extracted: %q is not a folder", dir))
		}
		if ok {
			break
		}
	}
	k, ok := x.made[x.key(e.Name)]
	if ok && (k != format.Dir || e.Kind != format.Dir) {
		return unsafe("name-conflict", "not extracted: an earlier entry has the same name, or the same name to the file system")
	}
	x.made[x.key(e.Name)] = e.Kind
	for dir := path.Dir(e.Name); dir != "."; dir = path.Dir(dir) {
		if _, ok := x.made[x.key(dir)]; ok {
			break
		}
		x.made[x.key(dir)] = format.Dir
	}
	return nil
}

// done counts an entry, or reports it.
func (x *extraction) done(ctx context.Context, e format.Entry, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.sum.Entries++
		x.sum.Bytes += e.Size
		x.o.Meter.Add(1, 0)
		x.o.Meter.Done(e.Name)
		return nil
	}
	x.sum.Failed++
	if e.Kind.HasContent() {
		x.failed[x.key(e.Name)] = true
	}
	if x.o.OnError == nil {
		return err
	}
	p := x.src.Problem(ctx, e, err)
	if bad, ok := errors.AsType[*unreadable](err); ok && bad.kept != "" && !strings.HasSuffix(p.Message, bad.kept) {
		p.Message += "; " + bad.kept
	}
	if errors.Is(err, errExists) || !x.o.Overwrite && errors.Is(err, fs.ErrExist) && x.there(e.Name) != nil {
		p.Code, p.Message = format.Exists, errExists.Error()
	}
	x.o.OnError(p, err)
	return nil
}
