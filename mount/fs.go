//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"errors"
	iofs "io/fs"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/base/people"
	"github.com/holdall/holdall/store"
)

type filesystem struct {
	fuse.RawFileSystem // returns ENOSYS
	trees              []*tree
	o                  Options
	owner              Owner
	mounted            time.Time
	ctx                context.Context // ends with the mount
	people             people.People
	nodes              nodes
	handles            handles
	readings           readings
	aheads             aheads
	looks              looks
	unopened           bool // the kernel does not report when files are opened and closed
	quiet              quiet
}

// forever is for data that cannot change, as in one version of an archive.
const forever = time.Hour

func (f *filesystem) String() string { return "holdall" }

// fresh returns how long the kernel may cache data about a tree's root. If the archive is
// watched, new names may appear.
func (t *tree) fresh() time.Duration {
	if t.Reopen != nil {
		return time.Second
	}
	return forever
}

// status converts an error to a status, and logs it.
func (f *filesystem) status(v *version, name string, err error) fuse.Status {
	switch {
	case err == nil:
		return fuse.OK
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		if f.ctx.Err() != nil {
			return fuse.Status(syscall.ENOTCONN)
		}
		return fuse.EINTR
	case errors.Is(err, store.ErrChanged):
		f.changed(v)
		return fuse.Status(syscall.ESTALE)
	}
	// The errors of stores for missing objects also wrap fs.ErrNotExist.
	if _, far := errors.AsType[*store.Error](err); !far && errors.Is(err, iofs.ErrNotExist) {
		return fuse.ENOENT
	}
	f.quiet.say(f.o.Log, "cannot be read", slog.String("archive", v.tree.shownName()), slog.String("entry", format.Escape(name)), slog.String("error", err.Error()))
	return fuse.EIO
}

func (t *tree) shownName() string { return store.Redact(t.name) }

func (f *filesystem) entry(ctx context.Context, v *version, n *node) (holdall.Entry, error) {
	if k := f.nodes.recall(n); k != nil && k.v == v {
		return k.e, nil
	}
	e, err := v.lookup(ctx, n.name)
	if err != nil {
		return e, err
	}
	f.nodes.remember(n, &found{v, e})
	return e, nil
}

// lookup is like that of the archive, but the root is always a folder, even if there is an entry
// of its name.
func (v *version) lookup(ctx context.Context, name string) (holdall.Entry, error) {
	e, err := v.a.Lookup(ctx, name)
	if name == "." {
		if err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return e, err
		}
		if e.Name = "."; err != nil || e.Kind != format.Dir {
			return holdall.Entry{Name: ".", Kind: format.Dir}, nil
		}
	}
	return e, err
}

var modeBits = [...]struct {
	is   iofs.FileMode
	told uint32
}{{iofs.ModeSetuid, syscall.S_ISUID}, {iofs.ModeSetgid, syscall.S_ISGID}, {iofs.ModeSticky, syscall.S_ISVTX}}

// attr sets the attributes of an entry. A hard link must have been resolved.
func (f *filesystem) attr(v *version, e *holdall.Entry, ino uint64, a *fuse.Attr) {
	mode := e.FileMode()
	*a = fuse.Attr{Ino: ino, Mode: uint32(mode.Perm()), Nlink: 1, Owner: fuse.Owner{Uid: f.owner.UID, Gid: f.owner.GID}}
	for _, bit := range modeBits {
		if mode&bit.is != 0 {
			a.Mode |= bit.told
		}
	}
	a.Mode |= typeOf(e.Kind)
	switch e.Kind {
	case format.Dir, format.Fifo:
	case format.Symlink:
		a.Mode = syscall.S_IFLNK | 0o777
		a.Size = uint64(len(e.Link))
	default:
		a.Size = uint64(max(e.Size, 0))
		if a.Size == 0 && faultOf(e) != nil {
			// Nobody would read an empty file and learn that it cannot be read.
			a.Size = 1
		}
		a.Blocks = (a.Size + 511) / 512
	}
	if e.Kind != format.Dir {
		if n := v.linked()[e.Name]; n > 0 {
			a.Nlink = n
		}
	}
	when := e.ModTime
	if when.IsZero() {
		when = v.modTime
	}
	a.SetTimes(&when, &when, &when)
	if f.o.Owner == nil {
		if uid, ok := f.people.UID(e.Owner); ok && e.Owner != "" {
			a.Uid = uint32(uid)
		}
		if gid, ok := f.people.GID(e.Group); ok && e.Group != "" {
			a.Gid = uint32(gid)
		}
	}
}

// rootAttr sets the attributes of the folder that contains several archives.
func (f *filesystem) rootAttr(a *fuse.Attr) {
	*a = fuse.Attr{Ino: rootIno, Mode: syscall.S_IFDIR | 0o555, Nlink: 1, Owner: fuse.Owner{Uid: f.owner.UID, Gid: f.owner.GID}}
	a.SetTimes(&f.mounted, &f.mounted, &f.mounted)
}

// tell fills in the kernel's response for an entry that was found as name in a folder. From then
// on the kernel knows the node.
func (f *filesystem) tell(ctx context.Context, v *version, in *node, name string, e holdall.Entry, out *fuse.EntryOut) {
	by := link{}
	several := false
	if e.Kind == format.HardLink {
		by, several = link{in.ino, name}, true
		if target, err := follow(ctx, v.a, e); err == nil {
			e = target
		} else if e.Fault == nil {
			e.Fault = &format.Problem{Message: err.Error()}
		}
	}
	n := f.nodes.know(v.tree, e.Name, by)
	f.nodes.remember(n, &found{v, e})
	f.attr(v, &e, n.ino, &out.Attr)
	if several {
		out.Nlink = max(out.Nlink, 2)
	}
	out.NodeId, out.Ino = n.ino, n.ino
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
}

// at begins a request. If there is no error, it must be ended. It uses the version of the node's
// archive, or nil for the folder that contains several.
func (f *filesystem) at(cancel <-chan struct{}, ino uint64) (*request, fuse.Status) {
	r := f.request(cancel)
	if r.n = f.nodes.get(ino); r.n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	if r.n.tree != nil {
		if r.v = r.n.tree.use(); r.v == nil {
			return nil, fuse.Status(syscall.ENOTCONN)
		}
	}
	return r, fuse.OK
}

// about begins a request about an entry, like at. There is none for the folder that contains
// several archives; about then returns the status folder.
func (f *filesystem) about(cancel <-chan struct{}, ino uint64, folder fuse.Status) (r *request, e holdall.Entry, code fuse.Status) {
	if r, code = f.at(cancel, ino); code != fuse.OK {
		return nil, e, code
	}
	code = folder
	if r.v != nil {
		var err error
		e, err = f.entry(r, r.v, r.n)
		code = f.gone(r.v, r.n, err)
	}
	if code != fuse.OK {
		r.end()
	}
	return r, e, code
}

func (f *filesystem) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	ctx, code := f.at(cancel, h.NodeId)
	if code != fuse.OK {
		return code
	}
	defer ctx.end()
	v, in := ctx.v, ctx.n
	if v == nil {
		out.SetEntryTimeout(forever)
		return f.tellRoot(ctx, in, name, out)
	}
	e, err := f.find(ctx, v, in, name)
	if code := f.status(v, in.name+"/"+name, err); code == fuse.ENOENT {
		out.SetEntryTimeout(v.tree.fresh())
		return fuse.OK
	} else if code != fuse.OK {
		return code
	}
	if e.Kind != format.Dir { // a walk that reads only names looks up each folder
		f.looks.note()
	}
	f.tell(ctx, v, in, name, e, out)
	return fuse.OK
}

// tellRoot fills in the kernel's response for an archive's folder. If there is no archive of that
// name, it is node 0, which means that there is no such file.
func (f *filesystem) tellRoot(ctx context.Context, in *node, name string, out *fuse.EntryOut) fuse.Status {
	i := slices.IndexFunc(f.trees, func(t *tree) bool { return t.Name == name })
	if i < 0 {
		return fuse.OK
	}
	v := f.trees[i].use()
	if v == nil {
		return fuse.Status(syscall.ENOTCONN)
	}
	defer v.done()
	e, err := v.lookup(ctx, ".")
	if err != nil {
		return f.status(v, ".", err)
	}
	f.tell(ctx, v, in, name, e, out)
	return fuse.OK
}

// find returns the entry that is shown as name in a folder.
func (f *filesystem) find(ctx context.Context, v *version, in *node, name string) (holdall.Entry, error) {
	missing := &iofs.PathError{Op: "lookup", Path: name, Err: iofs.ErrNotExist}
	if isCut(name) {
		for e, err := range v.a.ReadDir(ctx, in.name) {
			if err != nil || shown(in.name, e.Name) == name {
				return e, err
			}
		}
		return holdall.Entry{}, missing
	}
	whole, ok := named(in.name, name)
	if !ok || len(name) > mostName {
		return holdall.Entry{}, missing
	}
	return v.a.Lookup(ctx, whole)
}

func (f *filesystem) Forget(ino, times uint64) {
	if f.nodes.forget(ino, times) && f.unopened {
		f.readings.drop(ino)
	}
}

func (f *filesystem) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	ctx, e, code := f.about(cancel, in.NodeId, fuse.OK)
	if code != fuse.OK {
		return code
	}
	defer ctx.end()
	if out.SetTimeout(forever); ctx.v == nil {
		f.rootAttr(&out.Attr)
	} else {
		f.attr(ctx.v, &e, ctx.n.ino, &out.Attr)
	}
	return fuse.OK
}

// gone returns the status for a known entry that does not exist.
func (f *filesystem) gone(v *version, n *node, err error) fuse.Status {
	code := f.status(v, n.name, err)
	if code == fuse.ENOENT {
		return fuse.Status(syscall.ESTALE)
	}
	return code
}

func (f *filesystem) Readlink(cancel <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	ctx, e, code := f.about(cancel, h.NodeId, fuse.EINVAL)
	if code != fuse.OK {
		return nil, code
	}
	defer ctx.end()
	if e.Kind != format.Symlink {
		return nil, fuse.EINVAL
	}
	return []byte(e.Link), fuse.OK
}

func (f *filesystem) StatFs(cancel <-chan struct{}, h *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const block = 4096
	out.Bsize, out.Frsize, out.NameLen = block, block, mostName
	ctx := f.request(cancel)
	defer ctx.end()
	for _, t := range f.trees {
		if v := t.use(); v != nil {
			if n, err := v.a.StoredSize(ctx); err == nil {
				out.Blocks += uint64(n+block-1) / block
			}
			v.done()
		}
	}
	return fuse.OK
}

// quiet is a log that limits the number of lines in a period. So a program that reads all of a
// damaged archive does not cause a line for each file.
type quiet struct {
	mu    sync.Mutex
	since time.Time
	said  int
}

const (
	quietLines = 20
	quietTime  = 10 * time.Second
)

func (q *quiet) say(log *slog.Logger, what string, args ...any) {
	if log == nil {
		return
	}
	q.mu.Lock()
	if time.Since(q.since) > quietTime {
		q.since, q.said = time.Now(), 0
	}
	q.said++
	n := q.said
	q.mu.Unlock()
	if n <= quietLines {
		log.Warn(what, args...)
	}
	if n == quietLines {
		log.Warn("further errors are not logged for " + strconv.Itoa(int(quietTime.Seconds())) + " s")
	}
}

// request is the context of a request. It ends with the mount, or a while after the process that
// sent the request was interrupted. Any signal interrupts a process, also one after which it
// continues; a prompt response is then not an error.
type request struct {
	n      *node    // the node of the request
	v      *version // the version that it uses
	cancel <-chan struct{}
	parent context.Context
	once   sync.Once
	mu     sync.Mutex
	err    error
	done   chan struct{}
	over   chan struct{}
}

const patience = 250 * time.Millisecond

func (f *filesystem) request(cancel <-chan struct{}) *request {
	return &request{cancel: cancel, parent: f.ctx}
}

// end is called when the request has been answered.
func (r *request) end() {
	r.once.Do(func() {}) // prevents waiting from now on
	if r.over != nil {
		close(r.over)
	}
	if r.v != nil {
		r.v.done()
	}
}

func (r *request) Deadline() (time.Time, bool) { return time.Time{}, false }
func (r *request) Value(key any) any           { return r.parent.Value(key) }

// Done starts to wait only when it is called.
func (r *request) Done() <-chan struct{} {
	r.once.Do(func() {
		r.done, r.over = make(chan struct{}), make(chan struct{})
		go r.wait()
	})
	return r.done
}

func (r *request) wait() {
	select {
	case <-r.over:
		return
	case <-r.parent.Done():
	case <-r.cancel:
		select {
		case <-r.over:
			return
		case <-r.parent.Done():
		case <-time.After(patience):
		}
	}
	r.mu.Lock()
	r.err = context.Canceled
	r.mu.Unlock()
	close(r.done)
}

func (r *request) Err() error {
	if r.parent.Err() != nil {
		return context.Canceled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
