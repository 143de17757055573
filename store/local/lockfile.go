package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/holdall/holdall/internal/base/sysfile"
	"github.com/holdall/holdall/store"
)

// A program that changes a file in place holds two locks. The lock of the file itself also works
// for hard links to it, and for users who cannot write to its folder. The lock file beside it,
// .NAME.holdall-lock, remains when the file is replaced, and says in one line who holds the lock:
//
//	process 123 on host (holdall add) since 2026-01-02T15:04:05Z
const (
	lockEnd   = ".holdall-lock"
	lockBegin = "process "
	lockSince = " since "
	maxLock   = 512 // most bytes that are read from a lock file
)

// lockName returns the name of the lock file of a file. Long names that must be cut may share a
// lock file, and are then locked together.
func lockName(name string) string { return strings.TrimSuffix(tempStem(name), tempMark) + lockEnd }

// isLock reports whether name is that of a lock file, which is not an object.
func isLock(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, lockEnd)
}

// take takes both locks, or only that of the file if there can be no lock file.
func (a *amendment) take() error {
	dir, name := filepath.Split(a.path)
	p := dir + lockName(name)
	held, err := a.store.lock(a.f)
	if err == nil && !held {
		return a.locked(p)
	}
	none := err // why the file cannot be locked; there may be no locks here at all
	for range maxTries {
		f, made, err := openLock(p)
		if err != nil {
			return unlessLocked(err, none)
		}
		held, err := a.store.lock(f)
		switch {
		case err != nil && made: // the existence of the file is the lock
		case err != nil:
			f.Close()
			if none == nil {
				return nil
			}
			return fmt.Errorf("%w; if that process has ended, remove %s", a.locked(p), p)
		case !held:
			f.Close()
			return a.locked(p)
		case !sameFile(f, p): // its holder has just ended, and removed it
			f.Close()
			continue
		case !made && !isOurs(f):
			f.Close()
			return unlessLocked(fmt.Errorf("%s: expected a lock file, found another file", p), none)
		}
		a.lock = f
		// The line is optional: there may be no space for it.
		if err := f.Truncate(0); err == nil {
			_, _ = fmt.Fprintf(f, "%s%s%s\n", holder(), lockSince, time.Now().UTC().Format(time.RFC3339))
		}
		return nil
	}
	return errReplaced
}

// unlessLocked returns nil if the file itself is locked, and err otherwise; none says why the
// file is not locked.
func unlessLocked(err, none error) error {
	if none == nil {
		return nil
	}
	return errors.Join(err, fmt.Errorf("lock: %w", none))
}

// openLock opens or creates a lock file. It follows no symbolic link and opens no pipe, because
// in a folder that everyone can write to, anyone may have put one there.
func openLock(p string) (f *os.File, made bool, err error) {
	for range maxTries {
		fi, err := os.Lstat(p)
		switch {
		case os.IsNotExist(err):
			f, err = os.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
			if os.IsExist(err) {
				continue
			}
			return f, true, err
		case err != nil:
			return nil, false, err
		}
		if err := refusal(fi.Mode()); err != nil {
			return nil, false, fmt.Errorf("%s: %w", p, err)
		}
		f, err = os.OpenFile(p, os.O_RDWR|sysfile.DontWait, 0)
		if os.IsPermission(err) { // another user's file can be locked nevertheless
			f, err = os.OpenFile(p, os.O_RDONLY|sysfile.DontWait, 0)
		}
		if os.IsNotExist(err) {
			continue
		}
		return f, false, err
	}
	return nil, false, errReplaced
}

// isOurs reports whether a file is a lock file and may be overwritten.
func isOurs(f *os.File) bool {
	b := make([]byte, maxLock+1)
	n, err := f.ReadAt(b, 0)
	return err == io.EOF && (n == 0 || strings.HasPrefix(string(b[:n]), lockBegin))
}

// locked returns the error that says who holds the lock, as the lock file says.
func (a *amendment) locked(p string) error {
	e := &store.LockedError{Name: a.path}
	f, err := openRegular(p, os.O_RDONLY, os.OpenFile, os.Lstat)
	if err != nil {
		return e
	}
	defer f.Close()
	b := make([]byte, maxLock)
	n, _ := f.ReadAt(b, 0)
	line, _, whole := strings.Cut(string(b[:n]), "\n")
	if !whole || !strings.HasPrefix(line, lockBegin) {
		return e
	}
	if i := strings.LastIndex(line, lockSince); i >= 0 {
		if t, err := time.Parse(time.RFC3339, line[i+len(lockSince):]); err == nil {
			line, e.Since = line[:i], t.Local()
		}
	}
	// Anyone may have written the text, and it is printed on a terminal.
	e.Holder = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line)
	return e
}

// release releases the lock file.
func (a *amendment) release() {
	if a.lock == nil {
		return
	}
	p := a.lock.Name()
	if onWindows {
		a.lock.Close() // an open file cannot be removed; it may still be ours, or already another program's
		os.Remove(p)
		return
	}
	// Removing the file before releasing the lock ensures that it is not another program's.
	if sameFile(a.lock, p) {
		os.Remove(p)
	}
	a.lock.Close()
}

// holder describes this process and its verb, without its arguments.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	s := fmt.Sprintf("%s%d on %s", lockBegin, os.Getpid(), host)
	if len(os.Args) == 0 {
		return s
	}
	command := filepath.Base(os.Args[0])
	// The arguments of other programs may contain anything, even secrets.
	if strings.TrimSuffix(command, ".exe") == "holdall" && len(os.Args) > 1 && isVerb(os.Args[1]) {
		command += " " + os.Args[1]
	}
	return s + " (" + command + ")"
}

func isVerb(s string) bool {
	return s != "" && len(s) < 20 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}
