package store

import "strings"

// MetaHeader is how the names of what users keep with an object begin, whatever its
// service calls them.
const MetaHeader = "x-amz-meta-"

// MaxHeaders bounds the names and values of what is kept with an object. Services have
// a few KiB at most.
const MaxHeaders = 64 << 10

// IsHeader reports whether name is that of a header that services keep with objects, as
// ObjectAbilities.Headers has it.
func IsHeader(name string) bool {
	switch name {
	case "content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires":
		return true
	}
	meta, ok := strings.CutPrefix(name, MetaHeader)
	return ok && meta != "" && !strings.ContainsFunc(meta, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r >= 'A' && r <= 'Z' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
