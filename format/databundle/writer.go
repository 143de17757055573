package databundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/databundle/internal/sstable"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writer writes a bundle. Records are compressed concurrently and written in order. The rows of
// files go through a sorter, because files do not come in the order of their keys.
type writer struct {
	st       store.Store
	root     string
	o        options
	scratch  func() (sorter.Scratch, error)
	c        *compressor
	parallel *codec.Parallel
	sorter   *sorter.Sorter
	shards   []*shardWriter
	cur      *shardWriter
	run      int64 // bytes that cur got since it was chosen
	pending  []byte
	small    []byte // content of a file that does not fit into pending
	buf      []byte
	hash     hash.Hash32
	lastDir  string
	links    int // hard links, whose targets are known when all rows are sorted
	seq      uint64
	sum      format.Summary
	err      error // the bundle can no longer be completed
	ended    bool
	made     []string // shards that are in the store
	part     *format.Part

	mu   sync.Mutex // guards what the pipeline's taker uses
	jobs []job
}

// job is a record that is being compressed.
type job struct {
	shard  *shardWriter
	record int
}

// shardWriter is a shard that is being written.
type shardWriter struct {
	index   uint64
	name    string
	out     io.Writer
	obj     store.Writer   // nil if out is scratch
	scratch sorter.Scratch // for a shard whose header contains the index
	dataOff int64
	at      int64      // of the next stored byte, relative to dataOff
	stream  int64      // bytes appended to the stream
	records []storedAt // only off and at are set
}

func create(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	return begin(ctx, st, strings.TrimSuffix(name, "/"), nil, o)
}

// begin begins a bundle, or a part of one.
func begin(ctx context.Context, st store.Store, root string, part *format.Part, o format.CreateOptions) (_ format.Writer, err error) {
	p, err := parseOptions(o.Param)
	if err == nil && part != nil {
		err = p.checkParts()
	}
	if err != nil {
		return nil, err
	}
	workers := min(max(runtime.GOMAXPROCS(0), 1), 16)
	w := &writer{st: st, root: root, part: part, o: p, scratch: o.Scratch, hash: crc32.New(castagnoli), buf: make([]byte, 256<<10)}
	if w.c, err = newCompressor(p.kind, o.Param[paramLevel], p.recordSize, workers); err != nil {
		return nil, err
	}
	w.sorter = w.newSorter()
	for _, kv := range o.Carry {
		if kv[0] == carryRoot {
			url, value, _ := strings.Cut(kv[1], "\n")
			b, err := hex.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("the bundle's own user data: %w", err)
			}
			if err := w.addImplied("", meta{kind: directory, user: userData{url, b}, hasUser: true}); err != nil {
				return nil, err
			}
		}
	}
	if p.kind != none {
		w.parallel = codec.NewParallel(workers, w.c.record, w.take)
	}
	for range p.shards {
		if err := w.addShard(ctx); err != nil {
			w.Abort()
			return nil, err
		}
	}
	w.cur = w.shards[0]
	return w, nil
}

func (w *writer) newSorter() *sorter.Sorter {
	return sorter.New(sorter.Options{
		Scratch:   w.scratch,
		Duplicate: func([]byte) error { return nil },
	})
}

// addShard begins a shard.
func (w *writer) addShard(ctx context.Context) (err error) {
	i := uint64(len(w.shards))
	if w.part != nil {
		i = uint64(w.part.Number)
	}
	s := &shardWriter{index: i, name: sstable.Join(w.root, shardName(i))}
	if w.o.inline {
		s.scratch, err = w.scratch()
		s.out = s.scratch
	} else {
		s.obj, err = storekit.Create(ctx, w.st, s.name)
		s.out = s.obj
	}
	if err != nil {
		return err
	}
	w.shards = append(w.shards, s)
	if w.o.inline {
		return nil
	}
	head := w.header(i, nil)
	s.dataOff = int64(len(head))
	_, err = s.out.Write(head)
	return err
}

// header returns the beginning of a shard.
func (w *writer) header(i uint64, inline []byte) []byte {
	h := header{shard: i, recordSize: uint64(w.o.recordSize), align: uint64(w.o.align), compression: w.o.kind, external: !w.o.inline}
	if w.o.shardSize == 0 && w.part == nil {
		h.shards = uint64(w.o.shards)
	}
	if w.o.inline {
		h.inline, h.hasInline = inline, true
	}
	b := append([]byte(shardMagic), make([]byte, 8)...)
	b = h.append(b)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-prefixLen))
	b = append(b, make([]byte, roundUp(int64(len(b)), w.o.align)-int64(len(b)))...)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)))
	return b
}

// choose selects the shard for a file of n bytes.
func (w *writer) choose(ctx context.Context, n int64) error {
	switch {
	case w.o.shardSize > 0 && w.cur.stream > 0 && w.cur.stream+n > w.o.shardSize:
		if err := w.cut(); err != nil {
			return err
		}
		if len(w.shards) == maxShards {
			return fmt.Errorf("more than %d shards: use larger ones", maxShards)
		}
		if err := w.addShard(ctx); err != nil {
			return err
		}
		w.cur = w.shards[len(w.shards)-1]
	case len(w.shards) > 1 && w.o.shardSize == 0 && w.run >= int64(runRecords*w.o.recordSize):
		if err := w.cut(); err != nil {
			return err
		}
		w.cur, w.run = slices.MinFunc(w.shards, func(a, b *shardWriter) int {
			return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.index, b.index))
		}), 0
	}
	return nil
}

// cut ends the pending record.
func (w *writer) cut() error {
	if len(w.pending) == 0 {
		return nil
	}
	s, b := w.cur, w.pending
	w.mu.Lock()
	s.records = append(s.records, storedAt{off: s.stream - int64(len(b)), at: -1})
	zeros := allZeros(b)
	if !zeros {
		w.jobs = append(w.jobs, job{s, len(s.records) - 1})
	}
	w.mu.Unlock()
	if zeros {
		w.pending = b[:0]
		return nil
	}
	w.pending = nil
	if err := w.parallel.Add(b); err != nil {
		return w.broken(err)
	}
	w.pending = w.parallel.Buffer()
	return nil
}

func allZeros(b []byte) bool {
	for len(b) >= 8 && binary.LittleEndian.Uint64(b) == 0 {
		b = b[8:]
	}
	return len(b) < 8 && bytes.Count(b, []byte{0}) == len(b)
}

// take writes a compressed record.
func (w *writer) take(_, out []byte) error {
	w.mu.Lock()
	j := w.jobs[0]
	w.jobs = w.jobs[1:]
	s := j.shard
	s.records[j.record].at = s.at
	w.mu.Unlock()
	return s.put(out, w.o.align)
}

// put stores a record, and zeros up to where the next one may begin.
func (s *shardWriter) put(b []byte, align int64) error {
	n := int64(len(b))
	if _, err := s.out.Write(b); err != nil {
		return err
	}
	if pad := roundUp(n, align) - n; pad > 0 {
		if _, err := s.out.Write(zeros[:pad]); err != nil {
			return err
		}
		n += pad
	}
	s.at += n
	return nil
}

var zeros [maxAlign]byte

// append appends to the stream of the current shard.
func (w *writer) append(p []byte) error {
	w.run += int64(len(p))
	if w.parallel == nil {
		_, err := w.cur.out.Write(p)
		w.cur.stream += int64(len(p))
		w.cur.at += int64(len(p))
		return err
	}
	for len(p) > 0 {
		if w.pending == nil {
			w.pending = make([]byte, 0, w.o.recordSize)
		}
		k := min(len(p), w.o.recordSize-len(w.pending))
		w.pending = append(w.pending, p[:k]...)
		w.cur.stream += int64(k)
		p = p[k:]
		if len(w.pending) == w.o.recordSize {
			if err := w.cut(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if w.err != nil {
		return w.err
	}
	if w.ended {
		return errEnded
	}
	m, err := metaOf(e)
	if err != nil {
		return err
	}
	switch e.Kind {
	case format.File:
		err = w.addFile(ctx, e, r, &m)
	case format.Symlink:
		e.Size = int64(len(e.Link))
		e.Digest = format.Digest{}
		err = w.addFile(ctx, e, strings.NewReader(e.Link), &m)
	case format.HardLink:
		w.links++
	}
	if err != nil {
		return err
	}
	w.addDirs(e.Name)
	if w.err != nil {
		return w.err
	}
	w.seq++
	key := append(appendFileKey(nil, e.Name), 0, 0, rankRow)
	key = binary.BigEndian.AppendUint64(key, w.seq)
	form := byte(rowPlain)
	if e.Kind == format.HardLink {
		form = rowLink
	}
	if err := w.sorter.Add(key, m.append([]byte{form})); err != nil {
		return w.broken(err)
	}
	if e.Kind == format.HardLink {
		// This sorts it after the row of its target, whose place is then known.
		key := append(appendFileKey(nil, e.Link), 0, 0, rankLink)
		key = append(key, appendFileKey(nil, e.Name)...)
		if err := w.sorter.Add(key, nil); err != nil {
			return w.broken(err)
		}
	}
	return nil
}

// addFile appends a file's content, and records its place.
func (w *writer) addFile(ctx context.Context, e format.Entry, r io.Reader, m *meta) error {
	var sum string
	var err error
	switch {
	case e.Size < largeFile:
		// The content is read before anything is appended, so that nothing must be taken back.
		w.small = w.small[:0]
		if sum, err = kit.CopyDigested(ctx, e, r, w.buf, "crc32c", w.hash, func(p []byte) error {
			w.small = append(w.small, p...)
			return nil
		}); err != nil {
			return err
		}
		if err := w.choose(ctx, e.Size); err != nil {
			return w.broken(err)
		}
		most := int64(w.o.recordSize)
		if kit.EndsUnit(e.Size, int64(len(w.pending)), most) {
			if err := w.cut(); err != nil {
				return err
			}
		}
		m.offset = uint64(w.cur.stream)
		if err := w.append(w.small); err != nil {
			return w.broken(err)
		}
		if w.parallel != nil && kit.EndsUnitAfter(e.Name, e.Size, int64(len(w.pending)), most) {
			if err := w.cut(); err != nil {
				return err
			}
		}
	default:
		if err = w.choose(ctx, e.Size); err == nil {
			err = w.beginLarge()
		}
		if err != nil {
			return w.broken(err)
		}
		before := w.mark()
		m.offset = uint64(w.cur.stream)
		var broken error
		sum, err = kit.CopyDigested(ctx, e, r, w.buf, "crc32c", w.hash, func(p []byte) error {
			broken = w.append(p)
			return broken
		})
		if broken != nil {
			return w.broken(broken)
		}
		if err != nil {
			if back := w.back(before); back != nil {
				return w.broken(fmt.Errorf("%s: %v: %w", format.Escape(e.Name), err, back))
			}
			return err
		}
	}
	m.shard, m.size = w.cur.index, uint64(e.Size)
	if e.Size == 0 {
		return nil // the checksum of no bytes is 0 too
	}
	if sum == "" {
		return w.broken(fmt.Errorf("%s: the reader provides no crc32c", format.Escape(e.Name)))
	}
	m.crc = binary.BigEndian.Uint32([]byte(sum))
	return nil
}

// beginLarge makes a large file begin at the start of a record.
func (w *writer) beginLarge() error {
	if w.parallel != nil {
		return w.cut()
	}
	if gap := roundUp(w.cur.dataOff+w.cur.at, w.o.align) - w.cur.dataOff - w.cur.at; gap > 0 {
		return w.append(zeros[:gap])
	}
	return nil
}

// mark is a position in a shard.
type mark struct {
	s       *shardWriter
	stream  int64
	at      int64
	records int
	run     int64
}

// mark returns the current position, at the end of a record. Its stored offset is known only if
// nothing is being compressed.
func (w *writer) mark() mark {
	m := mark{s: w.cur, stream: w.cur.stream, records: len(w.cur.records), run: w.run}
	if w.parallel == nil {
		m.at = w.cur.at
	}
	return m
}

// back takes back everything since m. What the store cannot take back remains as bytes that
// belong to no file.
func (w *writer) back(m mark) error {
	s, to := m.s, m.at
	w.run = m.run
	if w.parallel != nil {
		w.pending = w.pending[:0]
		if err := w.parallel.Wait(); err != nil {
			return err
		}
		to = s.at
		for _, p := range s.records[m.records:] {
			if p.at >= 0 {
				to = p.at
				break
			}
		}
		s.records, s.stream = s.records[:m.records], m.stream
	}
	if to == s.at {
		return nil
	}
	var rewind func(to int64) error
	if s.obj != nil {
		rewind = s.obj.Can().Rewind
	}
	switch {
	case rewind != nil:
		if err := rewind(s.dataOff + to); err != nil {
			return err
		}
	case s.scratch != nil:
		if _, err := s.scratch.Seek(to, io.SeekStart); err != nil {
			return err
		}
	default:
		return nil
	}
	s.at = to
	if w.parallel == nil {
		s.stream = m.stream
	}
	return nil
}

var errEnded = errors.New("the bundle is already complete or aborted")

// broken records an error after which the bundle cannot be completed.
func (w *writer) broken(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

func (w *writer) Commit(ctx context.Context) (_ format.Summary, err error) {
	if w.err != nil {
		return w.sum, w.err
	}
	if w.ended {
		return w.sum, errEnded
	}
	defer func() {
		if err != nil {
			w.broken(err)
		}
	}()
	if w.parallel != nil {
		if err := w.cut(); err != nil {
			return w.sum, err
		}
		if err := w.parallel.Wait(); err != nil {
			return w.sum, err
		}
	}
	commit := w.commitShards
	if w.o.inline {
		commit = w.commitInline
	} else if w.part != nil {
		commit = w.commitPart
	}
	if err := commit(ctx); err != nil {
		return w.sum, err
	}
	return w.sum, w.release(ctx)
}

// commitShards writes shards concurrently, and then the index.
func (w *writer) commitShards(ctx context.Context) error {
	for _, s := range w.shards {
		if err := w.pad(s, s.out); err != nil {
			return err
		}
		w.made = append(w.made, s.name) // a failed Commit may have succeeded
		info, err := s.obj.Commit(ctx)
		if err != nil {
			return err
		}
		w.sum.Stored += info.Size
		w.sum.Volumes = append(w.sum.Volumes, s.name)
	}
	if err := w.commitIndex(ctx); err != nil {
		return err
	}
	w.made = nil
	return nil
}

// pad fills up the end of a shard without records; with records this has been done already.
func (w *writer) pad(s *shardWriter, out io.Writer) error {
	if w.o.kind != none {
		return nil
	}
	_, err := out.Write(zeros[:roundUp(s.dataOff+s.at, w.o.align)-s.dataOff-s.at])
	return err
}

// commitIndex writes the index and its copies.
func (w *writer) commitIndex(ctx context.Context) (err error) {
	x := newIndexWriter(w.st, w.root, w.o.copies, sstable.WriterOptions{})
	defer func() { err = errors.Join(err, x.abort(ctx)) }()
	if err := w.eachRow(ctx, func(key, value []byte) error { return x.add(ctx, key, value) }); err != nil {
		return err
	}
	names, n, err := x.commit(ctx)
	w.sum.Volumes = append(w.sum.Volumes, names...)
	w.sum.Stored += n
	return err
}

// commitInline writes the only shard, whose header contains the index.
func (w *writer) commitInline(ctx context.Context) error {
	s := w.shards[0]
	var table []byte
	if err := w.eachRow(ctx, func(key, value []byte) error {
		row := inlineRows{{Key: key, Value: value}}
		if table = row.append(table); len(table) > maxHeader-1<<10 {
			return fmt.Errorf("an inline index of more than %d bytes: use a directory", maxHeader)
		}
		return nil
	}); err != nil {
		return err
	}
	info, err := storekit.Write(ctx, w.st, s.name, func(out store.Writer) error {
		_, err := out.Write(w.header(0, table))
		if err == nil {
			_, err = s.scratch.Seek(0, io.SeekStart)
		}
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{out}, io.LimitReader(s.scratch, s.at), w.buf)
		}
		if err == nil {
			err = w.pad(s, out)
		}
		return err
	})
	w.sum.Stored, w.sum.Volumes = info.Size, []string{s.name}
	return err
}

// release releases the writer's resources.
func (w *writer) release(ctx context.Context) error {
	if w.ended {
		return nil
	}
	w.ended = true
	var errs []error
	if w.parallel != nil {
		w.parallel.Close() // its error has been returned before, or no longer matters
	}
	errs = append(errs, w.c.close(), w.sorter.Close())
	for _, s := range w.shards {
		if s.obj != nil {
			errs = append(errs, s.obj.Abort())
		}
		if s.scratch != nil {
			errs = append(errs, s.scratch.Close())
		}
	}
	return errors.Join(errors.Join(errs...), kit.Remove(ctx, w.st, w.made))
}

func (w *writer) Abort() error {
	return w.release(context.Background())
}
