package storekit

import "strings"

// StoredType is a media type for requests. A server that has a page or a list at the address of an
// archive, such as "holdall serve", sends the archive as it is stored to clients that accept it.
const StoredType = "application/vnd.holdall.stored"

// MetaHeader is the prefix of the names of users' metadata, whatever the service calls it.
const MetaHeader = "x-amz-meta-"

// TagsHeader is the name of the header for the tags of an object, as in the query of a URL: "a=1&b=2".
const TagsHeader = "x-amz-tagging"

// MaxHeaders limits the size of the names and values of an object's headers. Services allow a few
// KiB at most.
const MaxHeaders = 64 << 10

// IsHeader reports whether name is a header that services store with objects, as returned by
// [store.ObjectAbilities.Headers].
func IsHeader(name string) bool {
	switch name {
	case "content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires", TagsHeader,
		"x-amz-checksum-crc32", "x-amz-checksum-crc32c", "x-amz-checksum-crc64nvme", "x-amz-checksum-sha1", "x-amz-checksum-sha256",
		"x-amz-checksum-sha512", "x-amz-checksum-md5", "x-amz-checksum-xxhash64", "x-amz-checksum-xxhash3", "x-amz-checksum-xxhash128", "x-amz-mp-part-sizes", "x-amz-mp-part-checksums":
		return true
	}
	meta, ok := strings.CutPrefix(name, MetaHeader)
	return ok && meta != "" && !strings.ContainsFunc(meta, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r >= 'A' && r <= 'Z' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
