package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/mount"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

func (a *app) mountCommand() *cobra.Command {
	var o mounting
	cmd := &cobra.Command{
		Use:   "mount ARCHIVE... DIR",
		Short: "Mount archives as a file system",
		Long: `Mounts an archive at DIR, an empty folder. Any program can then read the files
of the archive, and nothing is unpacked. The mount is read-only. It lasts until
you unmount it or interrupt the command. If you give several archives, each
gets a folder below DIR.

Mounting needs FUSE, which Linux has. Users other than root also need
fusermount3, from the package fuse3. "holdall serve" works without FUSE.

The exit code is 0 after an unmount, 130 after an interrupt, and 2 if nothing
could be mounted.`,
		Example: `  holdall mount docs.caf /mnt/docs
  holdall mount --daemon --log mount.log https://example.org/big.tar here
  fusermount3 -u here
  holdall mount --follow nightly.caf here`,
		Args: args(2, -1, "an archive and a folder"),
		RunE: run(func(ctx context.Context, args []string) error {
			if o.daemon && o.foreground {
				return usage("expected one of --daemon and --foreground")
			}
			if o.log != "" && !o.daemon {
				return usage("--log needs --daemon")
			}
			if slices.Contains(args[:len(args)-1], "-") && o.follow {
				return usage("--follow does not work with standard input")
			}
			if o.daemon && os.Getenv(readyVar) == "" {
				return a.mountInBackground(ctx, args[:len(args)-1], o)
			}
			return a.mount(ctx, args[:len(args)-1], args[len(args)-1], o)
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&o.daemon, "daemon", false, "run in the background once mounted")
	f.BoolVar(&o.foreground, "foreground", false, "run until unmounted or interrupted (the default)")
	f.StringVar(&o.log, "log", "", "with --daemon: append the log to this `file`")
	f.BoolVar(&o.follow, "follow", false, "reopen an archive when it changes")
	f.BoolVar(&o.allowOther, "allow-other", false, "let other users read files, subject to modes and owners")
	f.Var(&o.owner, "owner", "owner of all files, instead of the owners in the archive")
	f.DurationVar(&o.wait, "wait", 0, "while a server does not answer, wait this long before a read fails")
	f.BoolVar(&o.nonEmpty, "nonempty", false, "mount over a folder that is not empty")
	return cmd
}

type mounting struct {
	daemon     bool
	foreground bool
	log        string
	follow     bool
	allowOther bool
	owner      ownerFlag
	nonEmpty   bool
	wait       time.Duration
}

func freeName(name string, taken map[string]bool) string {
	free := name
	for n := 2; taken[free]; n++ {
		free = name + "-" + strconv.Itoa(n)
	}
	taken[free] = true
	return free
}

// ownerFlag is UID:GID.
type ownerFlag struct{ to *mount.Owner }

func (f *ownerFlag) Type() string   { return "uid:gid" }
func (f *ownerFlag) String() string { return "" }

func (f *ownerFlag) Set(s string) error {
	user, group, ok := strings.Cut(s, ":")
	uid, err := strconv.ParseUint(user, 10, 32)
	gid, gerr := strconv.ParseUint(group, 10, 32)
	if !ok || err != nil || gerr != nil {
		return errors.New("expected two numbers, UID:GID")
	}
	f.to = &mount.Owner{UID: uint32(uid), GID: uint32(gid)}
	return nil
}

type mountedJSON struct {
	Archive string     `json:"archive"`
	Dir     string     `json:"dir,omitempty"`
	Error   *errorJSON `json:"error,omitempty"` // why it is not mounted
}

func (a *app) mount(ctx context.Context, addresses []string, dir string, o mounting) error {
	a.stays = true
	ctx = storekit.Patient(ctx, o.wait)
	logTo, ready, err := a.answerParent()
	if err != nil {
		return err
	}
	trees, all, err := a.mountTrees(ctx, addresses, o)
	var m *mount.Mount
	if err == nil {
		a.address = "" // from here on, errors are about no archive in particular
		source := store.Redact(addresses[0])
		if len(addresses) > 1 {
			source = "holdall"
		}
		m, err = mount.New(dir, trees, mount.Options{
			Wait:   o.wait,
			Source: source, AllowOther: o.allowOther, Owner: o.owner.to, NonEmpty: o.nonEmpty, Folders: len(addresses) > 1, Log: slog.New(a.logTo(logTo)),
		})
	}
	if err != nil {
		for _, t := range trees {
			t.Archive.Close()
		}
		if errors.Is(err, mount.ErrNoFUSE) {
			err = fmt.Errorf("%w; \"holdall serve\" works without FUSE", err)
		}
		return err
	}
	moreToRun()
	leanGC(8 << 20)
	for _, x := range all {
		if len(all) > 1 && x.Error == nil {
			x.Dir = strings.TrimSuffix(dir, "/") + "/" + x.Dir
		} else if x.Error == nil {
			x.Dir = dir
		} else if !a.json {
			continue // it has been reported
		}
		a.say(x, "mounted %s at %s\n", printable(x.Archive), printable(x.Dir))
	}
	flushed := a.out.Flush()
	ready()
	select {
	case <-m.Done():
		return flushed
	case <-ctx.Done():
	}
	lazily, err := m.Unmount()
	if lazily {
		a.warn("%s is in use: it is detached, and programs that use it get errors from now on", printable(dir))
	}
	if err != nil {
		a.warn("%v", err)
	}
	return context.Cause(ctx)
}

// Several archives of one mount share the memory for caches, but each has some.
const (
	mountCache = 32 << 20
	leastCache = 4 << 20
)

// mountTrees opens the archives to be mounted, and returns the folder of each, or
// why it has none. With an error, it also returns those that are already open.
func (a *app) mountTrees(ctx context.Context, addresses []string, o mounting) (trees []mount.Tree, all []mountedJSON, err error) {
	taken := map[string]bool{}
	if n := int64(len(addresses)); n > 1 {
		a.cacheBytes = max(mountCache/n, leastCache)
	}
	for _, address := range addresses {
		t := mount.Tree{Name: freeName(archiveName(address), taken)}
		x := mountedJSON{Archive: store.Redact(address)}
		if o.follow {
			t.Opened = stateOf(ctx, address)
			t.Version = func(ctx context.Context) string { return stateOf(ctx, address) }
			t.Reopen = func(ctx context.Context) (*holdall.Archive, error) {
				return a.openBy(ctx, address, a.asked, false, a.useIndex())
			}
		}
		t.Archive, err = a.open(ctx, address, false)
		if x.Error, err = a.without(ctx, err, len(addresses)); err != nil {
			return trees, nil, err
		}
		if x.Error == nil {
			a.doubts(ctx) // now, not at the end
			t.Aside, x.Dir = byKeptIndex, t.Name
			trees = append(trees, t)
		}
		all = append(all, x)
	}
	if len(trees) == 0 {
		return nil, nil, errSaid
	}
	return trees, all, nil
}

// byKeptIndex keeps an index of an archive, so that the next start is faster, and opens the
// archive by it: then its entries need not stay in memory. It returns nil if there is no index.
// Readers do not wait for it.
func byKeptIndex(ctx context.Context, in *holdall.Archive) *holdall.Archive {
	if kept, err := in.KeepIndex(ctx, true); err != nil || !kept {
		return nil
	}
	next, err := holdall.Open(ctx, in.Name(), in.Options().In(in.Store()))
	if err != nil {
		return nil
	}
	if next.Index().Used == "" {
		next.Close() // it has changed
		return nil
	}
	return next
}

// moreToRun lets more threads run than there are processors, unless the user
// has set a number. A thread that waits in a system call counts as running for
// a while, and the library has one more of them than there are processors.
// Without this, a request could wait until the runtime noticed that the other
// threads were blocked.
func moreToRun() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
	}
}

// stateOf returns a string that identifies the state of the bytes at an
// address, which may be a folder. It returns "" if there is none.
func stateOf(ctx context.Context, address string) string {
	if address == "-" {
		return ""
	}
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return ""
	}
	return stateIn(ctx, st, name)
}

func stateIn(ctx context.Context, st store.Store, name string) string {
	if v := versionIn(ctx, st, name); v != "" {
		return v
	}
	h := blake3.New()
	n := 0
	for info, err := range storekit.List(ctx, st, strings.TrimSuffix(name, "/")+"/") {
		if err != nil {
			return ""
		}
		n++
		fmt.Fprintf(h, "%q %d %s %d\n", info.Name, info.Size, info.Version, info.ModTime.UnixNano())
	}
	if n == 0 {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// A daemon is a second process of this program. It reports through a pipe that
// it is ready. The parent prints all output that comes before that.
const (
	readyVar  = "HOLDALL_MOUNT_READY" // set if there is such a pipe, as file 3
	readyMark = "\x00"
)

// answerParent redirects output to the process that waits for the mount, if
// there is one, until ready is called. This includes the output of
// fusermount3. The log goes elsewhere, as it continues after that.
func (a *app) answerParent() (logTo io.Writer, ready func(), err error) {
	if os.Getenv(readyVar) == "" {
		return a.stderr, func() {}, nil
	}
	pipe, log := os.NewFile(3, "ready"), os.Stderr
	if _, err := pipe.Stat(); err != nil {
		return nil, nil, fmt.Errorf("%s is set by --daemon only: %w", readyVar, err)
	}
	a.stderr, os.Stderr = pipe, pipe
	return log, func() {
		_, _ = io.WriteString(pipe, readyMark)
		a.stderr, os.Stderr = log, log
		pipe.Close()
	}, nil
}

func (a *app) mountInBackground(ctx context.Context, addresses []string, o mounting) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(cmp.Or(o.log, os.DevNull), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer to.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	out, outW, err := os.Pipe() // the parent need not wait until the pipe closes
	if err != nil {
		return errors.Join(err, w.Close())
	}
	defer out.Close()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), readyVar+"=1")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = outW, to, []*os.File{w}
	if slices.Contains(addresses, "-") {
		cmd.Stdin = os.Stdin
	}
	alone(cmd)
	err = cmd.Start()
	w.Close()
	outW.Close()
	if err != nil {
		return err
	}
	said := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(r)
		said <- b
	}()
	select {
	case b := <-said:
		return a.passOn(cmd, b, out, len(addresses))
	case <-ctx.Done():
		_ = cmd.Process.Signal(os.Interrupt)
		return errors.Join(context.Cause(ctx), cmd.Wait())
	}
}

// passOn prints the output that a daemon wrote before it was ready. If the
// daemon is ready, passOn leaves it running.
func (a *app) passOn(cmd *exec.Cmd, said []byte, results io.Reader, archives int) error {
	text, ready := bytes.CutSuffix(said, []byte(readyMark))
	if _, err := a.stderr.Write(text); err != nil {
		return err
	}
	if !ready {
		err := cmd.Wait()
		if len(text) == 0 {
			return fmt.Errorf("the daemon exited before it was ready: %w", err)
		}
		return errSaid
	}
	lines := bufio.NewReader(results)
	for i := 0; a.json && i < archives; i++ { // one line for each archive
		line, err := lines.ReadString('\n')
		if a.out.WriteString(line); err != nil {
			break
		}
	}
	return cmd.Process.Release()
}
