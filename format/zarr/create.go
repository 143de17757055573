package zarr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/arrays/zarr3"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	arrays "github.com/holdall/holdall/zarr"
)

const (
	mostText  = 64 << 20  // bytes of a key of metadata
	mostTexts = 512 << 20 // bytes of all of them
	mostRoot  = 256 << 20 // bytes of the zarr.json of the root
	mostChunk = 256 << 20 // bytes of a chunk that is encoded anew

	shardChunks = 16 << 10 // chunks of a shard
	mostPaths   = 100      // paths where an array is seen
	mostName    = 255      // bytes of a name in a folder
)

// shardBytes is how many stored bytes the chunks of a shard have at most, except a chunk that is larger itself. Tests
// change it.
var shardBytes int64 = 128 << 20

// writer makes a hierarchy of version 3. The metadata of version 2 come first. Then come the chunks, in C order, so that
// one shard at a time is written. The metadata of version 3 are written last, and those of the root after all others.
type writer struct {
	st     store.Store
	dir    string // with its slash
	name   string
	buf    []byte
	listed zarr3.Nodes
	old    zarr3.Values // metadata of version 2
	texts  int64        // their size

	planned bool
	root    []byte // zarr.json
	nodes   []node // the others
	arrays  map[string]*outArray
	open    *shard

	sum  format.Summary
	err  error // permanent: what was added cannot be written
	done bool
}

type node struct {
	at   string
	text []byte // zarr.json
}

// outArray is an array that is written.
type outArray struct {
	*arrays.Version3
	text  []byte   // zarr.json
	paths []string // where it is seen
	grid  []int64  // number of chunks along each axis
	per   []int64  // chunks of a shard along each axis
	all   int64    // chunks of a shard; if it is 1, chunks are not in shards
	next  int64    // number of the shard from which on none was begun
}

// fromZarr begins a hierarchy.
func fromZarr(ctx context.Context, st store.Store, name string, o format.CreateOptions) (format.Writer, error) {
	listed, err := zarr3.NodesOf(o.Manifest, name, "a Zarr hierarchy of version 3")
	if err != nil {
		return nil, err
	}
	return &writer{st: st, name: name, dir: strings.TrimRight(name, "/") + "/", buf: make([]byte, 64<<10), listed: listed, old: zarr3.Values{}, arrays: map[string]*outArray{}}, nil
}

func (w *writer) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	at, last := zarrkey.Split(e.Name)
	var err error
	switch {
	case w.err != nil:
		return w.err
	case w.done:
		return errors.New("archive is committed")
	case !fs.ValidPath(e.Name) || !utf8.ValidString(e.Name) || slices.ContainsFunc(strings.Split(at, "/"), unfit):
		return kit.Refuse(e.Name, "a Zarr hierarchy in a folder cannot have this name")
	case last == ".zmetadata": // it says what the others say
	case zarrkey.IsMeta(last):
		if err = w.addMeta(ctx, e, r); err == nil && w.planned {
			w.err = fmt.Errorf("%s came after chunks", e.Name)
		}
	default:
		err = w.addChunk(ctx, e, r)
	}
	if w.err != nil {
		return w.err
	}
	if err != nil {
		return zarr3.Refused(e, err)
	}
	w.sum.Entries++
	w.sum.Content += e.Size
	return nil
}

// unfit reports whether a group or an array cannot have a name.
func unfit(name string) bool {
	return name == arrays.MetaName || len(name) > mostName || strings.Contains(name, "\x00")
}

// addMeta keeps a key of metadata, if version 3 can express it.
func (w *writer) addMeta(ctx context.Context, e format.Entry, r io.Reader) error {
	at, last := zarrkey.Split(e.Name)
	text, err := zarr3.ReadKey(ctx, e, r, w.buf, min(mostText, mostTexts-w.texts))
	if err != nil {
		return err
	}
	above, within := w.listed.Within(at)
	switch {
	case last == arrays.MetaName:
		return kit.Refuse(e.Name, "it is of version 3, and the rest of the hierarchy of version 2")
	case within != nil:
		return kit.Refuse(e.Name, "%q is an array, which cannot contain anything", above)
	case last == ".zattrs" && w.listed[at] == nil && at != "":
		return kit.Refuse(e.Name, "there is no group or array")
	case last == ".zattrs":
		_, err = arrays.Attributes(ctx, zarr3.Values{last: text}, "")
	case last == ".zarray":
		err = w.translates(e.Name, at, text)
	}
	if err != nil {
		return err
	}
	w.texts += int64(len(text))
	w.old[e.Name] = text
	return nil
}

// translates returns why version 3 cannot have an array.
func (w *writer) translates(key, at string, text []byte) error {
	m, err := arrays.ParseMeta(text)
	if err != nil {
		return err
	}
	attrs := w.old[zarrkey.Join(at, ".zattrs")]
	if _, err := m.Version3(attrs, mostChunk); err != nil {
		return kit.Refuse(key, "left out: Zarr version 3 cannot store it: %v", err)
	}
	if _, ok := arrays.ParseExternal(attrs); ok && w.listed[at].Chunks == 0 && m.Elements() > 0 {
		return kit.Refuse(key, "the elements of the array are in another file, and are not read from there: --external")
	}
	return nil
}

// plan decides what is written, when all metadata are known.
func (w *writer) plan(ctx context.Context) (err error) {
	w.planned = true
	for _, key := range slices.Sorted(maps.Keys(w.old)) {
		at, _ := zarrkey.Split(key)
		w.makeGroups(at)
	}
	w.makeGroups("/")
	left := func(at string, why error) { err = errors.Join(err, fmt.Errorf("%s: /%s: %w", w.name, at, why)) }
	keys := func(yield func(string, error) bool) {
		for key := range w.old {
			if !yield(key, nil) {
				return
			}
		}
	}
	root, rerr := arrays.See3(ctx, w.old, keys, arrays.See3Options{Limit: mostRoot, Chunk: mostChunk, Direct: true, Left: left, See: func(x *arrays.Seen3) {
		if x.Array != nil {
			out := w.arrays[x.Is]
			if out == nil {
				out = w.newArray(x.Is, x.Array)
				w.arrays[x.Is] = out
			}
			x.Text = out.text
			if len(out.paths) < mostPaths {
				out.paths = append(out.paths, x.At)
			} else {
				left(x.At, fmt.Errorf("more than %d links lead to the array %s", mostPaths, x.Is))
			}
		}
		if x.At != "" {
			w.nodes = append(w.nodes, node{x.At, x.Text})
		}
	}})
	w.root = root
	return errors.Join(err, rerr)
}

// makeGroups makes the groups above a path that are missing, so that what is there is seen.
func (w *writer) makeGroups(at string) {
	for at != "" {
		at, _ = zarrkey.Split(at)
		group := zarrkey.Join(at, ".zgroup")
		if w.old[group] == nil && w.old[zarrkey.Join(at, ".zarray")] == nil {
			w.old[group] = []byte(`{"zarr_format":2}`)
		}
	}
}

// newArray decides how the chunks of an array are stored.
func (w *writer) newArray(at string, t *arrays.Version3) *outArray {
	x := &outArray{Version3: t, grid: t.Grid(), all: 1}
	x.per = perShard(x.grid, max(w.listed[at].Largest, t.Whole(), t.Size, 1))
	var err error
	if x.text, err = x.InShards(x.per); err != nil { // it cannot have shards
		x.per = perShard(x.grid, shardBytes)
		x.text, _ = x.InShards(x.per)
	}
	for _, n := range x.per {
		x.all *= n
	}
	return x
}

// perShard returns how many chunks a shard has along each axis. A shard is a run of chunks in C order: it has all chunks
// along the last axes, as many as fit along one, and one along those before. A chunk takes up to size bytes.
func perShard(grid []int64, size int64) []int64 {
	per := make([]int64, len(grid))
	room := min(max(shardBytes/size, 1), shardChunks)
	for i := range slices.Backward(grid) {
		per[i] = max(min(grid[i], room), 1)
		if room /= per[i]; per[i] < grid[i] {
			room = 1
		}
	}
	return per
}

// addChunk adds a chunk to its shard.
func (w *writer) addChunk(ctx context.Context, e format.Entry, r io.Reader) error {
	if !w.planned {
		if w.err = w.plan(ctx); w.err != nil {
			return w.err
		}
	}
	at, listed := w.listed.Within(e.Name)
	x := w.arrays[at]
	switch {
	case listed == nil:
		return kit.Refuse(e.Name, "it is not part of an array")
	case x == nil || x.Elements() == 0:
		return nil // that has been reported, or there is nothing
	}
	index, ok := x.ChunkAt(strings.TrimPrefix(strings.TrimPrefix(e.Name, at), "/"))
	for i, n := range index {
		ok = ok && n < x.grid[i]
	}
	if !ok {
		return kit.Refuse(e.Name, "it is no chunk of the array")
	}
	position, n := arrays.InShard(x.per, index)
	number := int64(0)
	for i, p := range position {
		number = number*((x.grid[i]-1)/x.per[i]+1) + p
	}
	if s := w.open; s == nil || s.x != x || s.number != number {
		if w.err = w.begin(ctx, x, number, position); w.err != nil {
			return w.err
		}
	}
	return w.open.add(ctx, n, e, r, w)
}

// shard is a shard that is being written, or a chunk alone.
type shard struct {
	kit.Appender
	x      *outArray
	number int64
	n      int64 // chunks of it
	index  arrays.ShardIndex
	outs   outs
}

// outs are the same object at several paths.
type outs []store.Writer

func (o outs) Write(p []byte) (n int, err error) {
	for _, w := range o {
		if n, err = w.Write(p); err != nil {
			break
		}
	}
	return n, err
}

// begin ends the shard that is open, and begins another.
func (w *writer) begin(ctx context.Context, x *outArray, number int64, position []int64) error {
	if err := w.end(ctx); err != nil {
		return err
	}
	if number < x.next {
		return fmt.Errorf("%s: shard %v of /%s is already written", w.name, position, x.paths[0])
	}
	x.next = number + 1
	w.open = &shard{x: x, number: number, index: arrays.NewShardIndex(x.all)}
	for _, at := range x.paths {
		out, err := storekit.Create(ctx, w.st, w.dir+zarrkey.Join(at, arrays.ShardKey(position...)))
		if err != nil {
			return err
		}
		w.open.outs = append(w.open.outs, out)
	}
	if w.open.Out = w.open.outs; len(w.open.outs) == 1 {
		w.open.Out = w.open.outs[0]
	}
	return nil
}

// add adds a chunk.
func (s *shard) add(ctx context.Context, n int64, e format.Entry, r io.Reader, w *writer) error {
	x, start := s.x, s.Pos
	if !s.index.Missing(n) {
		return kit.Refuse(e.Name, "the array already has this chunk")
	}
	var err error
	if x.Anew {
		var b []byte
		if b, err = zarr3.ReadKey(ctx, e, r, w.buf, x.StoredLimit()); err == nil {
			b, err = x.Chunk(b)
		}
		if err == nil {
			err = s.Append(b)
		}
	} else {
		err = zarr3.CopyChunk(ctx, &s.Appender, x.Meta, e, r, w.buf)
	}
	if w.err = s.Err; err == nil {
		s.index.Set(n, start, s.Pos-start)
		s.n++
	}
	return err
}

// end ends the shard that is open.
func (w *writer) end(ctx context.Context) error {
	s := w.open
	w.open = nil
	switch {
	case s == nil:
		return nil
	case s.n == 0:
		return s.abort()
	}
	var err error
	if s.x.all > 1 {
		err = s.Append(s.index.Sealed())
	}
	if err == nil {
		err = s.Flush()
	}
	for len(s.outs) > 0 && err == nil {
		_, err = s.outs[0].Commit(ctx)
		if err == nil {
			s.outs = s.outs[1:]
			w.sum.Stored += s.Pos
		}
	}
	return errors.Join(err, s.abort())
}

func (s *shard) abort() (err error) {
	for _, o := range s.outs {
		err = errors.Join(err, o.Abort())
	}
	return err
}

// Commit writes the metadata.
func (w *writer) Commit(ctx context.Context) (format.Summary, error) {
	if w.done {
		return format.Summary{}, errors.New("archive is committed")
	}
	if w.err == nil && !w.planned {
		w.err = w.plan(ctx)
	}
	if w.err == nil {
		w.err = w.end(ctx)
	}
	for _, n := range append(w.nodes, node{"", w.root}) {
		if w.err == nil {
			w.err = kit.WriteBytes(ctx, w.st, w.dir+zarrkey.Join(n.at, arrays.MetaName), n.text)
			w.sum.Stored += int64(len(n.text))
		}
	}
	if w.err != nil {
		return format.Summary{}, w.err
	}
	w.done = true
	w.sum.Volumes = []string{w.dir + arrays.MetaName}
	return w.sum, nil
}

func (w *writer) Abort() error {
	if w.open == nil {
		return nil
	}
	return w.open.abort()
}
