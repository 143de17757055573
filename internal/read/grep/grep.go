// Package grep searches for lines in contents.
package grep

import (
	"bufio"
	"bytes"
	"io"
	"iter"
	"sync"
)

// longestLine is how many bytes of a line are searched at once.
const longestLine = 1 << 20

// A Match is a line that was found.
type Match struct {
	Line   int    // from 1
	Off    int64  // of the line, in the content
	Text   []byte // without its line end; valid until the next match
	Binary bool   // the content is not text
}

// readers have a buffer for a line of the longest length, which takes longer to make than a short content to read.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, longestLine) }}

// Lines yields the lines of a content that match. A line that is longer than a
// megabyte is searched one megabyte at a time. An error is the last thing that it yields.
func Lines(content io.Reader, match func(line []byte) bool) iter.Seq2[Match, error] {
	return func(yield func(Match, error) bool) {
		r := readers.Get().(*bufio.Reader)
		r.Reset(content)
		defer func() {
			r.Reset(nil)
			readers.Put(r)
		}()
		head, err := r.Peek(8000)
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			yield(Match{}, err)
			return
		}
		m := Match{Line: 1, Binary: bytes.IndexByte(head, 0) >= 0}
		for {
			line, err := r.ReadSlice('\n')
			if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
				yield(Match{}, err)
				return
			}
			m.Text = bytes.TrimRight(line, "\r\n")
			if len(line) > 0 && match(m.Text) && !yield(m, nil) {
				return
			}
			m.Off += int64(len(line))
			if err == io.EOF {
				return
			}
			if err == nil {
				m.Line++
			}
		}
	}
}
