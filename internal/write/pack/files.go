package pack

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/read/digest"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/tree"
)

// load is a run of files that are read together.
type load struct {
	nodes []tree.Node
	buf   []byte
	files []loaded
}

type loaded struct {
	entry format.Entry
	at    int // in the load's buffer; -1 if the file does not fit
	err   error
}

const (
	loadSize  = 1 << 20 // buffer of a load
	loadFiles = 64      // files in a load: enough to make the handover cheap
	smallFile = 256 << 10
)

func (p *packer) files(ctx context.Context, roots []tree.Root) error {
	own := p.ownFiles()
	if p.f.WantsManifest {
		if err := p.list(ctx, roots, own); err != nil {
			return err
		}
	} else if p.o.Protect > 0 {
		p.count(ctx, roots)
	} else if p.o.Meter.WantsTotal() {
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
	p.spare = make(chan *load, 2*jobs+2) // loads are reused: as many as can be in use
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

// count counts what there is to pack, for the meter and for parity. For parity it runs before
// packing; otherwise at the same time.
func (p *packer) count(ctx context.Context, roots []tree.Root) {
	var n, names, bytes, all int64
	for node := range tree.Walk(ctx, roots, tree.Options{Names: p.names, Follow: p.o.Follow, Stat: true}) {
		all, names = all+1, names+int64(len(node.Name))
		if node.Err == nil && node.Type.IsRegular() {
			n, bytes = n+1, bytes+node.Info.Size()
		}
	}
	if ctx.Err() == nil {
		p.o.Meter.Expect(n, bytes)
		p.expect(ctx, all, names, bytes)
	}
}

// list fills in the manifest, and keeps the nodes, so that the tree is walked only once. The
// manifest is a forecast: files may still change before they are packed.
func (p *packer) list(ctx context.Context, roots []tree.Root, own func(string) bool) error {
	var n, names, bytes int64
	order := p.order()
	for node := range tree.Walk(ctx, roots, tree.Options{Names: p.names, Follow: p.o.Follow, Stat: true}) {
		if !p.wants(node) {
			continue
		}
		names += int64(len(node.Name))
		if (node.Type.IsRegular() || node.Type.IsDir()) && own(node.Path) {
			continue
		}
		if node.Err == nil && node.Type.IsRegular() {
			n, bytes = n+1, bytes+node.Info.Size()
		}
		if order == nil {
			p.forecast(&node)
		}
		p.nodes = append(p.nodes, node)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if order != nil {
		slices.SortStableFunc(p.nodes, func(a, b tree.Node) int { return order(placed(a), placed(b)) })
		for i := range p.nodes {
			p.forecast(&p.nodes[i])
		}
	}
	if p.o.Meter.WantsTotal() {
		p.o.Meter.Expect(n, bytes)
	}
	p.expect(ctx, int64(len(p.nodes)), names, bytes)
	return nil
}

// forecast adds a node to the manifest, and takes from it what is requested again when the file is
// read.
func (p *packer) forecast(node *tree.Node) {
	p.findHardLink(node)
	if node.Err != nil {
		return
	}
	e := p.entryOf(*node)
	if node.Type.IsRegular() {
		e.Size = node.Info.Size()
		if e.Kind == format.HardLink {
			e.Size = 0
		}
		node.Info = nil
	}
	if kept, _ := p.keeps(e); kept && (node.Type.IsRegular() || e.Kind != format.File) {
		p.adjust(&e)
		p.manifest = append(p.manifest, e)
	}
}

// wants reports whether a node is to be packed.
func (p *packer) wants(n tree.Node) bool {
	if p.o.Only == nil {
		return true
	}
	if p.folders == nil {
		p.folders = map[string]bool{}
		for name := range p.o.Only {
			for dir := path.Dir(name); dir != "." && !p.folders[dir]; dir = path.Dir(dir) {
				p.folders[dir] = true
			}
		}
	}
	return p.o.Only[n.Name] || n.Type.IsDir() && p.folders[n.Name]
}

// placed returns the properties of a node that determine its place.
func placed(n tree.Node) format.Entry {
	e := format.Entry{Name: n.Name}
	if n.Type.IsDir() {
		e.Kind = format.Dir
	}
	return e
}

// findHardLink sets n.First if a node is another name of an earlier file. Nodes must come in the
// order in which they will be packed. It stores only files with several names.
func (p *packer) findHardLink(n *tree.Node) {
	if p.f.Keeps&format.KeepsHardLinks == 0 || n.Err != nil || !n.Type.IsRegular() || n.Info == nil {
		return
	}
	same, several := tree.SameOf(n.Info)
	if !several {
		return
	}
	if first, again := p.seen[same]; again {
		n.First = first
		return
	}
	if p.seen == nil {
		p.seen = map[tree.Same]string{}
	}
	p.seen[same] = n.Name
}

// EntryOf returns the entry of a node in an archive, without a file's size and digest. It returns
// false for a node that is not packed.
func EntryOf(n tree.Node) (format.Entry, bool) {
	e := format.Entry{Name: n.Name, Link: n.Link}
	ok := true
	switch {
	case n.Type.IsRegular():
	case n.Type.IsDir():
		e.Kind = format.Dir
	case n.Type == fs.ModeSymlink:
		e.Kind = format.Symlink
	case n.Type == fs.ModeNamedPipe:
		e.Kind = format.Fifo
	default:
		ok = false
	}
	if n.Info != nil {
		e.Mode, e.HasMode, e.ModTime = n.Info.Mode(), true, n.Info.ModTime()
	}
	return e, ok
}

// entryOf is EntryOf with hard links and owners, if the archive keeps them.
func (p *packer) entryOf(n tree.Node) format.Entry {
	e, _ := EntryOf(n)
	if n.First != "" {
		e.Kind, e.Link = format.HardLink, n.First
	}
	if n.Info != nil && p.f.Keeps&format.KeepsOwners != 0 {
		if uid, gid, ok := tree.OwnerOf(n.Info); ok {
			e.Owner, e.Group = p.people.User(uid), p.people.Group(gid)
		}
	}
	return e
}

// loads divides the nodes into loads.
func (p *packer) loads(ctx context.Context, roots []tree.Root, own func(string) bool) iter.Seq2[*load, error] {
	const metadata = format.KeepsDirs | format.KeepsSymlinks | format.KeepsHardLinks | format.KeepsFifos
	o := tree.Options{Names: p.names, Follow: p.o.Follow, Stat: p.f.Keeps&metadata != 0}
	return func(yield func(*load, error) bool) {
		l := p.newLoad()
		nodes := tree.Walk(ctx, roots, o)
		if p.nodes != nil {
			nodes = slices.Values(p.nodes)
			own = func(string) bool { return false } // left out already
		}
		for n := range nodes {
			if (n.Type.IsRegular() || n.Type.IsDir()) && own(n.Path) || !p.wants(n) {
				continue
			}
			if p.nodes == nil {
				p.findHardLink(&n)
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

// ownFiles returns a function that reports whether a file belongs to the archive being written, or
// to the one it replaces, or to its parity. Such files, which may lie within the input, are not
// packed.
func (p *packer) ownFiles() func(string) bool {
	owns := p.to.Can().Owns
	if owns == nil {
		return func(string) bool { return false }
	}
	own := p.ownArchive(owns)
	if p.o.Protect == 0 {
		return own
	}
	return func(file string) bool {
		return own(file) || strings.HasSuffix(file, parity.Suffix) && slices.ContainsFunc(p.parityNames(), func(name string) bool { return owns(file, name) })
	}
}

// parityNames returns the names that the archive's parity may have.
func (p *packer) parityNames() []string {
	if p.o.Protect == 0 {
		return nil
	}
	if p.o.ChunkSize > 0 {
		return parity.Names(ChunkName(p.name, 1, p.f.Extensions[0]))
	}
	return parity.Names(p.name)
}

func (p *packer) ownArchive(owns func(path, object string) bool) func(string) bool {
	if p.o.ChunkSize == 0 {
		return func(file string) bool { return owns(file, p.name) }
	}
	stem, _, _ := strings.Cut(ChunkName(p.name, 0, p.f.Extensions[0]), "00000")
	return func(file string) bool {
		base := filepath.Base(file)
		if !strings.Contains(base, path.Base(stem)) {
			return false
		}
		return owns(file, path.Join(path.Dir(stem), base)) || owns(file, ChunkName(p.name, max(p.chunk, 1), p.f.Extensions[0]))
	}
}

// digests returns the algorithm of the archive's digests, or "" if it has none.
func (p *packer) digests() string {
	if p.f.Keeps&format.KeepsDigests == 0 || p.o.Plain && !p.f.NeedsDigests {
		return ""
	}
	return cmp.Or(p.f.Digest, "blake3")
}

// read fills a load. Files beyond its buffer are opened only when their turn comes, so that at
// most a few are open at once.
func (p *packer) read(l *load) {
	used := 0
	algo := p.digests()
	for _, n := range l.nodes {
		f := loaded{entry: p.entryOf(n), at: used, err: n.Err}
		switch {
		case n.Err != nil || f.entry.Kind != format.File && f.entry.Kind != format.HardLink:
		case !n.Type.IsRegular():
			f.err = tree.ErrSpecial
		case f.entry.Kind == format.HardLink:
			f.err = p.statLink(n, &f.entry)
		default:
			room := l.buf[used:min(len(l.buf), used+smallFile)]
			m, k, rest, err := tree.Load(n.Path, room, p.o.Follow || n.Root)
			if f.err = err; err != nil {
				break
			}
			p.describe(&f.entry, m)
			if rest != nil {
				rest.Close()
				f.at = -1
				break
			}
			if algo != "" {
				f.entry.Digest, _ = digest.Of(algo, l.buf[used:used+k])
			}
			used += k
		}
		l.files = append(l.files, f)
	}
	if used > 0 {
		p.perLoad.Store(int32(min(max(loadSize*3/4*len(l.nodes)/used, 1), loadFiles)))
	}
}

func (p *packer) describe(e *format.Entry, m tree.Meta) {
	p.ledger.read(m)
	e.Size, e.Mode, e.HasMode, e.ModTime = m.Size, m.Mode, true, m.ModTime
	if p.f.Keeps&format.KeepsOwners != 0 && m.UID >= 0 {
		e.Owner, e.Group = p.people.User(m.UID), p.people.Group(m.GID)
	}
}

// statLink describes another name of a file, which has no content of its own.
func (p *packer) statLink(n tree.Node, e *format.Entry) error {
	info, err := os.Lstat(n.Path)
	if err != nil {
		return err
	}
	n.Info = info
	*e = p.entryOf(n)
	return nil
}

func (p *packer) write(ctx context.Context, l *load) error {
	var r byteReader
	for i := range l.files {
		f := &l.files[i]
		var err error
		switch {
		case f.err != nil:
			err = p.fail(p.o.Prefix+f.entry.Name, f.err)
		case f.entry.Kind == format.Dir && p.f.Keeps&format.KeepsDirs == 0 && !l.nodes[i].Bare:
			// Nothing is lost: the names of the entries in it imply it.
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

// addLarge adds a file, reading it as the entry is written.
func (p *packer) addLarge(ctx context.Context, n tree.Node, e format.Entry) error {
	algo := p.digests()
	if algo != "" && p.f.Copies {
		if err := p.addCopied(ctx, n, e); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	m, _, file, err := tree.Load(n.Path, nil, p.o.Follow || n.Root)
	if err != nil {
		return p.fail(p.o.Prefix+e.Name, err)
	}
	defer file.Close()
	p.describe(&e, m)
	r := digest.NewAhead(file, digest.AheadOptions{Algo: algo, Length: -1, Meter: p.o.Meter})
	defer r.Close()
	return p.add(ctx, e, r)
}

// addCopied adds a file that the store copies by itself; it is read only for its digest. If that is
// not possible, it adds nothing and returns errors.ErrUnsupported.
func (p *packer) addCopied(ctx context.Context, n tree.Node, e format.Entry) error {
	adopt := p.to.Can().Adopt
	if adopt == nil || p.parity != nil {
		return errors.ErrUnsupported
	}
	m, _, file, err := tree.Load(n.Path, nil, p.o.Follow || n.Root)
	if err != nil {
		return p.fail(p.o.Prefix+e.Name, err)
	}
	o, err := adopt(file)
	if err != nil {
		file.Close()
		return errors.ErrUnsupported
	}
	defer o.Close()
	p.describe(&e, m)
	section := kit.NewSection(ctx, o, 0, e.Size)
	wait, stop := digest.Aside(ctx, o, p.digests(), e.Size, p.o.Meter)
	defer stop()
	section.Sum = wait
	err = p.add(ctx, e, section)
	if err != nil && ctx.Err() == nil {
		// A copy does not show whether reading or writing failed. Reading and writing separately
		// does.
		return errors.ErrUnsupported
	}
	return err
}

// byteReader is a minimal bytes.Reader. It returns everything that it has at once.
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
