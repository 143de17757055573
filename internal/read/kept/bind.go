package kept

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/internal/base/blake3"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

const (
	endLen   = 4 << 10 // how much of each end of an archive an index is bound to
	wholeLen = 1 << 20 // the whole of an archive up to this length
)

// Bind returns the current version of an archive. For a folder it covers everything in it.
func Bind(ctx context.Context, st store.Store, name string) (b Bound, err error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		if below, berr := bindFolder(ctx, st, name); berr == nil {
			return below, nil
		}
		return b, err
	}
	defer o.Close()
	tail := make([]byte, endLen)
	n, err := storekit.ReadTail(ctx, o, tail)
	if err != nil {
		return b, err
	}
	info, err := o.Info(ctx)
	if err != nil {
		return b, err
	}
	b.Size, b.ModTime = info.Size, info.ModTime.UTC()
	b.Tail, b.TailSHA256 = sumsOfEnd(tail[:n])
	if !st.Can().Near {
		b.Version = info.Version
		return b, nil
	}
	n, err = storekit.ReadHead(ctx, o, tail)
	b.Head, b.HeadSHA256 = sumsOfEnd(tail[:n])
	return b, err
}

// sumsOfEnd returns enough of two digests to distinguish ends. The libraries of other languages have
// the second one.
func sumsOfEnd(b []byte) (string, string) {
	sum, other := blake3.Sum256(b), sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), hex.EncodeToString(other[:16])
}

// errFarFolder means that it cannot be determined whether a folder has changed.
var errFarFolder = errors.New("the objects of the folder cannot be listed")

// bindFolder is Bind for an archive of many objects. It covers their names, sizes and versions, or
// times if they are on a disk.
func bindFolder(ctx context.Context, st store.Store, name string) (b Bound, err error) {
	h := blake3.New()
	prefix := strings.TrimSuffix(name, "/") + "/"
	for info, err := range storekit.List(ctx, st, prefix) {
		if err != nil {
			return b, err
		}
		b.Size += info.Size
		if info.ModTime.After(b.ModTime) {
			b.ModTime = info.ModTime.UTC()
		}
		version := info.Version
		if st.Can().Near {
			version = info.ModTime.UTC().Format(time.RFC3339Nano)
		}
		rest := strings.TrimPrefix(info.Name, prefix)
		fmt.Fprintf(h, "%q %d %s\n", rest, info.Size, version)
		o := BoundObject{Name: "/" + rest, Size: info.Size, ModTime: info.ModTime.UTC()}
		if !st.Can().Near {
			o.Version = version
		}
		b.Objects = append(b.Objects, o)
	}
	if len(b.Objects) == 0 {
		return b, errFarFolder
	}
	b.Tail = hex.EncodeToString(h.Sum(nil)[:16])
	return b, nil
}

// Is returns an error that says why an index bound to was is not an index of the current version. If only
// the lengths and the ends are known to be the same, copied is true: a copy of the archive has another
// time or version, and so may an archive that was changed in its middle.
func (was Bound) Is(now Bound) (copied bool, err error) {
	sameTime := !now.ModTime.IsZero() && (was.ModTime.Equal(now.ModTime) || now.ModTime.Nanosecond() == 0 && was.ModTime.Truncate(time.Second).Equal(now.ModTime))
	switch {
	case was.Size != now.Size:
		return false, fmt.Errorf("it belongs to an archive of %d bytes, not of %d", was.Size, now.Size)
	case was.Tail != now.Tail && !was.lists(now) || was.Head != "" && now.Head != "" && was.Head != now.Head:
		return false, errors.New("it belongs to an archive with another beginning or end")
	case was.Version != "" && was.Version == now.Version:
		return false, nil
	}
	return was.Tail != now.Tail || !sameTime || was.Version != "" && now.Version != "", nil
}

// Still returns an error if an archive has changed since it was bound, or if that cannot be found out.
func (was Bound) Still(ctx context.Context, st store.Store, name string) error {
	now, err := Bind(ctx, st, name)
	if err != nil {
		return err
	}
	if copied, err := was.Is(now); err != nil || copied {
		return fmt.Errorf("%w: %w", store.ErrChanged, cmp.Or(err, errors.New("it has another time")))
	}
	return nil
}

// lists reports whether two versions of a folder have objects of the same names and lengths.
func (was Bound) lists(now Bound) bool {
	return len(was.Objects) > 0 && slices.EqualFunc(was.Objects, now.Objects, func(a, b BoundObject) bool { return a.Name == b.Name && a.Size == b.Size })
}

// BindWhole is Bind, and also reads the beginning of an archive on a network, which Bind does not
// request, and all of a short one.
func BindWhole(ctx context.Context, st store.Store, name string) (Bound, error) {
	b, err := Bind(ctx, st, name)
	if err != nil || len(b.Objects) > 0 {
		return b, err
	}
	if b.Head == "" || b.Size <= wholeLen {
		head, err := headOf(ctx, st, name, max(endLen, min(b.Size, wholeLen)))
		if errors.Is(err, fs.ErrNotExist) {
			return b, nil // a folder
		}
		if err != nil {
			return b, err
		}
		if b.Head, b.HeadSHA256 = sumsOfEnd(head[:min(len(head), endLen)]); b.Size <= wholeLen {
			b.Whole, b.WholeSHA256 = sumsOfEnd(head)
		}
	}
	return b, nil
}

// headOf returns the first bytes of an archive.
func headOf(ctx context.Context, st store.Store, name string, n int64) ([]byte, error) {
	o, err := st.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	p := make([]byte, n)
	got, err := storekit.ReadHead(ctx, o, p)
	return p[:got], err
}
