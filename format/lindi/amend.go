package lindi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/store"
)

// amend opens an archive for changes of its members or, in the view zarr, of its keys.
func amend(ctx context.Context, st store.Store, name string, o format.OpenOptions) (format.Amender, error) {
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return nil, err
	}
	form := a.form
	a.close()
	var target medium
	if form == tarForm {
		target, err = amendTar(ctx, st, name, o)
	} else {
		target, err = amendLoose(ctx, st, name, o)
	}
	if err != nil {
		return nil, err
	}
	return &amender{medium: target, zarr: o.View == zarrView}, nil
}

// medium is an archive open for changes, in one of its forms.
type medium interface {
	refs() *refset
	has(member string) bool
	// taken reports whether a new member cannot have a name, because it is in use or will be
	// until the next commit.
	taken(member string) bool
	// put writes a member that takes effect at commit. It replaces a member of the same name.
	put(ctx context.Context, name string, e format.Entry, r io.Reader) error
	drop(member string)
	rename(from, to string) error
	// members reports whether the form can have members.
	members() bool
	commit(ctx context.Context) (stored int64, notes []string, err error)
	close() error
}

// amender translates changes of entries to changes of members and keys.
type amender struct {
	medium
	zarr bool
	sum  format.Amended
	err  error // permanent: the state of the archive is unknown
}

func (m *amender) Put(ctx context.Context, e format.Entry, r io.Reader) error {
	if m.err != nil {
		return m.err
	}
	if e.Kind != format.File {
		return fmt.Errorf("%s: lindi can store only files, not a %s: %w", e.Name, e.Kind, errors.ErrUnsupported)
	}
	replaced, err := false, error(nil)
	switch {
	case m.zarr:
		replaced = m.refs().has(e.Name)
		err = m.putKey(ctx, e, r)
	case e.Name == rfsName:
		replaced, err = true, m.putRFS(ctx, e, r)
	case !m.members():
		err = fmt.Errorf("%s: a plain lindi.json has keys, not members: %w", e.Name, errors.ErrUnsupported)
	default:
		if why := nameFault(e.Name); why != "" {
			return kit.Refuse(e.Name, "%s", why)
		}
		replaced = m.has(e.Name)
		err = m.put(ctx, e.Name, e, r)
	}
	switch {
	case err != nil:
	case replaced:
		m.sum.Replaced++
	default:
		m.sum.Added++
	}
	return err
}

// putKey sets the content of a Zarr key.
func (m *amender) putKey(ctx context.Context, e format.Entry, r io.Reader) error {
	if e.Name == "" || !utf8.ValidString(e.Name) {
		return kit.Refuse(e.Name, "lindi.json cannot hold such a key")
	}
	var value []byte
	if s, ok := r.(*kit.Section); ok && s.Address != "" {
		value = appendRef(nil, target{s.Address, s.Off, s.N})
	} else if !m.members() || isInline(e.Name, e.Size) {
		if e.Size > maxInline {
			return kit.Refuse(e.Name, "%d bytes are too many to store in lindi.json itself", e.Size)
		}
		content, err := readAll(ctx, e, r)
		if err != nil {
			return err
		}
		value = appendInline(nil, e.Name, content)
	} else {
		name := blobName(e.Name, m.taken)
		if err := m.put(ctx, name, e, r); err != nil {
			return err
		}
		value = appendRef(nil, target{"./" + name, 0, e.Size})
	}
	m.free(m.refs().put(e.Name, value))
	return nil
}

// free removes a member that no key refers to any more.
func (m *amender) free(member string) {
	if strings.HasPrefix(member, blobDir) && m.has(member) {
		m.drop(member)
	}
}

// putRFS replaces all of lindi.json.
func (m *amender) putRFS(ctx context.Context, e format.Entry, r io.Reader) error {
	if e.Size > maxInline {
		return kit.Refuse(e.Name, "is too long for lindi.json")
	}
	x, err := readRFS(ctx, e, r)
	if err != nil {
		return err
	}
	*m.refs() = *newRefset(x)
	m.refs().changed = true
	return nil
}

func (m *amender) Remove(_ context.Context, name string) error {
	if m.err != nil {
		return m.err
	}
	if m.zarr {
		freed, err := m.refs().remove(name)
		if err != nil {
			return err
		}
		m.free(freed)
		m.sum.Removed++
		return nil
	}
	if err := m.removable(name, "remove"); err != nil {
		return err
	}
	if n := m.refs().uses[name]; n > 0 {
		return kit.Refuse(name, "%d keys refer to it: remove the keys in the zarr view to remove it", n)
	}
	m.drop(name)
	m.sum.Removed++
	return nil
}

func (m *amender) removable(name, op string) error {
	if name == entryName || name == indexName || name == rfsName {
		return kit.Refuse(name, "belongs to the archive itself and cannot be removed or renamed")
	}
	if !m.has(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return nil
}

func (m *amender) Rename(_ context.Context, from, to string) error {
	if m.err != nil {
		return m.err
	}
	if m.zarr {
		if to == "" || !utf8.ValidString(to) {
			return kit.Refuse(to, "lindi.json cannot hold such a key")
		}
		if err := m.refs().rename(from, to); err != nil {
			return err
		}
		m.sum.Renamed++
		return nil
	}
	if err := m.removable(from, "rename"); err != nil {
		return err
	}
	if why := nameFault(to); why != "" || to == rfsName {
		if why == "" {
			why = "belongs to the archive itself"
		}
		return kit.Refuse(to, "%s", why)
	}
	if m.has(to) {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	if err := m.rename(from, to); err != nil {
		return err
	}
	m.refs().readdress(from, to)
	m.sum.Renamed++
	return nil
}

func (m *amender) Commit(ctx context.Context) (format.Amended, error) {
	if m.err != nil {
		return format.Amended{}, m.err
	}
	sum := m.sum
	var err error
	if sum.Stored, sum.Notes, err = m.commit(ctx); err != nil {
		m.err = err
		return format.Amended{}, err
	}
	m.sum = format.Amended{}
	return sum, nil
}

func (m *amender) Close() error { return m.close() }
