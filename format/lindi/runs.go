package lindi

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/arrays/zarrkey"
)

// consolidate is the parameter that joins small chunks of an array.
const consolidate = "consolidate"

// mostRun limits the size of a run, which is collected in memory.
const mostRun = 1 << 30

// joined returns the order in which chunks are joined to runs, which is that of the array. It
// returns nil if they are not joined.
func joined(param map[string]string) func(a, b format.Entry) int {
	if param[consolidate] == "" {
		return nil
	}
	return func(a, b format.Entry) int { return zarrkey.Compare(a.Name, b.Name) }
}

// runs joins consecutive chunks of an array to members; the references of their keys refer to
// parts of these. Chunks stay as they are stored.
type runs struct {
	most   int64           // size of a run; 0 means that nothing is joined
	arrays map[string]bool // paths of known arrays

	array  string         // whose chunks are being collected
	number map[string]int // number of runs of each array
	chunks []runChunk
	buf    []byte
}

type runChunk struct {
	key    string
	off, n int64
}

func newRuns(size string, manifest []format.Entry) runs {
	g := runs{arrays: map[string]bool{}, number: map[string]int{}}
	if g.most, _ = strconv.ParseInt(size, 10, 64); g.most > 0 {
		for _, e := range manifest {
			g.know(e.Name)
		}
	}
	return g
}

// know records an array if the key is that of its metadata.
func (g *runs) know(key string) {
	if dir, ok := strings.CutSuffix("/"+key, "/.zarray"); ok && g.most > 0 {
		g.arrays[strings.TrimPrefix(dir, "/")] = true
	}
}

// of returns the array of a chunk of n bytes, if the chunk may be joined to others.
func (g *runs) of(key string, n int64) (array string, ok bool) {
	if n == 0 || n > g.most {
		return "", false
	}
	for dir := key; dir != ""; {
		i := strings.LastIndexByte(dir, '/')
		if !isChunk(dir[i+1:]) {
			break
		}
		if dir = dir[:max(i, 0)]; g.arrays[dir] {
			return dir, true
		}
	}
	return "", false
}

// fits reports whether a chunk continues the run.
func (g *runs) fits(array string, n int64) bool {
	return array == g.array && n <= g.most-int64(len(g.buf))
}

// isRun reports whether a key has the name of a run.
func isRun(key string) bool {
	last := key[strings.LastIndexByte(key, '/')+1:]
	return len(last) > 1 && last[0] == '~' && strings.Trim(last[1:], "0123456789") == ""
}

// join adds a chunk to the run of its array.
func (w *archiveWriter) join(ctx context.Context, array string, e format.Entry, r io.Reader) error {
	g := &w.runs
	if !g.fits(array, e.Size) {
		if err := w.endRun(ctx); err != nil {
			return err
		}
		g.array = array
	}
	at := len(g.buf)
	if w.block == nil {
		w.block = make([]byte, 64<<10)
	}
	err := kit.CopyContent(ctx, e, r, w.block, nil, func(p []byte) error {
		g.buf = append(g.buf, p...)
		return nil
	})
	if err != nil {
		g.buf = g.buf[:at]
		return err
	}
	g.chunks = append(g.chunks, runChunk{e.Name, int64(at), e.Size})
	return nil
}

// endRun writes the collected run as a member, or in lindi.json if it is short.
func (w *archiveWriter) endRun(ctx context.Context) error {
	g := &w.runs
	if len(g.chunks) == 0 {
		return nil
	}
	defer func() { g.chunks, g.buf = g.chunks[:0], g.buf[:0] }()
	name := ""
	if len(g.buf) >= blobFrom {
		name = w.shortened(blobDir + zarrkey.Join(g.array, "~"+strconv.Itoa(g.number[g.array])))
		g.number[g.array]++
		e := format.Entry{Name: name, Size: int64(len(g.buf))}
		if w.err = w.sink.put(ctx, name, e, bytes.NewReader(g.buf)); w.err != nil {
			return w.err
		}
	}
	for _, c := range g.chunks {
		value := w.buf[:0]
		if name == "" {
			value = appendInline(value, c.key, g.buf[c.off:c.off+c.n])
		} else {
			value = appendRef(value, target{"./" + name, c.off, c.n})
		}
		w.buf = value
		if w.err = w.setKey(c.key, value); w.err != nil {
			return w.err
		}
	}
	return nil
}
