package holdall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/pipe"
	"github.com/holdall/holdall/internal/tree"
	"github.com/holdall/holdall/store"
)

// PackOptions are wishes for a new archive.
type PackOptions struct {
	// Format names the format; empty takes it from the archive's name.
	Format string `json:"format,omitempty"`
	// ChunkSize makes a chunked format roll over into NAME-00001, NAME-00002, …
	// when the next file would take a chunk's content over it. ChunkMax bounds a
	// whole chunk; 0 is 32 GiB, or no bound if ChunkSize is larger.
	ChunkSize int64 `json:"chunk_size,omitempty"`
	ChunkMax  int64 `json:"chunk_max,omitempty"`
	// Plain writes the bare format, without the digests that we add.
	Plain bool `json:"plain,omitempty"`
	// Exclude are patterns of names to leave out; see the command's help.
	Exclude []string `json:"exclude,omitempty"`
	// Follow packs what symlinks to files point to.
	Follow bool `json:"follow,omitempty"`
	// Listed says that the paths were listed one by one: each keeps its whole
	// name, and folders bring nothing that is in them.
	Listed bool `json:"listed,omitempty"`
	// Prefix is put in front of every name.
	Prefix string `json:"prefix,omitempty"`
	// Jobs is how many files are read at once; 0 suits the machine.
	Jobs int `json:"jobs,omitempty"`
	// Param holds what only the format understands.
	Param map[string]string `json:"param,omitempty"`

	// OnError is told of each entry that could not be packed; the others are.
	// Without it the first one ends the pack.
	OnError func(name string, err error) `json:"-"`
	// Meter counts.
	Meter *Meter `json:"-"`
	// Formats replaces the registered formats.
	Formats []*format.Format `json:"-"`
}

// Summary says what was written.
type Summary struct {
	format.Summary
	Failed int64 `json:"failed,omitempty"`
	// Dropped counts what the format has no place for, by its kind: "symlink".
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// Older is a chunk that was there before and is no part of this set: what
	// it belongs to had more chunks.
	Older string `json:"older,omitempty"`
}

const defaultChunkMax = 32 << 30

// Pack makes an archive at address from files and folders of this machine. One
// folder alone gives its contents; several paths are told apart by their names.
// The archive, all its chunks included, appears whole or not at all.
func Pack(ctx context.Context, address string, paths []string, o PackOptions) (Summary, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return Summary{}, err
	}
	return PackStore(ctx, st, name, paths, o)
}

// PackStore is Pack into a given store.
func PackStore(ctx context.Context, st store.Store, name string, paths []string, o PackOptions) (Summary, error) {
	roots, err := tree.Roots(paths, o.Listed)
	if err != nil {
		return Summary{}, err
	}
	if err := tree.CheckPatterns(o.Exclude); err != nil {
		return Summary{}, err
	}
	f, err := o.format(name)
	if err != nil {
		return Summary{}, err
	}
	p, err := newPacker(st, name, f, o)
	if err != nil {
		return Summary{}, err
	}
	return p.run(ctx, func(ctx context.Context) error { return p.files(ctx, roots) })
}

func (o PackOptions) format(name string) (*format.Format, error) {
	among := o.Formats
	if among == nil {
		among = format.All()
	}
	f := format.ByExtension(among, name)
	if o.Format != "" {
		if f = format.ByName(among, o.Format); f == nil {
			return nil, unknownFormat(o.Format, among)
		}
	}
	if f == nil {
		return nil, fmt.Errorf("%s: the name does not say which format to write: name one", name)
	}
	if f.Create == nil {
		return nil, fmt.Errorf("%s archives cannot be written: %w", f.Name, errors.ErrUnsupported)
	}
	return f, nil
}

// packer writes entries, in the order in which it gets them, into one archive
// or one chunk after the other.
type packer struct {
	o     PackOptions
	f     *format.Format
	st    *store.Stage
	name  string
	carry [][2]string

	w        format.Writer
	chunk    int
	inChunk  int64
	sum      Summary
	chunkMax int64

	perLoad atomic.Int32 // files that are likely to fill a load
	spare   chan *load
}

func newPacker(st store.Store, name string, f *format.Format, o PackOptions) (*packer, error) {
	p := &packer{o: o, f: f, st: store.NewStage(st), name: name, chunkMax: o.ChunkMax}
	p.perLoad.Store(8)
	if o.ChunkSize < 0 || o.ChunkMax < 0 {
		return nil, errors.New("chunk sizes cannot be negative")
	}
	if o.ChunkSize > 0 && !f.Chunked {
		return nil, fmt.Errorf("%s does not roll over into chunks: %w", f.Name, errors.ErrUnsupported)
	}
	if p.chunkMax == 0 && o.ChunkSize > 0 && o.ChunkSize < defaultChunkMax {
		p.chunkMax = defaultChunkMax
	}
	return p, nil
}

// run packs what feed adds, and publishes it if all went well.
func (p *packer) run(ctx context.Context, feed func(context.Context) error) (Summary, error) {
	defer p.st.Discard()
	defer func() {
		if p.w != nil {
			p.w.Abort()
		}
	}()
	if err := feed(ctx); err != nil {
		return p.sum, err
	}
	if p.w == nil && p.chunk == 0 { // an archive of nothing is an archive
		if err := p.next(ctx); err != nil {
			return p.sum, err
		}
	}
	if err := p.finish(ctx); err != nil {
		return p.sum, err
	}
	if err := ctx.Err(); err != nil {
		return p.sum, context.Cause(ctx)
	}
	if err := p.st.Publish(ctx); err != nil {
		return p.sum, err
	}
	p.sum.Older = p.older(ctx)
	return p.sum, nil
}

// older finds the chunk behind the last of this set, if there is one.
func (p *packer) older(ctx context.Context) string {
	if p.o.ChunkSize == 0 {
		return ""
	}
	name := chunkName(p.name, p.chunk+1, p.f.Extensions[0])
	o, err := p.st.Open(ctx, name)
	if err != nil {
		return ""
	}
	defer o.Close()
	if _, err := o.Info(ctx); err != nil {
		return ""
	}
	return name
}

// next begins the archive, or its next chunk.
func (p *packer) next(ctx context.Context) error {
	name := p.name
	if p.o.ChunkSize > 0 {
		p.chunk++
		name = chunkName(p.name, p.chunk, p.f.Extensions[0])
	}
	w, err := p.f.Create(ctx, p.st, name, format.CreateOptions{
		ChunkSize: p.o.ChunkSize, ChunkMax: p.chunkMax, NoDigests: p.o.Plain, Carry: p.carry, Param: p.o.Param,
		Scratch: newScratch,
	})
	p.w, p.inChunk = w, 0
	return err
}

// chunkName numbers a chunk: x.caf is x-00001.caf, x-00002.caf, …
func chunkName(name string, n int, ext string) string {
	dir, base := path.Split(name)
	if e := path.Ext(base); strings.EqualFold(e, ext) && e != base {
		base, ext = strings.TrimSuffix(base, e), e
	}
	return fmt.Sprintf("%s%s-%05d%s", dir, base, n, ext)
}

func newScratch() (format.Scratch, error) {
	f, err := os.CreateTemp("", "holdall-scratch-")
	if err != nil {
		return nil, err
	}
	// Without a name it goes with us, however we end.
	if os.Remove(f.Name()) == nil {
		return f, nil
	}
	return scratch{f}, nil
}

// scratch is a temporary file where an open one cannot be removed.
type scratch struct{ *os.File }

func (s scratch) Close() error { return errors.Join(s.File.Close(), os.Remove(s.Name())) }

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
	p.sum.Volumes = append(p.sum.Volumes, sum.Volumes...)
	return nil
}

// source is content whose own failure can be told from the archive's.
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

// add writes one entry. An entry that cannot be read or has no place in the
// archive is reported and left out; an archive that cannot be written is the
// end.
func (p *packer) add(ctx context.Context, e Entry, content io.Reader) error {
	if kept, kind := p.keeps(e); !kept {
		if p.sum.Dropped == nil {
			p.sum.Dropped = map[string]int64{}
		}
		p.sum.Dropped[kind]++
		return nil
	}
	e.Name = p.o.Prefix + e.Name
	if p.w == nil {
		if err := p.next(ctx); err != nil {
			return err
		}
	}
	err := p.w.Add(ctx, e, content)
	if errors.Is(err, format.ErrFull) && p.o.ChunkSize > 0 {
		if err = p.finish(ctx); err == nil {
			if err = p.next(ctx); err == nil {
				err = p.w.Add(ctx, e, content)
			}
		}
		if err != nil && !p.entryFault(err, content) {
			return err
		}
	}
	if err != nil {
		if ctx.Err() != nil || !p.entryFault(err, content) {
			return err
		}
		return p.fail(e.Name, err)
	}
	switch c := content.(type) {
	case *readAhead:
		p.o.Meter.add(1, 0)
	case *format.Section:
		if c.Sum == nil {
			p.o.Meter.add(0, e.Size)
		}
		p.o.Meter.add(1, 0)
	default:
		p.o.Meter.add(1, e.Size)
	}
	return nil
}

// entryFault reports whether err is about one entry and not about the archive.
func (p *packer) entryFault(err error, content io.Reader) bool {
	if s, ok := content.(interface{ failed() error }); ok && s.failed() != nil {
		return true
	}
	if _, ok := errors.AsType[*format.SizeError](err); ok {
		return true
	}
	if errors.Is(err, store.ErrChanged) {
		return true // what is written does not change under us, what is read may
	}
	_, ok := errors.AsType[format.EntryError](err)
	return ok
}

func (s *source) failed() error { return s.err }

func (p *packer) fail(name string, err error) error {
	p.sum.Failed++
	if p.o.OnError == nil {
		return err
	}
	p.o.OnError(name, err)
	return nil
}

// keeps reports whether the format has a place for e, else the word for what it
// is. A folder with something in it is no loss: names imply it.
func (p *packer) keeps(e Entry) (bool, string) {
	need := map[format.Kind]format.Keeps{
		format.Dir: format.KeepsDirs, format.Symlink: format.KeepsSymlinks,
		format.HardLink: format.KeepsHardLinks, format.Fifo: format.KeepsFifos,
	}[e.Kind]
	return p.f.Keeps&need == need, e.Kind.String()
}

// load is a run of small files read together, or one large one.
type load struct {
	nodes []tree.Node
	buf   []byte
	files []loaded
}

type loaded struct {
	entry Entry
	at    int // in the load's buffer; -1 for a file that has no room there
	err   error
}

const (
	loadSize  = 1 << 20 // buffer of a load
	loadFiles = 64      // files in a load: enough to make handing it on cheap
	smallFile = 256 << 10
)

// files packs what lies at roots: files are read ahead, several at once, and
// written in order.
func (p *packer) files(ctx context.Context, roots []tree.Root) error {
	own := p.ownFiles()
	if p.o.Meter.wantsTotal() {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { p.count(ctx, roots) })
	}
	jobs := p.o.Jobs
	if jobs <= 0 {
		jobs = min(max(runtime.GOMAXPROCS(0), 2), 8)
	}
	p.spare = make(chan *load, 2*jobs+2) // loads go round: as many as can be under way
	return pipe.Ordered(ctx, p.loads(ctx, roots, own), jobs,
		func(_ context.Context, l *load) { p.read(l) },
		func(l *load) error {
			defer p.reuse(l)
			return p.write(ctx, l)
		}, p.reuse)
}

func (p *packer) newLoad() *load {
	select {
	case l := <-p.spare:
		return l
	default:
		return &load{buf: make([]byte, loadSize)}
	}
}

func (p *packer) reuse(l *load) {
	l.nodes, l.files = l.nodes[:0], l.files[:0]
	select {
	case p.spare <- l:
	default:
	}
}

// count tells the meter how much there is to pack, while it is being packed.
func (p *packer) count(ctx context.Context, roots []tree.Root) {
	var n, bytes int64
	for node := range tree.Walk(ctx, roots, tree.Options{Exclude: p.o.Exclude, Follow: p.o.Follow, Stat: true}) {
		if node.Err == nil && node.Type.IsRegular() {
			n, bytes = n+1, bytes+node.Info.Size()
		}
	}
	if ctx.Err() == nil {
		p.o.Meter.expect(n, bytes)
	}
}

// loads cuts a walk into loads.
func (p *packer) loads(ctx context.Context, roots []tree.Root, own func(string) bool) iter.Seq2[*load, error] {
	const metadata = format.KeepsDirs | format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos
	o := tree.Options{Exclude: p.o.Exclude, Follow: p.o.Follow, Stat: p.f.Keeps&metadata != 0}
	return func(yield func(*load, error) bool) {
		l := p.newLoad()
		for n := range tree.Walk(ctx, roots, o) {
			if n.Err == nil && n.Type.IsRegular() && own(n.Path) {
				continue
			}
			l.nodes = append(l.nodes, n)
			if len(l.nodes) >= int(p.perLoad.Load()) {
				if !yield(l, nil) {
					return
				}
				l = p.newLoad()
			}
		}
		if len(l.nodes) > 0 {
			yield(l, nil)
		}
	}
}

// ownFiles tells the archive that is being written, and the one it replaces,
// from what is to be packed: the output may lie within the input.
func (p *packer) ownFiles() func(string) bool {
	own, ok := p.st.Store.(interface {
		Owns(path, object string) bool
	})
	if !ok {
		return func(string) bool { return false }
	}
	if p.o.ChunkSize == 0 {
		return func(file string) bool { return own.Owns(file, p.name) }
	}
	stem, _, _ := strings.Cut(chunkName(p.name, 0, p.f.Extensions[0]), "00000")
	return func(file string) bool {
		base := filepath.Base(file)
		if !strings.Contains(base, path.Base(stem)) {
			return false
		}
		return own.Owns(file, path.Join(path.Dir(stem), base)) || own.Owns(file, chunkName(p.name, max(p.chunk, 1), p.f.Extensions[0]))
	}
}

// read fills a load. Files beyond its buffer are opened only when their turn
// comes, so that no more than a few are open at once.
func (p *packer) read(l *load) {
	used := 0
	digest := p.f.Keeps&format.KeepsDigests != 0 && !p.o.Plain
	for _, n := range l.nodes {
		f := loaded{entry: Entry{Name: n.Name, Link: n.Link}, at: used, err: n.Err}
		switch {
		case n.Err != nil:
		case n.Type.IsDir():
			f.entry.Kind = format.Dir
		case n.Type == fs.ModeSymlink:
			f.entry.Kind = format.Symlink
		case n.Type == fs.ModeNamedPipe:
			f.entry.Kind = format.Fifo
		case !n.Type.IsRegular():
			f.err = errSpecial
		default:
			room := l.buf[used:min(len(l.buf), used+smallFile)]
			m, k, rest, err := tree.Load(n.Path, room, p.o.Follow || n.Root)
			if f.err = err; err != nil {
				break
			}
			f.entry.Size, f.entry.Mode, f.entry.HasMode, f.entry.ModTime = m.Size, m.Mode, true, m.ModTime
			if rest != nil {
				rest.Close()
				f.at = -1
				break
			}
			if digest {
				f.entry.Digest, _ = sumOf("blake3", l.buf[used:used+k])
			}
			used += k
		}
		if n.Info != nil && f.err == nil && f.entry.Kind != format.File {
			f.entry.Mode, f.entry.HasMode, f.entry.ModTime = n.Info.Mode(), true, n.Info.ModTime()
		}
		l.files = append(l.files, f)
	}
	if used > 0 {
		p.perLoad.Store(int32(min(max(loadSize*3/4*len(l.nodes)/used, 1), loadFiles)))
	}
}

var errSpecial = errors.New("a socket or device is not packed")

// write adds a load's entries.
func (p *packer) write(ctx context.Context, l *load) error {
	var r byteReader
	for i := range l.files {
		f := &l.files[i]
		var err error
		switch {
		case f.err != nil:
			err = p.fail(p.o.Prefix+f.entry.Name, f.err)
		case f.entry.Kind == format.Dir && p.f.Keeps&format.KeepsDirs == 0 && !l.nodes[i].Bare:
			// Nothing is lost: the names of what is in it imply it.
		case f.at >= 0:
			r.b = l.buf[f.at:]
			if f.entry.Kind == format.File {
				r.b = r.b[:f.entry.Size]
			} else {
				r.b = nil
			}
			err = p.add(ctx, f.entry, &r)
		default:
			err = p.addLarge(ctx, l.nodes[i], f.entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addLarge adds a file that is read while it is written.
func (p *packer) addLarge(ctx context.Context, n tree.Node, e Entry) error {
	digest := p.f.Keeps&format.KeepsDigests != 0 && !p.o.Plain
	if digest {
		if err := p.addCopied(ctx, n, e); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	m, _, file, err := tree.Load(n.Path, nil, p.o.Follow || n.Root)
	if err != nil {
		return p.fail(p.o.Prefix+e.Name, err)
	}
	defer file.Close()
	e.Size = m.Size
	r := newReadAhead(file, digest, p.o.Meter)
	defer r.Close()
	return p.add(ctx, e, r)
}

// addCopied adds a file that the store copies by itself, while it is read for
// its digest alone. It says errors.ErrUnsupported, and has added nothing, where
// that is not possible.
func (p *packer) addCopied(ctx context.Context, n tree.Node, e Entry) error {
	st, ok := p.st.Store.(interface {
		Adopt(*os.File) (store.Object, error)
	})
	if !ok {
		return errors.ErrUnsupported
	}
	m, _, file, err := tree.Load(n.Path, nil, p.o.Follow || n.Root)
	if err != nil {
		return p.fail(p.o.Prefix+e.Name, err)
	}
	o, err := st.Adopt(file)
	if err != nil {
		file.Close()
		return errors.ErrUnsupported
	}
	defer o.Close()
	e.Size = m.Size
	section := format.NewSection(ctx, o, 0, e.Size)
	wait, stop := sumAside(ctx, o, e.Size, p.o.Meter)
	defer stop()
	section.Sum = wait
	err = p.add(ctx, e, section)
	if err != nil && ctx.Err() == nil {
		// Whether reading or writing failed cannot be told from a copy: the
		// long way round can.
		return errors.ErrUnsupported
	}
	return err
}

// byteReader is bytes.Reader without what a pack has no use for. It hands over
// what it has at once.
type byteReader struct{ b []byte }

func (r *byteReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// WriteTo saves the copy that Read makes.
func (r *byteReader) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r.b)
	r.b = r.b[n:]
	return int64(n), err
}
