// Package pack writes archives: from local files, from objects, and from other archives.
package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/base/glob"
	"github.com/holdall/holdall/internal/base/meter"
	"github.com/holdall/holdall/internal/base/people"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/internal/write/tree"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Options are options for a new archive. Those also in holdall.PackOptions are described there.
type Options struct {
	Format              string
	ChunkSize, ChunkMax int64
	IndexMax            int64 // as in format.CreateOptions
	Plain               bool
	Include, Exclude    []string
	Only                map[string]bool
	Attrs               map[string]Attr
	Follow, Listed      bool
	Time                time.Time
	Prefix              string
	Jobs                int
	Embed               bool
	Refer               string
	Once, Resume        bool
	Param               map[string]string
	NoVerify            bool
	Protect             float64
	OnError             func(name string, err error)
	Meter               *meter.Meter
	Formats             []*format.Format
	Force               bool
	KeepDamaged         bool

	// Unverified has Convert not compare contents whose digests go with them, so that damage still
	// shows. Nothing else may use the source.
	Unverified bool

	// Keep keeps the data that was sent if the pack fails, so that a later pack with Resume can use
	// it. Resume implies Keep.
	Keep bool

	// Lenient also leaves out objects that fail with a temporary error of the server. Without it,
	// such an error ends the pack.
	Lenient bool
	// NoEmpty writes no archive if it would have no entries.
	NoEmpty bool
	// Stale says that objects were listed a while ago. Those listed as empty are then checked
	// again; the others are checked when they are read.
	Stale bool
	// Confirm, if it is not nil, is called when everything is written, before anything becomes
	// visible. If it returns an error, the pack ends.
	Confirm func(ctx context.Context) error
	// Judge, if it is not nil, is called instead of OnError: if it returns an error, the pack
	// ends.
	Judge func(name string, err error) error
	// Copy has the store of the archive copy objects, and ranges of them, of 5 MiB and more by
	// itself, if it can. They are not read: they keep the digest that they come with, if any, and
	// are proven by "copied".
	Copy bool
	// Proven, if it is not nil, is called for each packed object, in order, with its key in
	// Summary.Proven.
	Proven func(by string)
}

// Attr replaces properties of an entry. An empty field keeps the entry's own.
type Attr struct {
	Owner, Group string
	Mode         fs.FileMode
	HasMode      bool
}

// Summary reports what was written; see holdall.Summary.
type Summary struct {
	format.Summary
	Failed      int64
	Dropped     map[string]int64
	LeftOut     []format.Problem
	Unmatched   []string
	Again       []string
	Base        string
	Older       string
	Copied      int64
	Resumed     int64
	Lost        []string
	Kept        int64
	Referred    int64
	Proven      map[string]int64
	Parity      string
	ParityBytes int64
}

const defaultChunkMax = 32 << 30

// ErrNothing means that there was nothing to pack, so no archive was written.
var ErrNothing = errors.New("nothing to pack: no archive is written")

// ReferHere is the value of Options.Refer for references to the present place of the converted
// archive.
const ReferHere = "here"

// Pack makes an archive called name in st from files and folders of this machine, or from addresses
// of objects and folders.
func Pack(ctx context.Context, st store.Store, name string, paths []string, o Options) (Summary, error) {
	switch far := slices.IndexFunc(paths, isFar); {
	case far < 0:
	case o.Listed:
		return Summary{}, fmt.Errorf("%s: a list of files cannot contain addresses: %w", store.Redact(paths[far]), errors.ErrUnsupported)
	case slices.ContainsFunc(paths, func(p string) bool { return !isFar(p) }):
		return Summary{}, fmt.Errorf("%s: addresses and local files cannot be packed together: %w", store.Redact(paths[far]), errors.ErrUnsupported)
	default:
		p, err := newPacker(st, name, o, false)
		if err != nil {
			return Summary{}, err
		}
		p.some = true
		p.guards(output.Guard{Inputs: paths, Skips: true})
		return p.run(ctx, func(ctx context.Context) error { return p.objects(ctx, itemsAt(ctx, paths)) })
	}
	roots, again, err := tree.Roots(paths, o.Listed)
	if err != nil {
		return Summary{}, err
	}
	p, err := newPacker(st, name, o, false)
	if err != nil {
		return Summary{}, err
	}
	p.some = true
	if p.sum.Again = again; len(roots) == 1 && roots[0].Name == "" {
		p.sum.Base = roots[0].Path
	}
	p.guards(output.Guard{Inputs: paths, Skips: true})
	return p.run(ctx, func(ctx context.Context) error { return p.files(ctx, roots) })
}

// guards has the packer refuse to replace what it must not.
func (p *packer) guards(g output.Guard) {
	if !p.o.Once { // otherwise nothing is replaced
		g.Kind, g.Ours, g.Force = "an archive of format "+p.f.Name, p.o.formats().Detects(p.f), p.o.Force
		p.guard = &g
	}
}

func (o Options) formats() format.Formats {
	if o.Formats == nil {
		return format.All()
	}
	return o.Formats
}

// format returns the format to write. Only Convert writes those that are made of the keys of a Zarr hierarchy.
func (o Options) format(name string, converts bool) (*format.Format, error) {
	among := o.formats()
	f := among.ByExtension(name)
	if o.Format != "" {
		if f = among.ByName(o.Format); f == nil {
			_, err := slices.DeleteFunc(slices.Clone(among), func(f *format.Format) bool { return f.Create == nil }).Named(o.Format)
			return nil, err
		}
	}
	if f == nil {
		return nil, fmt.Errorf("%s: no format has this extension: name the format", name)
	}
	switch {
	case f.Create != nil || f.FromZarr != nil && converts:
	case f.FromZarr != nil:
		return nil, fmt.Errorf("%s: %s holds arrays, not files: convert a Zarr hierarchy to it: %w", name, f.Title, errors.ErrUnsupported)
	default:
		return nil, fmt.Errorf("%s archives cannot be written: %w", f.Name, errors.ErrUnsupported)
	}
	return f, f.CheckParams(format.ToCreate, o.Param)
}

func (p *packer) joined() func(a, b format.Entry) int {
	if p.f.Joined == nil {
		return nil
	}
	return p.f.Joined(p.o.Param)
}

// order returns the order that the format wants; nil means any order.
func (p *packer) order() func(a, b format.Entry) int {
	if order := p.joined(); order != nil {
		return order
	}
	return p.f.Order
}

// packer writes entries, in the order in which it gets them, into an archive, or into one chunk
// after the other.
type packer struct {
	o        Options
	f        *format.Format
	to       store.Store     // gets the archive
	st       *storekit.Stage // over what is stored, if to is a layer
	name     string
	carry    [][2]string
	manifest []format.Entry
	referred []bool               // by the order of the source's entries: those that were written as references
	nodes    []tree.Node          // of which the manifest was made
	folders  map[string]bool      // above the names in PackOptions.Only
	seen     map[tree.Same]string // first names of files with several names
	ledger   ledger
	failed   map[string]bool // names that could not be packed
	why      error           // why the last one could not
	people   people.People

	w        format.Writer
	chunk    int
	set      *format.Chunk // the chunk, as passed to the writer
	inChunk  int64
	added    int64 // entries
	sum      Summary
	chunkMax int64
	parity   *parity.Recorder // nil if none is wanted
	guard    *output.Guard    // nil if the caller knows what is replaced
	some     bool             // no entry is an error, not an archive without entries

	unread  int // objects in a row
	sources [2]copySource
	names   *glob.Filter
	refused atomic.Int32 // copies in a row
	perLoad atomic.Int32 // files that are likely to fill a load
	spare   chan *load
}

func newPacker(st store.Store, name string, o Options, converts bool) (*packer, error) {
	names, err := glob.NewFilter(o.Include, o.Exclude)
	if err != nil {
		return nil, err
	}
	f, err := o.format(name, converts)
	if err != nil {
		return nil, err
	}
	p := &packer{o: o, f: f, names: names, to: st, st: storekit.NewStage(storekit.Under(st)), name: name, chunkMax: o.ChunkMax}
	p.perLoad.Store(8)
	if o.Time.IsZero() {
		p.ledger.stored = f.StoredTime
	}
	p.st.Wishes, p.st.Keeps = store.Wishes{Once: o.Once, Resume: o.Resume}, o.Resume || o.Keep
	if o.ChunkSize < 0 || o.ChunkMax < 0 {
		return nil, errors.New("chunk sizes cannot be negative")
	}
	if o.ChunkSize > 0 && !f.Chunked {
		return nil, fmt.Errorf("%s cannot be split into chunks: %w", f.Name, errors.ErrUnsupported)
	}
	if p.chunkMax == 0 && o.ChunkSize > 0 && o.ChunkSize < defaultChunkMax {
		p.chunkMax = defaultChunkMax
	}
	return p, nil
}

// run packs what feed adds, and publishes it if all went well.
func (p *packer) run(ctx context.Context, feed func(context.Context) error) (sum Summary, err error) {
	defer func() {
		sum.Copied, sum.Resumed = p.st.Saved()
		sum.Kept = p.st.Kept()
		sum.Lost, sum.Unmatched = p.lost(), p.names.Unmatched()
	}()
	if err := p.st.Vacant(ctx, p.name); err != nil {
		return p.sum, err
	}
	if p.f.Place != nil {
		place, release, refused := p.f.Place(ctx, p.to, p.name)
		if refused != nil {
			return p.sum, refused
		}
		defer func() { err = errors.Join(err, release()) }()
		p.to, p.st.Store = place, storekit.Under(place)
	}
	if err := p.mayWrite(ctx, 1); err != nil { // known before anything is read
		return p.sum, err
	}
	defer p.closeSources()
	defer p.st.Discard()
	defer func() {
		if p.parity != nil {
			p.parity.Close()
		}
	}()
	defer func() {
		if p.w != nil {
			p.w.Abort()
		}
	}()
	if err := feed(ctx); err != nil {
		return p.sum, err
	}
	if p.o.NoEmpty && p.added == 0 {
		if p.o.Confirm != nil {
			err = p.o.Confirm(ctx)
		}
		return p.sum, err
	}
	if p.added == 0 && (p.some || p.guard != nil && p.sum.Failed > 0) {
		return p.sum, ErrNothing
	}
	if p.w == nil && p.chunk == 0 { // an archive without entries is written too
		if err := p.next(ctx); err != nil {
			return p.sum, err
		}
	}
	if p.set != nil {
		p.set.Last = true
	}
	if err := p.finish(ctx); err != nil {
		return p.sum, err
	}
	if p.parity != nil {
		if err := p.parity.Finish(ctx); err != nil {
			return p.sum, fmt.Errorf("parity: %w", err)
		}
	}
	if err := ctx.Err(); err != nil {
		return p.sum, context.Cause(ctx)
	}
	if p.o.Confirm != nil {
		if err := p.o.Confirm(ctx); err != nil {
			return p.sum, err
		}
	}
	if err := p.st.Publish(ctx); err != nil {
		return p.sum, err
	}
	if p.parity != nil {
		info, err := p.parity.Commit(ctx)
		if err != nil {
			return p.sum, fmt.Errorf("the archive is written, but its parity is not: %w", err)
		}
		p.sum.Parity, p.sum.ParityBytes = info.Name, info.Size
	}
	p.sum.Older = p.older(ctx)
	return p.sum, nil
}

// rowRoom is about how much an archive needs for an entry besides its content and name.
const rowRoom = 1 << 10

// expect starts recording parity, if it is wanted. The sizes are estimates.
func (p *packer) expect(ctx context.Context, entries, names, content int64) {
	if p.o.Protect > 0 {
		p.parity = parity.Record(ctx, p.st, p.name, content+content/128+entries*rowRoom+3*names+1<<20, p.o.Protect)
	}
}

// older returns the name of a chunk after the last one of this set, which an older set left, or "".
func (p *packer) older(ctx context.Context) string {
	if p.o.ChunkSize == 0 {
		return ""
	}
	name := ChunkName(p.name, p.chunk+1, p.f.Extensions[0])
	if _, err := storekit.Briefly(p.st, name).Info(ctx); err != nil {
		return ""
	}
	return name
}

// volume returns the name of the archive, or of a chunk of it.
func (p *packer) volume(chunk int) string {
	if p.o.ChunkSize == 0 {
		return p.name
	}
	return ChunkName(p.name, chunk, p.f.Extensions[0])
}

// mayWrite returns an error if the archive, or a chunk of it, would replace what it must not.
func (p *packer) mayWrite(ctx context.Context, chunk int) error {
	if p.guard == nil {
		return nil
	}
	return p.guard.Check(ctx, p.to, p.volume(chunk))
}

// next begins the archive, or its next chunk.
func (p *packer) next(ctx context.Context) error {
	if p.o.ChunkSize > 0 {
		p.chunk++
		p.set = &format.Chunk{Number: p.chunk}
		if p.chunk > 1 {
			if err := p.mayWrite(ctx, p.chunk); err != nil {
				return err
			}
		}
	}
	name := p.volume(p.chunk)
	st := store.Store(p.st)
	if p.o.Protect > 0 && p.parity == nil {
		p.expect(ctx, 0, 0, 0)
	}
	if p.parity != nil {
		st = p.parity.Store()
	}
	w, err := kit.Create(ctx, p.f, storekit.Over(p.to, st), name, format.CreateOptions{
		ChunkSize: p.o.ChunkSize, ChunkMax: p.chunkMax, IndexMax: p.o.IndexMax, Chunk: p.set, NoDigests: p.o.Plain, Carry: p.carry, Manifest: p.manifest, Param: p.o.Param,
		Scratch: NewScratch,
	})
	if p.w, p.inChunk = w, 0; p.set == nil {
		p.manifest = nil // nothing else needs it
	}
	return err
}

// ChunkName returns the name of a chunk: x.caf becomes x-00001.caf, x-00002.caf, …
func ChunkName(name string, n int, ext string) string {
	dir, base := path.Split(name)
	if e := path.Ext(base); strings.EqualFold(e, ext) && e != base {
		base, ext = strings.TrimSuffix(base, e), e
	}
	return fmt.Sprintf("%s%s-%05d%s", dir, base, n, ext)
}

// NewScratch creates a temporary file, for CreateOptions.Scratch.
func NewScratch() (sorter.Scratch, error) { return sorter.TempFile() }

func (p *packer) finish(ctx context.Context) error {
	if p.w == nil {
		return nil
	}
	w := p.w
	sum, err := w.Commit(ctx)
	if err != nil {
		return err
	}
	p.w = nil
	p.sum.Entries += sum.Entries
	p.sum.Content += sum.Content
	p.sum.Stored += sum.Stored
	p.sum.Shared += sum.Shared
	p.sum.Volumes = append(p.sum.Volumes, sum.Volumes...)
	return nil
}

// source is content whose own failure can be distinguished from the archive's.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// add writes one entry. If the entry cannot be read, or the archive cannot store it, it is reported
// and left out. If the archive cannot be written, add returns the error.
func (p *packer) add(ctx context.Context, e format.Entry, content io.Reader) error {
	if kept, kind := p.keeps(e); !kept {
		p.drop(p.o.Prefix+e.Name, kind)
		return nil
	}
	if tooDeep(e) {
		return p.fail(e.Name[:64]+"...", fmt.Errorf("in more than %d folders, which no file system allows: %w", naming.MostFolders, errors.ErrUnsupported))
	}
	p.note(&e)
	p.adjust(&e)
	if e.Kind == format.HardLink && p.failed[e.Link] {
		return p.fail(e.Name, fmt.Errorf("hard link to %s, which could not be packed", format.Escape(e.Link)))
	}
	if p.w == nil {
		if err := p.next(ctx); err != nil {
			return err
		}
	}
	p.o.Meter.At(e.Name, e.Size)
	err := p.w.Add(ctx, e, content)
	if errors.Is(err, format.ErrFull) && p.o.ChunkSize > 0 {
		if err = p.finish(ctx); err == nil {
			if err = p.next(ctx); err == nil {
				err = p.w.Add(ctx, e, content)
			}
		}
		if err != nil && !entryFault(err, content) {
			return err
		}
	}
	if err != nil {
		if ctx.Err() != nil || !entryFault(err, content) {
			return err
		}
		if wrong, ok := errors.AsType[*SumError](err); ok && !wrong.again {
			return err // it is read again
		}
		return p.fail(e.Name, err)
	}
	p.added++
	p.o.Meter.Done(e.Name)
	switch c := content.(type) {
	case *digest.Ahead, *pieceReader:
		p.o.Meter.Add(1, 0)
	case *kit.Section:
		if c.Address != "" {
			p.sum.Referred++
		}
		if c.Sum == nil {
			p.o.Meter.Add(0, e.Size)
		}
		p.o.Meter.Add(1, 0)
	default:
		p.o.Meter.Add(1, e.Size)
	}
	return nil
}

func tooDeep(e format.Entry) bool { return strings.Count(e.Name, "/") >= naming.MostFolders }

func (p *packer) adjust(e *format.Entry) {
	if a, ok := p.o.Attrs[e.Name]; ok {
		e.Owner, e.Group = cmp.Or(a.Owner, e.Owner), cmp.Or(a.Group, e.Group)
		if a.HasMode {
			e.Mode, e.HasMode = a.Mode, true
		}
	}
	if e.Kind == format.Property && p.f.Keeps&format.KeepsProperties == 0 {
		e.Kind = format.File
	}
	e.Name = p.o.Prefix + e.Name
	if e.Kind == format.HardLink {
		e.Link = p.o.Prefix + e.Link
	}
	if !p.o.Time.IsZero() {
		e.ModTime = p.o.Time
	}
}

// entryFault reports whether err is about one entry and not about the archive.
func entryFault(err error, content io.Reader) bool {
	if s, ok := content.(interface{ Failed() error }); ok && s.Failed() != nil {
		return true
	}
	if _, ok := errors.AsType[*kit.SizeError](err); ok {
		return true
	}
	if errors.Is(err, store.ErrChanged) {
		return true // the output does not change meanwhile, an input may
	}
	_, ok := errors.AsType[kit.EntryError](err)
	return ok
}

func (s *source) Failed() error { return s.err }

func (p *packer) fail(name string, err error) error {
	p.sum.Failed++
	p.why = err
	p.sum.leave(name, "", err.Error())
	if p.failed == nil {
		p.failed = map[string]bool{}
	}
	p.failed[name] = true
	if p.o.Judge != nil {
		return p.o.Judge(name, err)
	}
	if p.o.OnError == nil {
		return err
	}
	p.o.OnError(name, err)
	return nil
}

// keepsHeaders reports whether the archive can store headers of objects.
func (p *packer) keepsHeaders() bool { return p.f.Keeps&format.KeepsHeaders != 0 && !p.o.Plain }

// keeps reports whether the format can store e, and returns the word for e's kind.
func (p *packer) keeps(e format.Entry) (bool, string) {
	return e.Kind == format.Property || p.f.Holds(e.Kind), e.Kind.String() // properties become files
}

// ErrImmutable means that archives of a format cannot be changed in place. It matches
// [errors.ErrUnsupported].
var ErrImmutable error = immutable{}

type immutable struct{}

func (immutable) Error() string { return "immutable format" }

func (immutable) Is(target error) bool { return target == errors.ErrUnsupported }
