//go:build linux || darwin || freebsd

package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Mount is a mounted file system of archives.
type Mount struct {
	dir    string
	fs     *filesystem
	server *fuse.Server
	cancel context.CancelFunc
	done   chan struct{}
	work   sync.WaitGroup
}

// New mounts archives at dir. A single archive is mounted at dir itself, unless o.Folders is set, and
// several archives in a folder each. New returns when the mount is ready. If it succeeds, the Mount owns the archives
// and closes them when it ends. If it fails, they remain the caller's.
func New(dir string, trees []Tree, o Options) (*Mount, error) {
	dir, err := target(dir, o.NonEmpty)
	if err != nil {
		return nil, err
	}
	owner := Owner{uint32(os.Getuid()), uint32(os.Getgid())} // the owner of entries without one: the user who mounts
	if o.Owner != nil {
		owner = *o.Owner
	}
	ctx, cancel := context.WithCancel(storekit.Patient(context.Background(), o.Wait))
	f := &filesystem{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), o: o, owner: owner, mounted: time.Now(), ctx: ctx,
		handles:  handles{m: map[uint64]handle{}},
		readings: readings{after: cmp.Or(o.rest, restAfter)},
	}
	for _, tr := range trees {
		t := &tree{
			Tree: tr, name: tr.Archive.Name(), near: tr.Archive.IsNear(),
			salt: hashStart, root: rootIno, again: make(chan struct{}, 1),
		}
		t.Archive = nil // another may take its place, and then it is not kept in memory
		if len(trees) > 1 || o.Folders {
			t.salt = hash(t.salt, tr.Name+"\x00")
			t.root = mix(t.salt)
		}
		t.cur = t.newVersion(ctx, tr.Archive, f.mounted)
		if t.lastSaw = tr.Opened; tr.Reopen != nil && tr.Version != nil && tr.Opened == "" {
			t.lastSaw = tr.Version(ctx)
		}
		f.trees = append(f.trees, t)
	}
	root := &node{ino: rootIno}
	if len(f.trees) == 1 && !o.Folders {
		root.tree, root.name = f.trees[0], "."
	}
	f.nodes = newNodes(root)
	m := &Mount{dir: dir, fs: f, cancel: cancel, done: make(chan struct{})}
	if m.server, err = fuse.NewServer(f, dir, m.options()); err != nil {
		cancel()
		return nil, mountError(dir, err)
	}
	m.work.Go(m.server.Serve)
	if err := m.server.WaitMount(); err != nil {
		cancel()
		_, uerr := m.detach()
		return nil, errors.Join(mountError(dir, err), uerr)
	}
	readAheadMore(dir)
	for _, t := range f.trees {
		m.aside(t)
		if t.Reopen != nil {
			m.work.Go(func() { m.watch(t) })
		} else if f.unopened && t.near {
			m.work.Go(func() { m.look(t) })
		}
	}
	go func() {
		m.server.Wait()
		cancel()
		m.work.Wait()
		f.handles.closeAll()
		f.readings.closeAll()
		f.aheads.ending.Wait()
		for _, t := range f.trees {
			t.turn(nil)
		}
		close(m.done)
	}()
	return m, nil
}

// closeAll closes all handles after the last request.
func (hs *handles) closeAll() {
	hs.mu.Lock()
	all := hs.m
	hs.m = map[uint64]handle{}
	hs.mu.Unlock()
	for _, h := range all {
		h.Close()
	}
}

// maxRead is the largest read. With 1 MiB the header of the response would not fit into the pipe.
const maxRead = 512 << 10

func (m *Mount) options() *fuse.MountOptions {
	log := log.New(silence{}, "", 0)
	o := &fuse.MountOptions{
		Name: "holdall", FsName: cmp.Or(m.fs.o.Source, "holdall"), AllowOther: m.fs.o.AllowOther,
		MaxWrite: maxRead, MaxBackground: 64, EnableSymlinkCaching: true,
		Logger: log,
		PanicHandler: func(what any) fuse.Status {
			if l := m.fs.o.Log; l != nil {
				l.Error("a bug in holdall", slog.Any("panic", what), slog.String("stack", string(debug.Stack())))
			}
			return fuse.EIO
		},
	}
	if m.fs.o.AllowOther {
		// The kernel checks modes and owners.
		o.Options = append(o.Options, "default_permissions")
	}
	direct(o)
	return o
}

// silence drops the library's messages about requests that have ended.
type silence struct{}

func (silence) Write(p []byte) (int, error) { return len(p), nil }

func target(dir string, nonEmpty bool) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(abs)
	if err == nil && info.IsDir() {
		// If the process of a mount has ended, the kernel may still return the folder's
		// attributes, but not open it.
		var d *os.File
		if d, err = os.Open(abs); err == nil {
			defer d.Close()
			if names, _ := d.Readdirnames(1); len(names) > 0 && !nonEmpty {
				return "", fmt.Errorf("%s: expected an empty folder to mount at, found %s in it", dir, names[0])
			}
		}
	}
	switch {
	case errors.Is(err, syscall.ENOTCONN):
		return "", fmt.Errorf("%s %w: %s clears it", dir, ErrStale, howToUnmount(dir))
	case errors.Is(err, iofs.ErrNotExist):
		return "", fmt.Errorf("%s: expected a folder to mount at, found nothing", dir)
	case err == nil && !info.IsDir():
		return "", fmt.Errorf("%s: expected a folder to mount at, found a file", dir)
	}
	return abs, err
}

// Done returns a channel that is closed when the file system is no longer mounted, for whatever
// reason.
func (m *Mount) Done() <-chan struct{} { return m.done }

// Unmount ends the mount, and reads that are in progress. If a program still uses it, Unmount
// detaches it lazily and returns true: the mount disappears immediately and ends with its last
// user or with this program.
func (m *Mount) Unmount() (lazily bool, err error) {
	m.cancel()
	select {
	case <-m.done:
		return false, nil
	default:
	}
	if lazily, err = m.detach(); err != nil || lazily {
		return lazily, err
	}
	<-m.done
	return false, nil
}

func (m *Mount) detach() (lazily bool, err error) {
	for try := range 10 {
		if try > 0 {
			// A program whose read has just ended must still close the file.
			time.Sleep(time.Duration(try) * 10 * time.Millisecond)
		}
		if err = unmount(m.dir, false); err == nil {
			return false, nil
		}
		select {
		case <-m.done:
			return false, nil // it has been unmounted by someone else
		default:
		}
	}
	if uerr := unmount(m.dir, true); uerr != nil {
		return false, fmt.Errorf("%s: %w", m.dir, errors.Join(err, uerr))
	}
	return true, nil
}

// changed is called when a read finds that the archive has changed.
func (f *filesystem) changed(v *version) {
	t := v.tree
	if t.Reopen != nil && v.isCurrent() {
		select {
		case t.again <- struct{}{}:
		default:
		}
		return
	}
	if t.Reopen == nil && !t.stale.Swap(true) && f.o.Log != nil {
		f.o.Log.Error("the archive has changed: reads fail until it is mounted again", slog.String("archive", t.shownName()))
	}
}

func (f *filesystem) every(t *tree) time.Duration {
	switch {
	case f.o.Poll != 0:
		return f.o.Poll
	case t.near:
		return 2 * time.Second
	}
	return 30 * time.Second
}

// look makes the kernel forget a local archive that has changed. Otherwise the kernel would open
// files without a request and read from its cache.
func (m *Mount) look(t *tree) {
	f := m.fs
	tick := time.NewTicker(f.every(t))
	defer tick.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
		v := t.use()
		if v == nil {
			return
		}
		err := v.a.Source().Unchanged(f.ctx)
		v.done()
		if errors.Is(err, store.ErrChanged) {
			f.changed(v)
			m.invalidate(t)
			return
		}
	}
}

// watch opens an archive again after it has changed.
func (m *Mount) watch(t *tree) {
	f := m.fs
	tick := time.NewTicker(f.every(t))
	defer tick.Stop()
	must, said := false, false
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-t.again:
			must = true
		case <-tick.C:
		}
		saw := ""
		if t.Version != nil {
			saw = t.Version(f.ctx)
		}
		if !must && (saw == "" || saw == t.lastSaw) {
			continue
		}
		a, err := t.Reopen(f.ctx)
		if err != nil {
			if f.o.Log != nil && !said && f.ctx.Err() == nil {
				f.o.Log.Warn("the archive has changed and cannot be opened yet", slog.String("archive", t.shownName()), slog.String("error", err.Error()))
			}
			must, said = true, true // it may still be copied
			continue
		}
		must, said, t.lastSaw = false, false, saw
		select {
		case <-t.again: // it concerned the old version
		default:
		}
		t.turn(t.newVersion(f.ctx, a, time.Now()))
		m.aside(t)
		m.invalidate(t)
		if f.o.Log != nil {
			f.o.Log.Info("the archive has changed: reopened", slog.String("archive", t.shownName()))
		}
	}
}

// aside calls Tree.Aside, and uses the archive that it returns from then on.
func (m *Mount) aside(t *tree) {
	if v := t.use(); v != nil && t.Aside != nil {
		m.work.Go(func() {
			defer v.done()
			if a := t.Aside(m.fs.ctx, v.a); a != nil && t.replace(m.fs.ctx, v, a) {
				m.fs.nodes.forgetEntries(t)
			}
		})
	} else if v != nil {
		v.done()
	}
}

// invalidate makes the kernel forget everything about an archive.
func (m *Mount) invalidate(t *tree) {
	inos, names := m.fs.nodes.all(t)
	for _, l := range names {
		if m.fs.ctx.Err() != nil {
			return
		}
		_ = m.server.EntryNotify(l.parent, l.name) // names that the kernel does not know need not be forgotten
	}
	for _, ino := range inos {
		if m.fs.ctx.Err() != nil {
			return
		}
		_ = m.server.InodeNotify(ino, 0, 0)
	}
}

func mountError(dir string, err error) error {
	if _, serr := os.Stat(device); errors.Is(serr, iofs.ErrNotExist) {
		return fmt.Errorf("%s: %w (%s is missing)", store.Redact(dir), ErrNoFUSE, device)
	}
	if helperMissing(err) {
		return fmt.Errorf("%s: %w for users other than root without fusermount3, which is in the package fuse3", dir, ErrNoFUSE)
	}
	if d, derr := os.OpenFile(device, os.O_RDWR, 0); errors.Is(derr, iofs.ErrPermission) {
		return fmt.Errorf("%s: %w for this user: %w", dir, ErrNoFUSE, derr)
	} else if derr == nil {
		d.Close()
	}
	if strings.HasPrefix(err.Error(), "fusermount exited") {
		return fmt.Errorf("%s: fusermount3 could not mount it, and printed why", dir)
	}
	return fmt.Errorf("%s: %w", dir, err)
}
