package kit

import (
	"encoding/hex"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/store/storekit"
)

// ETagAttr is the attribute with the ETag of an object that was packed from a bucket, including
// its quotes.
const ETagAttr = "etag"

// MD5OfETag returns the MD5 that an ETag is, if it is one.
func MD5OfETag(etag string) (sum []byte, ok bool) {
	const digits = 32
	if len(etag) != digits+2 || etag[0] != '"' || etag[digits+1] != '"' || strings.ContainsAny(etag, "ABCDEF") {
		return nil, false
	}
	sum, err := hex.DecodeString(etag[1 : digits+1])
	return sum, err == nil
}

// IsObjectAttr reports whether name is an attribute that stores a property of an object of a
// bucket: its ETag, or a header for which [storekit.IsHeader] returns true. These attributes have
// the same names in all formats with KeepsHeaders. ModTime is then the time when the object was
// written.
func IsObjectAttr(name string) bool { return name == ETagAttr || storekit.IsHeader(name) }

// HasObjectAttr reports whether e has an attribute for which [IsObjectAttr] returns true.
func HasObjectAttr(e format.Entry) bool {
	for name := range e.Attr {
		if IsObjectAttr(name) {
			return true
		}
	}
	return false
}
