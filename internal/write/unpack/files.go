package unpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/read/content"
)

// makeFolder makes a folder and those above it, once.
func (x *extraction) makeFolder(name string) error {
	x.mu.Lock()
	_, known := x.folders[name]
	x.mu.Unlock()
	if known {
		return nil
	}
	if x.o.DryRun {
		return x.rehearseFolder(name)
	}
	_, err := x.root.Lstat(name)
	isNew := errors.Is(err, fs.ErrNotExist)
	err = x.root.MkdirAll(name, 0o777)
	if errors.Is(err, fs.ErrExist) {
		if info, serr := x.root.Lstat(name); serr == nil && info.IsDir() {
			err = nil
		}
	}
	if err == nil {
		x.mu.Lock()
		if _, known := x.folders[name]; !known { // another goroutine was first
			x.folders[name] = isNew
		}
		x.mu.Unlock()
	}
	return err
}

// isNew reports whether a folder was made by this extraction, so that it has nothing else.
func (x *extraction) isNew(dir string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.folders[dir]
}

// sharedFolder is an open folder and how many goroutines write into it.
type sharedFolder struct {
	*folder
	uses int
}

// mostOpen is how many folders stay open if fewer are in use.
const mostOpen = 4

// folderAt returns the open folder of that name, and makes it if necessary. The caller must call
// leave.
func (x *extraction) folderAt(name string) (*sharedFolder, error) {
	x.mu.Lock()
	for _, f := range x.open {
		if f.name == name {
			f.uses++
			x.mu.Unlock()
			return f, nil
		}
	}
	x.mu.Unlock()
	if err := x.makeFolder(name); err != nil {
		return nil, err
	}
	d, err := openFolder(x.root, name, x.mask)
	if err != nil {
		return nil, err
	}
	f := &sharedFolder{d, 1}
	x.mu.Lock()
	x.open = append(x.open, f) // once more if another goroutine opened it, too
	x.mu.Unlock()
	return f, nil
}

// leave closes the oldest folder that nobody uses, if there are too many.
func (x *extraction) leave(f *sharedFolder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.uses--; len(x.open) <= mostOpen {
		return
	}
	if i := slices.IndexFunc(x.open, func(f *sharedFolder) bool { return f.uses == 0 }); i >= 0 {
		x.open[i].Close()
		x.open = slices.Delete(x.open, i, i+1)
	}
}

func (x *extraction) closeFolders() {
	for _, f := range x.open {
		f.Close()
	}
	x.open = nil
}

// file writes one file. Content that fits in memory is verified before anything is written.
func (x *extraction) file(ctx context.Context, c content.Content, e format.Entry) error {
	if x.o.NoVerify {
		c = c.Trusted()
	}
	if e.Size > content.Small {
		return x.write(e, func(w *sink) error {
			w.holes = x.holesOf(ctx, c.Entry) > 0
			return c.CopyTo(ctx, w, x.o.Meter)
		})
	}
	read := false
	err := c.WithSmall(func(b []byte) error {
		read = true
		x.o.Meter.At(e.Name, e.Size)
		return x.write(e, func(w *sink) error {
			x.o.Meter.Add(0, e.Size)
			_, err := w.Write(b)
			return err
		})
	})
	if err != nil && !read {
		err = &unreadable{err: err}
	}
	return err
}

// An unreadable is an error of the archive, not of the disk that is written to.
type unreadable struct {
	err  error
	kept string // what was written anyway, for users
}

func (e *unreadable) Error() string {
	if e.kept == "" {
		return e.err.Error()
	}
	return e.err.Error() + "; " + e.kept
}

func (e *unreadable) Unwrap() error { return e.err }

// keep writes the readable part of a damaged file beside its place, and returns err, which then
// reports that.
func (x *extraction) keep(ctx context.Context, e, to format.Entry, err error) error {
	bad, ok := errors.AsType[*unreadable](err)
	if !ok || ctx.Err() != nil || content.Passing(e, err) != nil {
		return err
	}
	lost := int64(0)
	to.Name += kit.DamagedSuffix
	werr := x.write(to, func(w *sink) (err error) {
		lost, err = x.src.Salvage(ctx, e, w)
		return err
	})
	if werr != nil {
		return errors.Join(err, werr)
	}
	bad.kept = fmt.Sprintf("its readable parts are in %s", format.Escape(path.Base(to.Name)))
	if lost > 0 {
		bad.kept += fmt.Sprintf(", with zeros for %d of %d bytes", lost, e.Size)
	}
	return bad
}

// holesOf returns how many bytes of e are not stored and become holes of a file. It returns 0 for
// short content.
func (x *extraction) holesOf(ctx context.Context, e format.Entry) (n int64) {
	if !e.Kind.HasContent() || e.Size <= content.Small || e.Fault != nil {
		return 0
	}
	if run := x.src.Reader.Can().Run; run != nil {
		if _, ok := run(e); ok {
			return 0
		}
	}
	for at, err := range x.src.Extents(ctx, e) {
		if err != nil {
			return 0 // reading it returns the error
		}
		if at.Codec == codec.Zero {
			n += at.Size
		}
	}
	return n
}

// An output is a file that is being written.
type output interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Chown(uid, gid int) error
	Chmod(mode fs.FileMode) error
}

// A sink writes to an output front to back. It knows whether a write failed.
type sink struct {
	f     output
	holes bool // blocks of zeros are not written
	hash  hash.Hash
	at    int64
	err   error
}

var zeros [4 << 10]byte

func (s *sink) Write(p []byte) (n int, err error) {
	for n < len(p) && s.err == nil {
		zero := s.zeros(p[n:])
		k := len(p) - n
		if s.holes {
			for k = zero; n+k < len(p) && s.zeros(p[n+k:]) == 0; {
				k += min(len(p)-n-k, len(zeros))
			}
		}
		if k > zero {
			if _, s.err = s.f.WriteAt(p[n+zero:n+k], s.at+int64(n+zero)); s.err != nil {
				break
			}
		}
		n += k
	}
	if s.at += int64(n); s.hash != nil {
		s.hash.Write(p[:n])
	}
	return n, s.err
}

// zeros returns how many bytes at the beginning of p are a hole.
func (s *sink) zeros(p []byte) (n int) {
	for s.holes && n < len(p) {
		k := min(len(p)-n, len(zeros))
		if !bytes.Equal(p[n:n+k], zeros[:k]) {
			break
		}
		n += k
	}
	return n
}

// end makes the file as long as what was written. Its end may be a hole.
func (s *sink) end() error {
	if s.holes {
		return s.f.Truncate(s.at)
	}
	return nil
}

// write writes one file under a temporary name, and renames it when it is complete and verified.
func (x *extraction) write(e format.Entry, content func(*sink) error) error {
	if x.o.DryRun {
		return x.rehearse(e, content)
	}
	dir, err := x.folderAt(path.Dir(e.Name))
	if err != nil {
		return err
	}
	defer x.leave(dir)
	base := path.Base(e.Name)
	if !x.o.Overwrite && !x.isNew(dir.name) && dir.has(base) {
		return &fs.PathError{Op: "extract", Path: e.Name, Err: errExists}
	}
	temp := x.tempName()
	mode := fs.FileMode(0o666)
	if e.HasMode {
		mode = modeFor(e, false)
	}
	f, err := dir.create(temp, mode)
	if err != nil {
		return err
	}
	to := &sink{f: f}
	if x.o.Hash != nil {
		to.hash = x.o.Hash()
	}
	if err = content(to); err != nil && to.err == nil {
		err = &unreadable{err: err}
	}
	if err == nil {
		err = to.end()
	}
	if err == nil {
		err = x.metadata(f, e)
	}
	if err != nil {
		err = errors.Join(err, f.Close())
	} else {
		err = dir.finish(f, temp, e.ModTime)
	}
	if err == nil {
		// A link of that name is replaced, never followed; a folder is not.
		err = dir.rename(temp, base)
	}
	if err != nil {
		dir.remove(temp)
	} else if to.hash != nil {
		x.o.Hashed(e.Name, to.hash.Sum(nil))
	}
	return err
}

// tempName returns a unique name, made of a random name for this extraction and a counter.
func (x *extraction) tempName() string {
	return ".holdall-" + x.run + "-" + strconv.FormatInt(x.temps.Add(1), 36) + ".tmp"
}

var errExists = errors.New("a file with this name exists and is kept")

func (x *extraction) metadata(f output, e format.Entry) error {
	owned := x.chown(f, e)
	if !e.HasMode {
		return nil
	}
	return f.Chmod(modeFor(e, owned))
}

// links makes symlinks, hard links and FIFOs, after all files, so that no file is written through
// them.
func (x *extraction) links(ctx context.Context) error {
	for _, e := range x.later {
		if x.o.DryRun {
			if err := x.done(ctx, e, x.rehearseLink(e)); err != nil {
				return err
			}
			continue
		}
		if x.isLinked(e) {
			if err := x.done(ctx, e, nil); err != nil {
				return err
			}
			continue
		}
		err := x.makeFolder(path.Dir(e.Name))
		if err == nil && x.o.Overwrite {
			if info, serr := x.root.Lstat(e.Name); serr == nil && !info.IsDir() {
				err = x.root.Remove(e.Name)
			}
		}
		if err == nil {
			switch e.Kind {
			case format.Symlink:
				err = x.symlink(e)
			case format.HardLink:
				err = x.hardLink(e)
			case format.Fifo:
				err = makeFifo(x.root, e.Name, e.FileMode())
			default:
				err = fmt.Errorf("%s: cannot extract a %s: %w", format.Escape(e.Name), e.Kind, errors.ErrUnsupported)
			}
		}
		if err == nil && e.Kind != format.HardLink {
			err = x.linkMetadata(e)
		}
		if err := x.done(ctx, e, err); err != nil {
			return err
		}
	}
	return nil
}

// isLinked reports whether a link is there already, and may be.
func (x *extraction) isLinked(e format.Entry) bool {
	if !x.o.Changed || x.linkFault(e) != nil {
		return false
	}
	if to, err := x.root.Readlink(e.Name); e.Kind == format.Symlink {
		return err == nil && to == e.Link
	}
	a, b := x.there(e.Name), x.there(e.Link)
	return e.Kind == format.HardLink && a != nil && b != nil && os.SameFile(a, b)
}

func (x *extraction) linkMetadata(e format.Entry) error {
	uid, gid, owned := x.ownerOf(e)
	if owned {
		if err := x.root.Lchown(e.Name, uid, gid); err != nil {
			return err
		}
	}
	if e.Kind == format.Fifo && e.HasMode {
		if err := x.root.Chmod(e.Name, modeFor(e, owned)); err != nil {
			return err
		}
	}
	if e.ModTime.IsZero() {
		return nil
	}
	return setTime(x.root, e.Name, e.ModTime)
}

// symlink makes a link that stays inside: os.Root keeps us from following a link that leads
// outside, but later users of the folder have no such guard.
func (x *extraction) symlink(e format.Entry) error {
	if err := x.linkFault(e); err != nil {
		return err
	}
	return x.root.Symlink(e.Link, e.Name)
}

// linkFault returns an error if a link must not be made.
func (x *extraction) linkFault(e format.Entry) error {
	switch {
	case e.Kind == format.Symlink && !x.o.OutsideLinks && !staysInside(path.Dir(e.Name), e.Link):
		return &content.Refusal{Told: format.Problem{Code: format.UnsafePath, Class: "link-outside", Severity: format.Error, Volume: x.src.Name, Off: -1,
			Entry: e.Name, HasEntry: true, Message: fmt.Sprintf("not extracted: a link to %q could lead outside", e.Link)}}
	case e.Kind == format.HardLink && !x.mayLink(e):
		return &content.Refusal{Told: format.Problem{Code: format.Dangling, Severity: format.Error, Volume: x.src.Name, Off: -1,
			Entry: e.Name, HasEntry: true, Message: fmt.Sprintf("not extracted: hard link to %q, which is not extracted here", e.Link)}}
	}
	return nil
}

// mayLink reports whether a hard link refers to a file that this extraction made.
func (x *extraction) mayLink(e format.Entry) bool {
	k, ok := x.made[x.key(e.Link)]
	return ok && k == format.File && !x.failed[x.key(e.Link)] && naming.Fault(e.Link) == ""
}

// staysInside reports whether a link in dir to target leads nowhere outside the root, whatever
// other links there are. ".." may only come first: after a name that is itself a link, ".." leads
// to the parent of that link's target, not back.
func staysInside(dir, target string) bool {
	target = strings.ReplaceAll(target, `\`, "/")
	if target == "" || strings.IndexByte(target, 0) >= 0 || path.IsAbs(target) || len(target) > 1 && target[1] == ':' {
		return false
	}
	named := false
	for elem := range strings.SplitSeq(target, "/") {
		switch elem {
		case "", ".":
		case "..":
			if named {
				return false
			}
		default:
			named = true
		}
	}
	return naming.ValidPath(path.Join(dir, target))
}

// hardLink links to a file that this extraction made, and to nothing else.
func (x *extraction) hardLink(e format.Entry) error {
	if err := x.linkFault(e); err != nil {
		return err
	}
	return x.root.Link(e.Link, e.Name)
}

// folderModes comes last: writing into a folder changes its time, and its mode
// may forbid writing. Deeper folders go first.
func (x *extraction) folderModes() error {
	slices.SortFunc(x.dirs, func(a, b format.Entry) int { return strings.Compare(b.Name, a.Name) })
	for _, e := range x.dirs {
		var err error
		uid, gid, owned := x.ownerOf(e)
		if owned {
			err = x.root.Chown(e.Name, uid, gid)
		}
		if err == nil && e.HasMode {
			err = x.root.Chmod(e.Name, modeFor(e, owned))
		}
		if err == nil && !e.ModTime.IsZero() {
			err = x.root.Chtimes(e.Name, e.ModTime, e.ModTime)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
