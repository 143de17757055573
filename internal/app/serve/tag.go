package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
)

// s3Tag returns the ETag of an entry of a bucket. Clients compare an ETag that
// looks like an MD5 with the content. So it looks like one only if it is one,
// or if the original bucket kept it with the object.
func s3Tag(a *Archive, e holdall.Entry) string {
	if tag := keptTag(e); tag != "" {
		return tag
	}
	if tag := TagOf(e.Digest); tag != "" {
		return tag
	}
	if a.Version != "" {
		return hashed(string(identity(a, e)))
	}
	return hashed(fmt.Sprintf("%s %q %q %d %d", a.Once, a.Version, e.Name, e.Size, e.ModTime.UnixNano()))
}

// identity returns what identifies an entry in a version of an archive, for
// ETags.
func identity(a *Archive, e holdall.Entry) []byte {
	b := append(strconv.AppendQuote(make([]byte, 0, 256), a.Version), ' ')
	return strconv.AppendInt(append(strconv.AppendQuote(b, e.Name), ' '), e.Size, 10)
}

// TagOf returns the ETag of an object of which no bucket kept one, or "" if its
// digest is not enough for one.
func TagOf(d format.Digest) string {
	switch {
	case d.Algo == "md5":
		return `"` + hex.EncodeToString([]byte(d.Sum)) + `"`
	case len(d.Sum) >= 16:
		return hashed(d.String())
	}
	return ""
}

func hashed(of string) string {
	sum := sha256.Sum256([]byte(of))
	return `"` + hex.EncodeToString(sum[:16]) + `-1"`
}
