package tar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/internal/charset"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/columns"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// reader is an open archive.
type reader struct {
	obj    store.Object
	name   string
	size   int64
	codec  string // codec.Raw for a plain tar
	limit  int64
	decode func(string) string // names in headers; nil for UTF-8
	once   bool
	doubt  atomic.Pointer[format.Problem] // the first thing that is lost, as far as the tar was read

	kit.LateIndex
	mu   sync.Mutex
	held *contents // nil until it is requested
}

// mostNotes is the number of problems that are reported.
const mostNotes = 1000

// contents is the result of reading all headers.
type contents struct {
	table
	index  *kit.Index
	frames []frame
	wrong  damaged
	notes  []format.Problem
}

func open(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Reader, error) {
	r, err := openReader(ctx, st, name, o)
	if err != nil {
		return nil, err // a typed nil is not nil
	}
	return r, nil
}

func openReader(ctx context.Context, st store.Store, name string, o format.OpenOptions) (_ *reader, err error) {
	decode, err := charset.Of("tar", o.Param)
	if err != nil {
		return nil, err
	}
	obj, head, size, err := kit.OpenPart(ctx, st, name, blockSize, storekit.ReadHead)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			obj.Close()
		}
	}()
	r := &reader{decode: decode, obj: obj, name: name, size: size, codec: codecOf(head), limit: o.Limits.OrDefault().Index}
	r.Load = func(ctx context.Context) (*kit.Index, error) {
		c, err := r.load(ctx)
		if err != nil {
			return nil, err
		}
		return c.index, nil
	}
	// Extents need the end of a frame, which is known only after everything in it.
	if r.once = o.Once && r.codec == codec.Raw; r.once {
		return r, nil
	}
	_, err = r.load(ctx)
	return r, err
}

// walk visits all members. It reports problems, and continues at the next header.
func (r *reader) walk(ctx context.Context, src *source, each func(*member) error, note func(format.Problem)) error {
	s := newScanner(src)
	s.decode = r.decode
	s.note = func(p format.Problem) {
		p.Volume = r.name
		if r.codec != codec.Raw {
			p.Off = -1 // decoded bytes have no stored offset
		}
		if p.Severity == format.Error {
			r.doubt.CompareAndSwap(nil, &p)
		}
		note(p)
	}
	for n := 0; ; n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err, listed := s.next(), n > 0
		if err == nil {
			if listed = true; r.codec != codec.Raw && s.m.fault != nil {
				s.m.fault.Off = -1
			}
			short := r.codec == codec.Raw && s.m.stored > r.size-s.m.at
			if short && s.m.fault == nil {
				s.m.fault = &format.Problem{Code: format.Truncated, Severity: format.Error, Off: min(s.m.at, r.size),
					Message: fmt.Sprintf("its %d bytes extend beyond the end of the archive at %d", s.m.stored, r.size)}
				s.m.sparse = nil
			}
			if err = each(&s.m); err != nil {
				return err
			}
			if !short {
				continue
			}
			err = io.ErrUnexpectedEOF
		}
		if src.in == nil && src.err != nil {
			return src.err
		}
		if err == io.EOF && !s.ended && src.in == nil && r.size%blockSize != 0 {
			err = io.ErrUnexpectedEOF // more than padding may be missing
		}
		if err == io.EOF {
			if !s.any && r.bare(src.at) {
				err = errors.New("no tar header")
			} else if err = r.drained(src); err == nil {
				return s.behindEnd(ctx)
			}
		}
		p := r.problem(format.BadHeader, min(s.head, r.size), err.Error())
		if errors.Is(err, io.ErrUnexpectedEOF) {
			p.Code = format.Truncated
			if err == io.ErrUnexpectedEOF {
				p.Message = "the archive ends too early"
			}
		}
		if s.mayResync(err) {
			found, err := s.resync(ctx)
			if err != nil {
				return err
			}
			if found {
				if by := src.at - s.head; by < 0 {
					p.Message += fmt.Sprintf("; the next header is %d bytes before it", -by)
				} else {
					p.Message += fmt.Sprintf("; the next header is %d bytes later", by)
				}
				s.note(p)
				continue
			}
			if n > 0 && p.Code != format.Truncated {
				p.Message += "; no header follows"
			}
		}
		if src.in != nil {
			// The decoder may still be reading.
			if err := errors.Join(src.in.Close(), src.in.stored.object.Err); err != nil {
				return err
			}
			p.Off = -1
		}
		if !listed {
			return &format.CorruptError{Format: "tar", Problem: p}
		}
		s.note(p)
		return nil
	}
}

func (r *reader) problem(code format.Code, off int64, msg string) format.Problem {
	return format.Problem{Code: code, Severity: format.Error, Volume: r.name, Off: off, Message: msg}
}

// source returns the tar from its beginning.
func (r *reader) source(ctx context.Context) *source {
	src := &source{ctx: ctx, obj: r.obj, size: r.size, step: 4 * leastStep}
	if r.codec != codec.Raw {
		src.in = newFrames(ctx, r.obj, r.size, r.codec)
	}
	return src
}

func (s *source) close() {
	if s.in != nil {
		s.in.Close() // the rest is not needed, so errors do not matter
	}
}

// drained reads the rest of the frame that contains the end of the tar.
func (r *reader) drained(src *source) error {
	if src.in == nil {
		return nil
	}
	return src.in.drain()
}

// bare reports whether a tar without members is not an archive, because it has neither a header
// nor the zeros of an empty archive.
func (r *reader) bare(read int64) bool {
	if r.codec != codec.Raw {
		return read < 2*blockSize
	}
	return read <= 2*blockSize && (r.size < 2*blockSize || r.size > maxEmpty || r.size%blockSize != 0)
}

// load reads all headers, once.
func (r *reader) load(ctx context.Context) (*contents, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		return r.held, nil
	}
	c := &contents{table: table{volume: r.name}}
	memory := int64(0)
	grow := func(n int64) error {
		if memory += n; memory > r.limit {
			return &format.CorruptError{Format: "tar", Problem: r.problem(format.Limit, -1,
				fmt.Sprintf("%d entries take more memory than the limit of %d bytes", c.Len()+1, r.limit))}
		}
		return nil
	}
	src := r.source(ctx)
	defer src.close()
	frames := 0
	var last member
	short := false
	var again []string
	err := r.walk(ctx, src, func(m *member) error {
		if m.again {
			again = append(again, string(m.name))
			return grow(int64(len(m.name)) + 16)
		}
		before := c.people.Len()
		n := c.table.add(m)
		n += int64(c.people.Len()-before) * 100
		if src.in != nil {
			n += int64(len(src.in.all)-frames) * 32
			frames = len(src.in.all)
		}
		last = *m
		return grow(n)
	}, func(p format.Problem) {
		if len(c.notes) < mostNotes {
			c.notes = append(c.notes, p)
		}
		short = p.Code == format.Truncated || p.Code == format.BadHeader
	})
	if err != nil {
		return nil, err
	}
	if src.in != nil {
		c.frames, c.wrong = src.in.known(), src.in.wrong
	}
	if src.in != nil && short && c.Len() > 0 && last.stored > src.in.at-last.at && last.fault == nil {
		c.cutShort(&last)
	}
	c.index = kit.NewIndex(&c.table)
	note := func(p format.Problem) {
		r.doubt.CompareAndSwap(nil, &p)
		c.notes = append(c.notes, p)
	}
	for _, f := range c.wrong {
		note(r.problem(format.BadData, -1, fmt.Sprintf("bytes %d+%d of the decoded tar: this piece does not match its checksum or cannot be decoded to its end", f.at, f.n)))
	}
	for _, name := range again {
		if _, ok := c.index.Find(name); !ok {
			p := r.problem(format.Dangling, -1, "hard link to its own name, but there is no file with this name")
			p.Entry, p.HasEntry = name, true
			note(p)
		}
	}
	r.held = c
	return c, nil
}

func (r *reader) Entries(ctx context.Context) iter.Seq2[format.Entry, error] {
	return func(yield func(format.Entry, error) bool) {
		r.mu.Lock()
		stream := r.once && r.held == nil
		r.mu.Unlock()
		if stream {
			r.stream(ctx, yield)
			return
		}
		r.LateIndex.Entries(ctx)(yield)
	}
}

func (r *reader) Close() error { return r.obj.Close() }

// cutShort sets the fault of the last member if a compressed archive ends before it.
func (c *contents) cutShort(last *member) {
	i := c.Len() - 1
	columns.Rare(&c.faults, i, &format.Problem{Code: format.Truncated, Severity: format.Error, Off: -1,
		Message: fmt.Sprintf("some of its %d bytes are missing", last.stored)})
}

// streamed is the place of content in a compressed archive of which nothing is kept: relative to
// the beginning of a frame.
type streamed struct {
	at     int64
	frame  frame
	sparse *sparse
}

// stream yields entries as they are found.
func (r *reader) stream(ctx context.Context, yield func(format.Entry, error) bool) {
	src := r.source(ctx)
	defer src.close()
	var known columns.Words
	enough := errors.New("enough")
	err := r.walk(ctx, src, func(m *member) error {
		if m.again {
			return nil
		}
		e := m.entry(r.name, &known)
		if src.in != nil {
			e.Ref = &streamed{m.at, src.in.from(m.at), m.sparse}
		}
		if !yield(e, nil) {
			return enough
		}
		return nil
	}, func(format.Problem) {})
	if err != nil && err != enough {
		yield(format.Entry{}, err)
	}
}

// Can returns the optional functions of the reader.
func (r *reader) Can() format.Abilities {
	can := r.LateIndex.Can()
	can.Run, can.Doubt = r.Run, r.doubt.Load
	return can
}

// Run returns the extent of e.
func (r *reader) Run(e format.Entry) (format.Extent, bool) {
	x, ok := kit.Run(r.name, e)
	return x, ok && r.codec == codec.Raw && e.Kind == format.File
}

// place returns where the stored content of e begins, and in which frames.
func (r *reader) place(e format.Entry) (at int64, holes *sparse, frames []frame, wrong damaged, ok bool) {
	if r.codec != codec.Raw {
		r.mu.Lock()
		if r.held != nil {
			frames, wrong = r.held.frames, r.held.wrong
		}
		r.mu.Unlock()
	}
	switch ref := e.Ref.(type) {
	case int64:
		return ref, nil, frames, wrong, true
	case *sparse:
		return ref.at, ref, frames, wrong, true
	case *streamed:
		f := ref.frame
		if stored := e.Size; f.n >= 0 {
			if ref.sparse != nil {
				stored = ref.sparse.stored()
			}
			if ref.at+stored > f.at+f.n {
				f.len, f.n = -1, -1 // it continues in frames that are not known yet
			}
		}
		return ref.at, ref.sparse, []frame{f}, nil, true
	}
	return 0, nil, nil, nil, false
}

func (r *reader) Extents(_ context.Context, e format.Entry, off, n int64) iter.Seq2[format.Extent, error] {
	return func(yield func(format.Extent, error) bool) {
		if e.Fault != nil || !e.Kind.HasContent() || n <= 0 || off >= e.Size {
			return
		}
		at, holes, frames, wrong, ok := r.place(e)
		if !ok {
			yield(format.Extent{}, e.Unreadable("tar"))
			return
		}
		spans := []span{{0, e.Size}}
		if holes != nil {
			spans = holes.spans
		}
		done := int64(0) // of the content
		for _, x := range spans {
			if x.off+x.n > off && x.n > 0 || x.off > off {
				if done >= off+n || x.off > done && !yield(hole(done, x.off), nil) ||
					x.off >= off+n || !r.run(x, at, frames, wrong, off, n, yield) {
					return
				}
			}
			at += x.n
			done = x.off + x.n
		}
		if done < e.Size && done < off+n {
			yield(hole(done, e.Size), nil)
		}
	}
}

func hole(from, to int64) format.Extent {
	return format.Extent{At: from, Size: to - from, Codec: codec.Zero}
}

// run yields the extents of a span that is stored at an offset, as far as it is in [off, off+n).
func (r *reader) run(x span, at int64, frames []frame, wrong damaged, off, n int64, yield func(format.Extent, error) bool) bool {
	if x.n == 0 {
		return true
	}
	if r.codec == codec.Raw {
		return yield(format.Extent{At: x.off, Size: x.n, Object: r.name, Off: at, Len: x.n}, nil)
	}
	lo, hi := max(off, x.off), min(off+n, x.off+x.n)
	for _, f := range within(frames, at+lo-x.off, hi-lo) {
		e := format.Extent{Object: r.name, Off: f.off, Len: f.len, Codec: r.codec, Unit: f.n, Summed: f.summed}
		from, to := max(f.at, at), at+x.n
		if f.n < 0 {
			e.Len, e.Unit = r.size-f.off, 0
		} else {
			to = min(to, f.at+f.n)
		}
		e.At, e.Size, e.Skip = x.off+from-at, to-from, from-f.at
		e.Damaged = wrong.touches(from, to)
		if !yield(e, nil) {
			return false
		}
	}
	return true
}

// Regions yields what is between contents: headers and padding.
func (r *reader) Regions(ctx context.Context) iter.Seq2[format.Region, error] {
	return kit.Between(r.name, r.size, "tar headers", func(yield func(format.Extent, error) bool) {
		c, err := r.load(ctx)
		if err != nil {
			yield(format.Extent{}, err)
			return
		}
		for i := range c.Len() {
			e := c.Entry(i)
			for x, err := range r.Extents(ctx, e, 0, e.Size) {
				if !yield(x, err) {
					return
				}
			}
		}
	})
}

func (r *reader) About(ctx context.Context) (format.About, error) {
	about := format.About{Version: "ustar", Volumes: []string{r.name}}
	r.mu.Lock()
	c := r.held
	r.mu.Unlock()
	if c != nil {
		about.Notes = append(about.Notes, c.notes...)
	}
	if r.codec == codec.Raw {
		return about, ctx.Err()
	}
	about.Version = "ustar, " + r.codec
	solid := "compressed as one: to read a file, everything before it is decoded"
	if c != nil && len(c.frames) > 1 {
		solid = fmt.Sprintf("compressed in %d pieces: to read a file, its piece is decoded up to the file", len(c.frames))
	}
	about.Notes = append(about.Notes, format.Problem{Code: format.Unsupported, Class: "solid", Severity: format.Note, Volume: r.name, Off: -1, Message: solid})
	return about, ctx.Err()
}

func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	o.Once = false
	r, err := openReader(ctx, st, name, o)
	if err != nil {
		return kit.Reported(err, report)
	}
	defer r.Close()
	for _, p := range r.held.notes {
		report(p)
	}
	kit.CheckEntries(r.held.index, name, report)
	return nil
}
