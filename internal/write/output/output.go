// Package output decides what a verb may write over. It does not write.
package output

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/read/detect"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A Guard says what a verb reads, and what it may replace.
type Guard struct {
	// Inputs are the addresses of the objects and folders that the verb reads. They are never
	// replaced.
	Inputs []string
	// Skips says that the verb leaves its own earlier output out of what it reads.
	Skips bool
	// Ours reports whether an object is of the kind that the verb writes. Kind names that kind.
	Ours func(format.Probe) bool
	Kind string
	// Force also replaces objects of other kinds.
	Force bool
}

// An Error means that an object exists where a verb would write, and is not replaced. It matches
// [fs.ErrExist].
type Error struct {
	At    string
	Input bool   // the verb also reads it
	Kind  string // what the object is not; "" if Input
	Err   error  // why that cannot be found out, or nil
}

func (e *Error) Error() string {
	switch {
	case e.Input:
		return fmt.Sprintf("%s: an input cannot be the output too: choose another name for the output", e.At)
	case e.Err != nil:
		return fmt.Sprintf("%s: not replaced, because it cannot be read: %v", e.At, e.Err)
	}
	return fmt.Sprintf("%s: exists and is not %s, so it is not replaced", e.At, e.Kind)
}

func (e *Error) Is(target error) bool { return target == fs.ErrExist }
func (e *Error) Unwrap() error        { return e.Err }

// Check returns an [*Error] if the verb may not write to name in st. What is not a regular file
// is nothing that a writer replaces: a folder, a pipe or a device.
func (g Guard) Check(ctx context.Context, st store.Store, name string) error {
	stored := storekit.Under(st)
	at := storekit.AddressOf(stored, name)
	there, local := fs.FileInfo(nil), stored.Can().Near && at != "" && store.Scheme(at) == ""
	if local {
		var err error
		if there, err = os.Stat(filepath.FromSlash(at)); errors.Is(err, fs.ErrNotExist) || err == nil && !there.Mode().IsRegular() {
			return nil
		}
	}
	below := false
	for _, in := range g.Inputs {
		same, within := relation(in, at, there)
		if same {
			return &Error{At: store.Redact(at), Input: true}
		}
		below = below || within
	}
	p, err := probe(ctx, st, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case below && !(g.Skips && err == nil && g.Ours(p)):
		return &Error{At: store.Redact(at), Input: true}
	case g.Force, err == nil && (p.Size == 0 || g.Ours(p)):
		return nil
	}
	shown := store.Redact(at)
	if shown == "" {
		shown = name
	}
	return &Error{At: shown, Kind: g.Kind, Err: err}
}

// relation reports whether an input is the object at an address, or a folder above it. For a
// local file, there is its info.
func relation(in, at string, there fs.FileInfo) (same, above bool) {
	_, in = store.CutLayer(in)
	if there == nil {
		in = strings.TrimRight(in, "/")
		return in == at && at != "", strings.HasPrefix(at, in+"/") && in != ""
	}
	if s := store.Scheme(in); s == "file" {
		in = strings.TrimPrefix(in, in[:len("file://")])
	} else if s != "" {
		return false, false
	}
	info, err := os.Stat(filepath.FromSlash(in))
	if err != nil {
		return false, false
	}
	if !info.IsDir() {
		return os.SameFile(info, there), false
	}
	file, err := filepath.EvalSymlinks(filepath.FromSlash(at))
	if err != nil {
		return false, false
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if d, err := os.Stat(dir); err == nil && os.SameFile(info, d) {
			return false, true
		}
		if dir == filepath.Dir(dir) {
			return false, false
		}
	}
}

func probe(ctx context.Context, st store.Store, name string) (format.Probe, error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		return format.Probe{}, err
	}
	defer o.Close()
	return detect.Probe(ctx, o, name, !st.Can().Near)
}
