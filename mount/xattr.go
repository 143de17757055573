//go:build linux || darwin || freebsd

package mount

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/holdall/holdall"
)

// Extended attributes with properties of an entry that stat does not return.
const (
	attrPrefix = "user.holdall."
	attrDigest = attrPrefix + "digest" // "blake3:…"
	attrStored = attrPrefix + "stored" // VOLUME:OFFSET+LENGTH, one on each line
	attrCodec  = attrPrefix + "codec"  // names, separated by commas
	attrName   = attrPrefix + "name"   // in the archive, if it is shown differently
	attrFault  = attrPrefix + "fault"  // why the entry cannot be read
	attrOwn    = attrPrefix + "attr."  // prefix of attributes that the format stores
)

// mostStored limits the list of ranges, because a file in small pieces has many.
const mostStored = 4096

// stored returns the ranges where an entry is stored, and its codecs.
func stored(ctx context.Context, v *version, e holdall.Entry) (ranges, codecs string, err error) {
	if !e.Kind.HasContent() || e.Fault != nil {
		return "", "", nil
	}
	var b strings.Builder
	names := map[string]bool{}
	left := 0
	for x, err := range v.a.Extents(ctx, e) {
		if err != nil {
			return "", "", err
		}
		names[x.Codec] = true
		line := fmt.Sprintf("%s:%d+%d", x.Object, x.Off, x.Len)
		if b.Len()+1+len(line) > mostStored {
			// Any more are not worth waiting for.
			if left++; left > 1000 {
				break
			}
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	if left > 0 {
		b.WriteString("\n…")
	}
	if names[""] {
		delete(names, "")
		names["raw"] = true
	}
	return b.String(), strings.Join(slices.Sorted(maps.Keys(names)), ","), nil
}

func xattr(ctx context.Context, v *version, e holdall.Entry, attr string) (value string, ok bool, err error) {
	switch attr {
	case attrDigest:
		value = e.Digest.String()
	case attrStored:
		value, _, err = stored(ctx, v, e)
	case attrCodec:
		_, value, err = stored(ctx, v, e)
	case attrName:
		if shown(folderOf(e.Name), e.Name) != lastOf(e.Name) {
			return e.Name, true, nil
		}
	case attrFault:
		if e.Fault != nil {
			value = e.Fault.Message
		}
	default:
		key, own := strings.CutPrefix(attr, attrOwn)
		if own {
			value, ok = e.Attr[key]
			return value, ok, nil
		}
	}
	return value, value != "", err
}

// lastOf returns the last part of a name, which would be its name in its folder if that were
// valid.
func lastOf(name string) string {
	if dir := folderOf(name); dir != "." {
		return name[len(dir)+1:]
	}
	return name
}

func (f *filesystem) GetXAttr(cancel <-chan struct{}, h *fuse.InHeader, attr string, dest []byte) (uint32, fuse.Status) {
	if !strings.HasPrefix(attr, attrPrefix) {
		if strings.HasPrefix(attr, "user.") {
			return 0, fuse.ENOATTR
		}
		// With this error, a program that asks for access control lists and labels of one file
		// does not ask for those of others.
		return 0, fuse.Status(syscall.EOPNOTSUPP)
	}
	ctx, e, code := f.about(cancel, h.NodeId, fuse.ENOATTR)
	if code != fuse.OK {
		return 0, code
	}
	defer ctx.end()
	value, ok, err := xattr(ctx, ctx.v, e, attr)
	if err != nil {
		return 0, f.gone(ctx.v, ctx.n, err)
	}
	if !ok {
		return 0, fuse.ENOATTR
	}
	return answer(value, dest)
}

func (f *filesystem) ListXAttr(cancel <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	ctx, e, code := f.about(cancel, h.NodeId, fuse.OK)
	if code != fuse.OK {
		return 0, code
	}
	defer ctx.end()
	if ctx.v == nil {
		return 0, fuse.OK
	}
	var b strings.Builder
	list := func(name string) { b.WriteString(name + "\x00") }
	if e.Digest.Algo != "" {
		list(attrDigest)
	}
	if e.Kind.HasContent() && e.Size > 0 && e.Fault == nil {
		list(attrStored)
		list(attrCodec)
	}
	for _, attr := range []string{attrName, attrFault} {
		if _, ok, _ := xattr(ctx, ctx.v, e, attr); ok {
			list(attr)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.Attr)) {
		if strings.IndexByte(key, 0) < 0 && len(attrOwn)+len(key) <= mostName {
			list(attrOwn + key)
		}
	}
	return answer(b.String(), dest)
}

// answer returns a value, or its length.
func answer(value string, dest []byte) (uint32, fuse.Status) {
	if len(value) > 64<<10 {
		return 0, fuse.Status(syscall.E2BIG)
	}
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}
