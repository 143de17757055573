package local

import (
	"crypto/rand"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/holdall/holdall/internal/base/sysfile"
)

// A temporary file or folder is called .NAME.holdall-RANDOM.tmp, where NAME is its final name.
// Its writer keeps it locked all the time. If it can be locked, its writer has ended.
const (
	tempMark      = ".holdall-"
	tempEnd       = ".tmp"
	tempRandomLen = 16 // hex digits
	maxElementLen = 255
	maxTempStem   = maxElementLen - len(".") - len(tempMark) - tempRandomLen - len(tempEnd)
)

// tempStem returns the prefix of all temporary names of target.
func tempStem(name string) string {
	if len(name) > maxTempStem {
		name = name[:maxTempStem]
		for i := 0; i < utf8.UTFMax && !utf8.ValidString(name); i++ { // some file systems require UTF-8
			name = name[:len(name)-1]
		}
	}
	return "." + name + tempMark
}

func isTemp(name string) bool {
	rest, ok := strings.CutSuffix(name, tempEnd)
	if !ok || name[0] != '.' || len(rest) < tempRandomLen {
		return false
	}
	stem, random := rest[:len(rest)-tempRandomLen], rest[len(rest)-tempRandomLen:]
	_, err := hex.DecodeString(random)
	return err == nil && strings.HasSuffix(stem, tempMark)
}

// createTemp creates a locked temporary file for target, or whatever open creates.
func createTemp(dir, target string, perm fs.FileMode, open func(string, int, fs.FileMode) (*os.File, error)) (*os.File, error) {
	for {
		var random [tempRandomLen / 2]byte
		rand.Read(random[:])
		p := join(dir, tempStem(target)+hex.EncodeToString(random[:])+tempEnd)
		f, err := open(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A program that removes stale files may have locked the file first, and then removes it.
		held, err := sysfile.TryLock(f)
		if err != nil {
			return f, nil // without locks, no program can lock it to remove it either
		}
		if held && sameFile(f, p) {
			return f, nil
		}
		f.Close()
	}
}

// removeStale removes temporary files of target whose writers have ended, and its lock file if the
// program that changed target has. It ignores errors.
func removeStale(dir, target string) {
	if onWindows {
		return // checking would keep a running writer from renaming its file
	}
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	stem, lock := tempStem(target), lockName(target)
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if strings.HasPrefix(name, stem) && isTemp(name) || name == lock {
				removeIfDead(join(dir, name))
			}
		}
		if err != nil {
			return
		}
	}
}

// Tidy removes the temporary files in a folder and below it whose writers have ended, because no
// writer of the same names may follow. On Windows it does nothing.
func (s *Store) Tidy(name string) error {
	top, err := s.path(name)
	if err != nil || onWindows {
		return err
	}
	return filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != top && isTemp(d.Name()) {
			if removeIfDead(p); d.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
}

func removeIfDead(p string) {
	remove := os.Remove
	f, err := openRegular(p, os.O_RDWR, os.OpenFile, os.Lstat)
	if fi, lerr := os.Lstat(p); err != nil && lerr == nil && fi.IsDir() {
		f, err = os.Open(p)
		remove = os.RemoveAll
	}
	if err != nil {
		return
	}
	defer f.Close()
	if held, _ := sysfile.TryLock(f); held && sameFile(f, p) && (!isLock(filepath.Base(p)) || isOurs(f)) {
		remove(p)
	}
}

func sameFile(f *os.File, p string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(p)
	return err == nil && os.SameFile(opened, named)
}
