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

	"github.com/holdall/holdall/internal/sysfile"
	"github.com/holdall/holdall/store"
)

// Who changes a file in place holds two locks. That of the file itself is where
// all names of the file meet, hard links too, and those who cannot write its
// folder. That of a lock file beside it, .NAME.holdall-lock, stays when the file
// is replaced by another, and says in one line who holds it:
//
//	process 123 on host (holdall add) since 2026-01-02T15:04:05Z
const (
	lockEnd   = ".holdall-lock"
	lockBegin = "process "
	lockSince = " since "
	maxLock   = 512 // bytes of it that are believed
)

// lockName is what the lock file of a file is called. Names so long that they
// must be cut may share one; then they are locked together.
func lockName(name string) string { return strings.TrimSuffix(tempStem(name), tempMark) + lockEnd }

// isLock reports whether a name is that of a lock file, which is no object.
func isLock(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, lockEnd)
}

// take gets both locks, or that of the file if there can be no lock file.
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
		case err != nil && made: // that it is there is the lock
		case err != nil:
			f.Close()
			if none == nil {
				return nil
			}
			return fmt.Errorf("%w; if that process has ended, remove %s", a.locked(p), p)
		case !held:
			f.Close()
			return a.locked(p)
		case !sameFile(f, p): // its holder has just ended, and took it away
			f.Close()
			continue
		case !made && !isOurs(f):
			f.Close()
			return unlessLocked(fmt.Errorf("%s: expected a lock file, found another file", p), none)
		}
		a.lock = f
		// Who holds it is a courtesy, and there may be no room for it.
		if err := f.Truncate(0); err == nil {
			_, _ = fmt.Fprintf(f, "%s%s%s\n", holder(), lockSince, time.Now().UTC().Format(time.RFC3339))
		}
		return nil
	}
	return errReplaced
}

// unlessLocked returns err, unless the lock of the file itself is held and must
// do: none says why it is not.
func unlessLocked(err, none error) error {
	if none == nil {
		return nil
	}
	return errors.Join(err, fmt.Errorf("lock: %w", none))
}

// openLock opens a lock file, or makes it. It follows no symlink and opens no
// pipe: in a folder for everybody, somebody may have put one there.
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
		if os.IsPermission(err) { // another user's: it can be locked nevertheless
			f, err = os.OpenFile(p, os.O_RDONLY|sysfile.DontWait, 0)
		}
		if os.IsNotExist(err) {
			continue
		}
		return f, false, err
	}
	return nil, false, errReplaced
}

// isOurs reports whether a file may be overwritten because it is a lock file.
func isOurs(f *os.File) bool {
	b := make([]byte, maxLock+1)
	n, err := f.ReadAt(b, 0)
	return err == io.EOF && (n == 0 || strings.HasPrefix(string(b[:n]), lockBegin))
}

// locked says who has the lock, as the lock file tells.
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
	// Anybody may have written it, and it goes to a terminal.
	e.Holder = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line)
	return e
}

// release gives the lock file up.
func (a *amendment) release() {
	if a.lock == nil {
		return
	}
	p := a.lock.Name()
	if onWindows {
		a.lock.Close() // an open file cannot be removed: not ours yet, nor another's already
		os.Remove(p)
		return
	}
	// Before it is let go of, so that nobody takes away another's.
	if sameFile(a.lock, p) {
		os.Remove(p)
	}
	a.lock.Close()
}

// holder names this process, and what it is doing but not to what.
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
	// Other programs' arguments may be anything, secrets too.
	if strings.TrimSuffix(command, ".exe") == "holdall" && len(os.Args) > 1 && isVerb(os.Args[1]) {
		command += " " + os.Args[1]
	}
	return s + " (" + command + ")"
}

func isVerb(s string) bool {
	return s != "" && len(s) < 20 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}
