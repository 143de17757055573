package kit

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// Members is a [format.Writer] for formats that store one entry after the other, each with a header
// before its content, and have each name only once. It reads a content to its end before it calls
// Put, so an entry whose source fails leaves nothing behind, even if a store only goes forward.
type Members struct {
	Out io.Writer // the new object, or what compresses into it

	// Put writes an entry: its header, its content, and padding. If the error is a
	// [EntryError], Put has written nothing.
	Put func(e format.Entry, content io.Reader) error
	// End writes what follows the last entry; nil writes nothing.
	End func() error
	// Hold reads the content of an entry, and returns it as Put needs it. If it is nil, the content
	// stays as it is: up to 1 MiB in memory, and more in scratch.
	Hold func(ctx context.Context, e format.Entry, r io.Reader) (content io.Reader, release func(), err error)

	Buf     []byte // to copy contents with
	Scratch func() (sorter.Scratch, error)
	Sum     format.Summary

	obj   store.Writer
	names Names
	held  bytes.Buffer
	err   error // why nothing can be added any more
}

// MostHeld is the size of the longest content that is held in memory.
const MostHeld = 1 << 20

var errEnded = errors.New("the archive is already complete or aborted")

// NewMembers creates the object for an archive, which begins with head. The caller sets Put.
func NewMembers(ctx context.Context, st store.Store, name string, o format.CreateOptions, head string) (*Members, error) {
	obj, err := storekit.Create(ctx, st, name)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(obj, head); err != nil {
		return nil, errors.Join(err, obj.Abort())
	}
	return &Members{Out: obj, Buf: make([]byte, 128<<10), Scratch: o.Scratch, Sum: format.Summary{Volumes: []string{name}}, obj: obj, names: Names{Scratch: o.Scratch}}, nil
}

// Add implements [format.Writer].
func (m *Members) Add(ctx context.Context, e format.Entry, r io.Reader) error {
	if m.err != nil {
		return m.err
	}
	again, err := m.names.Has(e.Name)
	if again {
		return Refuse(e.Name, "duplicate name")
	}
	file, errAbove := m.names.Above(e.Name)
	if err = errors.Join(err, errAbove); err != nil {
		m.err = err
		return err
	}
	if file != "" {
		return Refuse(e.Name, "%q is not a directory", format.Escape(file))
	}
	hold := m.Hold
	if hold == nil {
		hold = m.hold
	}
	content, release, err := hold(ctx, e, r)
	if err != nil {
		return err
	}
	defer release()
	if err := m.Put(e, content); err != nil {
		if _, nothing := errors.AsType[EntryError](err); !nothing {
			m.err = err // what was written cannot be taken back
		}
		return err
	}
	m.Sum.Entries++
	if e.Kind.HasContent() {
		m.Sum.Content += e.Size
	}
	m.err = m.names.Add(e.Name, e.Kind)
	return m.err
}

func (m *Members) hold(ctx context.Context, e format.Entry, r io.Reader) (io.Reader, func(), error) {
	m.held.Reset()
	switch {
	case !e.Kind.HasContent():
	case e.Size > MostHeld:
		content, _, release, err := Spool(m.Scratch, func(to io.Writer) error {
			return CopyContent(ctx, e, r, m.Buf, nil, func(p []byte) error { _, err := to.Write(p); return err })
		})
		return content, release, err
	default:
		if err := CopyContent(ctx, e, r, m.Buf, nil, func(p []byte) error { m.held.Write(p); return nil }); err != nil {
			return nil, nil, err
		}
	}
	return &m.held, func() {}, nil
}

// Write writes bytes of the format to Out, and then content, unless that is nil.
func (m *Members) Write(p []byte, content io.Reader) error {
	_, err := m.Out.Write(p)
	if err == nil && content != nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{m.Out}, content, m.Buf)
	}
	return err
}

// Commit and Abort are those of a [format.Writer].
func (m *Members) Commit(ctx context.Context) (format.Summary, error) {
	if m.err != nil {
		return m.Sum, m.err
	}
	m.err = errEnded
	m.names.Close()
	if m.End != nil {
		if err := m.End(); err != nil {
			return m.Sum, err
		}
	}
	info, err := m.obj.Commit(ctx)
	m.Sum.Stored = info.Size
	return m.Sum, err
}

func (m *Members) Abort() error {
	m.err = errEnded
	m.names.Close()
	return m.obj.Abort()
}
