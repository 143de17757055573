package holdall

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/people"
)

// ExtractOptions are wishes for an extraction.
type ExtractOptions struct {
	// Names are entries and folders to extract; none is everything.
	Names []string `json:"names,omitempty"`
	// Overwrite replaces files that are there already. Without it they stay and
	// their entries are reported.
	Overwrite bool `json:"overwrite,omitempty"`
	// NoOwner leaves files to whoever extracts. Only root gives them away.
	NoOwner bool `json:"no_owner,omitempty"`
	// OutsideLinks makes symbolic links that lead outside too, as packages have
	// them that are meant for "/". Nothing is written through them here, but who
	// uses the folder afterwards should know.
	OutsideLinks bool `json:"outside_links,omitempty"`
	// NoVerify skips the comparison with recorded digests.
	NoVerify bool `json:"no_verify,omitempty"`
	// Max bounds what is believed of an archive before it may fill a disk.
	Max ExtractLimits `json:"max"`
	// OnError is told of each entry that could not be extracted; the others are.
	OnError func(p Problem, err error) `json:"-"`
	// Meter counts.
	Meter *Meter `json:"-"`
}

// ExtractLimits bound an extraction; zero means the usual limit, a negative
// number none.
type ExtractLimits struct {
	Entries int64 `json:"entries,omitempty"` // usually 20 million
	Bytes   int64 `json:"bytes,omitempty"`   // usually none
	// Ratio bounds content bytes by stored bytes, once there is more than 1 GiB
	// of content: entries that share their bytes can claim any size. Usually
	// 1000.
	Ratio int64 `json:"ratio,omitempty"`
	Depth int   `json:"depth,omitempty"` // folders below each other, usually 256
}

const (
	usualMaxEntries = 20_000_000
	usualMaxRatio   = 1000
	usualMaxDepth   = 256
	ratioFrom       = 1 << 30
)

func (l ExtractLimits) orUsual() ExtractLimits {
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
	usual(&depth, usualMaxDepth)
	l.Depth = int(min(depth, 1<<31-1))
	return l
}

// Extracted says what an extraction did.
type Extracted struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Failed  int64 `json:"failed,omitempty"`
}

// Extract writes entries of a below into, which nothing can leave: names that
// would, links that would lead out, and entries that would replace one another
// are refused and reported. A file appears under its name when its content is
// whole and, if the archive has its digest, right.
func Extract(ctx context.Context, a *Archive, into *os.Root, o ExtractOptions) (Extracted, error) {
	x := &extraction{a: a, root: into, o: o, max: o.Max.orUsual(), made: map[string]format.Kind{}, folders: map[string]bool{".": true}, failed: map[string]bool{},
		open: make(chan *folder, 16), run: rand.Text()[:12]}
	defer x.closeFolders()
	if err := x.findFolding(); err != nil {
		return Extracted{}, err
	}
	stored, err := a.StoredSize(ctx)
	if err != nil {
		return Extracted{}, err
	}
	x.stored = stored
	entries, err := x.wanted(ctx)
	if err != nil {
		return x.sum, err
	}
	if len(o.Names) == 0 {
		if err := a.expect(ctx, o.Meter, func(e Entry) bool { return !e.Internal }); err != nil {
			return x.sum, err
		}
	}
	err = a.sweep(ctx, x.admitted(ctx, entries), false, func(it sweepItem, content io.Reader, err error) error {
		if err == nil {
			err = x.file(ctx, it.Entry, content)
		}
		return x.done(ctx, it.Entry, err)
	})
	if err == nil {
		err = x.links(ctx)
	}
	if err == nil {
		err = x.folderModes()
	}
	return x.sum, err
}

// extraction is the state of one Extract. What admitted keeps belongs to the
// goroutine that feeds the sweep; sum and report are shared.
type extraction struct {
	a      *Archive
	root   *os.Root
	o      ExtractOptions
	max    ExtractLimits
	stored int64
	folds  bool // the file system takes names that differ by case for one

	made     map[string]format.Kind // by the name as the file system sees it
	later    []Entry                // links, once all files are there
	dirs     []Entry                // whose modes and times come last
	admitSum Extracted

	open  chan *folder // that nobody writes into at the moment
	run   string       // in temporary names
	temps atomic.Int64

	people people.People

	mu      sync.Mutex
	sum     Extracted
	folders map[string]bool
	failed  map[string]bool // files that are not there, or are somebody else's
}

// findFolding finds out whether the target tells names apart by case.
func (x *extraction) findFolding() error {
	const probe = ".holdall-case-a"
	f, err := x.root.OpenFile(probe, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // somebody else is asking right now
	}
	if err != nil {
		return err
	}
	f.Close()
	_, err = x.root.Lstat(strings.ToUpper(probe))
	x.folds = err == nil
	return x.root.Remove(probe)
}

// key is what the file system takes a name for.
func (x *extraction) key(name string) string {
	if x.folds {
		return strings.ToLower(name)
	}
	return name
}

// wanted yields the entries to extract, in stored order.
func (x *extraction) wanted(ctx context.Context) (iter.Seq2[Entry, error], error) {
	if len(x.o.Names) == 0 {
		return x.a.packed(ctx), nil
	}
	names, below := map[string]bool{}, []string{}
	for _, n := range x.o.Names {
		n = strings.TrimSuffix(n, "/")
		e, err := x.a.Lookup(ctx, n)
		if err != nil {
			return nil, err
		}
		names[n] = true
		if e.Kind == format.Dir {
			below = append(below, n+"/")
		}
		if n == "." {
			return x.a.packed(ctx), nil
		}
	}
	if _, ok := x.a.r.(format.Descender); ok {
		return x.descend(ctx, names), nil
	}
	return func(yield func(Entry, error) bool) {
		for e, err := range x.a.Entries(ctx) {
			if err == nil && !names[e.Name] && !hasAnyPrefix(e.Name, below) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}, nil
}

// descend yields entries and what is below them, each once.
func (x *extraction) descend(ctx context.Context, names map[string]bool) iter.Seq2[Entry, error] {
	above := func(n string) bool {
		for i := strings.LastIndexByte(n, '/'); i > 0; i = strings.LastIndexByte(n[:i], '/') {
			if names[n[:i]] {
				return true
			}
		}
		return false
	}
	return func(yield func(Entry, error) bool) {
		for _, n := range slices.Sorted(maps.Keys(names)) {
			if above(n) {
				continue
			}
			e, err := x.a.Lookup(ctx, n)
			if !yield(e, err) || err != nil {
				return
			}
			if e.Kind != format.Dir || e.Fault != nil {
				continue
			}
			for e, err := range x.a.Below(ctx, n) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// admitted yields the files that may be written. It refuses what is unsafe,
// makes folders, and keeps links for later.
func (x *extraction) admitted(ctx context.Context, entries iter.Seq2[Entry, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for e, err := range entries {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if err := x.withinLimits(e); err != nil {
				yield(Entry{}, err)
				return
			}
			p := x.refuse(e)
			if p != nil {
				if x.done(ctx, e, &refusedError{*p}) != nil {
					yield(Entry{}, &refusedError{*p})
					return
				}
				continue
			}
			switch {
			case e.Kind == format.Dir:
				err = x.makeFolder(e.Name)
				x.dirs = append(x.dirs, e)
			case e.Kind.HasContent():
				if !yield(e, nil) {
					return
				}
				continue
			default:
				x.later = append(x.later, e)
				continue
			}
			if err := x.done(ctx, e, err); err != nil {
				yield(Entry{}, err)
				return
			}
		}
	}
}

// withinLimits is about the archive as a whole: past a limit nothing goes on.
func (x *extraction) withinLimits(e Entry) error {
	s := &x.admitSum
	s.Entries++
	s.Bytes += e.Size
	what := ""
	switch {
	case s.Entries > x.max.Entries:
		what = fmt.Sprintf("over %d entries", x.max.Entries)
	case s.Bytes > x.max.Bytes || s.Bytes < 0:
		what = fmt.Sprintf("over %d bytes of content", x.max.Bytes)
	case s.Bytes > ratioFrom && s.Bytes/max(x.stored, 1) > x.max.Ratio:
		what = fmt.Sprintf("%d bytes of content from %d stored ones, over %d times as many", s.Bytes, x.stored, x.max.Ratio)
	default:
		return nil
	}
	return &format.CorruptError{Format: x.a.f.Name, Problem: Problem{
		Code: format.Limit, Severity: format.Error, Volume: x.a.name, Off: -1, Entry: e.Name, HasEntry: true,
		Message: "extraction stopped: " + what,
	}}
}

// refuse says why an entry must not be extracted.
func (x *extraction) refuse(e Entry) *Problem {
	unsafe := func(class, msg string) *Problem {
		return &Problem{Code: format.UnsafePath, Class: class, Severity: format.Error, Volume: x.a.name, Off: -1, Entry: e.Name, HasEntry: true, Message: msg}
	}
	if e.Fault != nil {
		return e.Fault
	}
	if class := format.NameFault(e.Name); class != "" {
		return unsafe(class, "not extracted: "+format.NameAdvice(class))
	}
	if strings.Count(e.Name, "/") >= x.max.Depth {
		p := unsafe("", fmt.Sprintf("not extracted: more than %d folders deep", x.max.Depth))
		p.Code = format.Limit
		return p
	}
	// First come, first served: the stored order decides, whatever the order in
	// which things get written.
	for dir := path.Dir(e.Name); dir != "."; dir = path.Dir(dir) {
		k, ok := x.made[x.key(dir)]
		if ok && k != format.Dir {
			return unsafe("name-conflict", fmt.Sprintf("not extracted: %q is no folder", dir))
		}
		if ok {
			break
		}
	}
	k, ok := x.made[x.key(e.Name)]
	if ok && (k != format.Dir || e.Kind != format.Dir) {
		return unsafe("name-conflict", "not extracted: an entry before it has this name, or one that the file system takes for the same")
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

// refusedError carries a Problem to where it is reported.
type refusedError struct{ p Problem }

func (e *refusedError) Error() string { return format.Escape(e.p.Entry) + ": " + e.p.Message }

// done counts an entry, or reports it.
func (x *extraction) done(ctx context.Context, e Entry, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.sum.Entries++
		x.sum.Bytes += e.Size
		x.o.Meter.Add(1, 0)
		return nil
	}
	x.sum.Failed++
	if e.Kind.HasContent() {
		x.failed[x.key(e.Name)] = true
	}
	if x.o.OnError == nil {
		return err
	}
	x.o.OnError(problemOf(x.a, e, err), err)
	return nil
}

// problemOf says in the general words what kept an entry from being read or
// written.
func problemOf(a *Archive, e Entry, err error) Problem {
	if r, ok := errors.AsType[*refusedError](err); ok {
		return r.p
	}
	if c, ok := errors.AsType[*format.CorruptError](err); ok {
		return c.Problem
	}
	p := Problem{Code: format.BadData, Severity: format.Error, Volume: a.name, Off: -1, Entry: e.Name, HasEntry: true, Message: err.Error()}
	if errors.Is(err, errExists) {
		p.Code, p.Message = format.Exists, errExists.Error()
	}
	if d, ok := errors.AsType[*DigestError](err); ok {
		p.Code = format.BadChecksum
		p.Message = fmt.Sprintf("expected %s, found %s", d.Want, d.Got)
		if d.Bit >= 0 {
			p.Message += fmt.Sprintf(": bit %d of byte %d is wrong, nothing else", d.Bit%8, d.Bit/8)
		}
		for ext, err := range a.Extents(context.Background(), e) {
			if err == nil {
				p.Volume, p.Off = ext.Object, ext.Off
			}
			break
		}
	}
	if d, ok := errors.AsType[*ProofError](err); ok {
		p.Code, p.Message = format.BadChecksum, d.what()
		for x, err := range a.r.Extents(context.Background(), e, d.Off, d.Len) {
			if err == nil {
				p.Volume, p.Off = x.Object, x.Off
				if x.Codec == codec.Raw {
					p.Off += max(d.Off-x.At, 0)
				}
			}
			break
		}
	}
	return p
}
