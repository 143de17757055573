package serve

import (
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall"

	"github.com/holdall/holdall/internal/base/sigv4"
)

const (
	maxParts = 10_000
	minPart  = 5 << 20

	// Headers of an upload that its object does not have.
	uploadAlgorithm = checksumHeader + "algorithm" // its name is in lower case
	uploadType      = checksumHeader + "type"
)

// sumsDoc has the checksums of an object or part in a document.
type sumsDoc struct {
	ChecksumCRC32, ChecksumCRC32C, ChecksumCRC64NVME, ChecksumSHA1, ChecksumSHA256, ChecksumSHA512 string `xml:",omitempty"`
	ChecksumMD5, ChecksumXXHASH64, ChecksumXXHASH3, ChecksumXXHASH128, ChecksumType                string `xml:",omitempty"`
}

// of returns the place for a checksum.
func (d *sumsDoc) of(a *algorithm) *string {
	return map[string]*string{"crc32": &d.ChecksumCRC32, "crc32c": &d.ChecksumCRC32C, "crc64nvme": &d.ChecksumCRC64NVME, "sha1": &d.ChecksumSHA1, "sha256": &d.ChecksumSHA256,
		"sha512": &d.ChecksumSHA512, "md5": &d.ChecksumMD5, "xxhash64": &d.ChecksumXXHASH64, "xxhash3": &d.ChecksumXXHASH3, "xxhash128": &d.ChecksumXXHASH128}[a.name]
}

func sumsOf(headers map[string]string) (d sumsDoc) {
	for _, a := range algorithms {
		if value := headers[checksumHeader+a.name]; value != "" {
			*d.of(a), d.ChecksumType = value, checksumType(value)
		}
	}
	return d
}

func (c *call) beginUpload() error {
	headers, err := storedHeaders(c.r.Header)
	if err != nil {
		return err
	}
	a, err := algorithmAsked(c.r.Header)
	if err != nil {
		return err
	}
	kind := c.r.Header.Get("X-Amz-Checksum-Type")
	switch {
	case a == nil && kind != "":
		return fault("InvalidRequest", "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")
	case a != nil && kind == "":
		if kind = "COMPOSITE"; a.name == "crc64nvme" {
			kind = "FULL_OBJECT"
		}
	case a != nil && (kind != "COMPOSITE" && kind != "FULL_OBJECT" || kind == "FULL_OBJECT" && a.poly == 0 || kind == "COMPOSITE" && a.name == "crc64nvme"):
		return fault("InvalidRequest", "The "+kind+" checksum type cannot be used with the "+a.name+" checksum algorithm.")
	}
	if a != nil {
		headers[uploadAlgorithm], headers[uploadType] = a.name, kind
		c.w.Header().Set(uploadAlgorithm, strings.ToUpper(a.name))
		c.w.Header().Set(uploadType, kind)
	}
	id, err := c.in.Begin(c.r.Context(), c.key, headers)
	if err != nil {
		return err
	}
	return c.answer("InitiateMultipartUploadResult", struct{ Bucket, Key, UploadId string }{c.bucket, c.key, id})
}

func (c *call) putPart() error {
	n, err := strconv.Atoi(c.q.Get("partNumber"))
	if err != nil || n < 1 || n > maxParts {
		return fault("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
	}
	id := c.q.Get("uploadId")
	if c.r.Header.Get("X-Amz-Copy-Source") != "" {
		return c.copyPart(id, n)
	}
	p, err := c.body()
	if err != nil {
		return err
	}
	headers := map[string]string{}
	if _, err := c.in.Part(c.r.Context(), c.key, id, n, p.upload(Condition{}, headers)); err != nil {
		return err
	}
	c.wrote(p.etag, headers)
	return c.done(http.StatusOK)
}

// A partDoc is a part in a document.
type partDoc struct {
	PartNumber         int
	LastModified, ETag string `xml:",omitempty"`
	Size               int64
	sumsDoc
}

// partDocs returns up to most parts after one, and the number of the last.
func partDocs(all []Part, after, most int) (docs []partDoc, last int, more bool) {
	for _, p := range all {
		if p.Number <= after {
			continue
		}
		if len(docs) == most {
			return docs, last, true
		}
		x := partDoc{PartNumber: p.Number, ETag: p.ETag, Size: p.Size, sumsDoc: sumsOf(p.Headers)}
		if x.ChecksumType = ""; !p.Time.IsZero() {
			x.LastModified = s3Time(p.Time)
		}
		docs, last = append(docs, x), p.Number
	}
	return docs, last, false
}

func (c *call) listParts() error {
	most, err := number("max-parts", c.q.Get("max-parts"), 1000, 1000)
	if err != nil {
		return err
	}
	after, err := number("part-number-marker", c.q.Get("part-number-marker"), 0, math.MaxInt32)
	if err != nil {
		return err
	}
	headers, all, err := c.in.Parts(c.r.Context(), c.key, c.q.Get("uploadId"))
	if err != nil {
		return err
	}
	doc := struct {
		Bucket, Key, UploadId                  string
		PartNumberMarker, NextPartNumberMarker int
		MaxParts                               int
		IsTruncated                            bool
		Initiator, Owner                       s3Owner
		StorageClass                           string
		ChecksumAlgorithm, ChecksumType        string `xml:",omitempty"`
		Part                                   []partDoc
	}{Bucket: c.bucket, Key: c.key, UploadId: c.q.Get("uploadId"), PartNumberMarker: after, MaxParts: most, Initiator: holdallOwner, Owner: holdallOwner, StorageClass: "STANDARD",
		ChecksumAlgorithm: strings.ToUpper(headers[uploadAlgorithm]), ChecksumType: headers[uploadType]}
	doc.Part, doc.NextPartNumberMarker, doc.IsTruncated = partDocs(all, after, most)
	return c.answer("ListPartsResult", doc)
}

// finish makes an object of the parts that the client names.
func (c *call) finish() error {
	type named struct {
		PartNumber int
		ETag       string
		sumsDoc
	}
	var asked struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    few[named]
	}
	id := c.q.Get("uploadId")
	if empty, err := c.doc(&asked); err != nil {
		return err
	} else if empty || len(asked.Part) == 0 {
		return fault("MalformedXML", "")
	}
	if !slices.IsSortedFunc(asked.Part, func(a, b named) int { return cmp.Compare(a.PartNumber, b.PartNumber+1) }) {
		return fault("InvalidPartOrder", "")
	}
	headers, there, err := c.in.Parts(c.r.Context(), c.key, id)
	gone := errors.Is(err, ErrNoUpload)
	if err != nil && !gone {
		return err
	}
	var parts []Part
	var size int64
	whole := md5.New()
	for i, x := range asked.Part {
		tag := quoted(x.ETag)
		sum, err := hex.DecodeString(strings.Trim(tag, `"`))
		if err != nil {
			return fault("InvalidPart", "")
		}
		if whole.Write(sum); gone {
			continue
		}
		at, ok := slices.BinarySearchFunc(there, x.PartNumber, func(p Part, n int) int { return cmp.Compare(p.Number, n) })
		if !ok || there[at].ETag != tag {
			return fault("InvalidPart", "")
		}
		p := there[at]
		for _, a := range algorithms {
			if said := *x.of(a); said != "" && said != p.Headers[checksumHeader+a.name] {
				return fault("InvalidPart", "")
			}
		}
		if i < len(asked.Part)-1 && p.Size < minPart {
			return fault("EntityTooSmall", "")
		}
		size += p.Size
		parts = append(parts, p)
	}
	etag := fmt.Sprintf(`"%x-%d"`, whole.Sum(nil), len(asked.Part))
	if gone {
		// The client may repeat a request whose response was lost.
		return c.finished(etag)
	}
	if said := c.r.Header.Get("X-Amz-Mp-Object-Size"); said != "" && said != strconv.FormatInt(size, 10) {
		return fault("InvalidRequest", "The provided 'x-amz-mp-object-size' header value does not match what was computed.")
	}
	made := map[string]string{}
	maps.Copy(made, headers)
	delete(made, uploadAlgorithm)
	delete(made, uploadType)
	keep := func(name, text string) {
		if len(text) < 8<<10 { // many parts would make a long row
			made[name] = text
		}
	}
	keep(sizesHeader, sizesText(parts))
	if a := algorithmOf(headers[uploadAlgorithm]); a != nil {
		value, err := a.join(parts, headers[uploadType] == "FULL_OBJECT")
		if err != nil {
			return err
		}
		if said := c.r.Header.Get(checksumHeader + a.name); said != "" && said != value && !strings.HasPrefix(value, said+"-") {
			return fault("BadDigest", "The "+strings.ToUpper(a.name)+" you specified did not match the calculated checksum.")
		}
		made[checksumHeader+a.name] = value
		var sums []string
		for _, p := range parts {
			sums = append(sums, p.Headers[checksumHeader+a.name])
		}
		keep(partSumsHeader, strings.Join(sums, ","))
	}
	u := &Upload{Body: http.NoBody, If: condition(c.r.Header), End: func() (string, map[string]string) { return etag, made }}
	if err := c.slowly(func() error {
		_, err := c.in.Finish(c.r.Context(), c.key, id, parts, u)
		return err
	}); err != nil {
		return err
	}
	return c.tellFinished(etag, made)
}

// finished answers for an upload that no longer exists: it was finished if its
// object is there.
func (c *call) finished(etag string) error {
	h, _, _ := c.s.site.open(c.r, c.bucket, "")
	if h == nil {
		return ErrNoUpload
	}
	defer h.a.Release()
	e, err := h.a.Lookup(c.r.Context(), c.key)
	if err != nil || keptTag(e) != etag {
		return ErrNoUpload
	}
	return c.tellFinished(etag, e.Attr)
}

func (c *call) tellFinished(etag string, headers map[string]string) error {
	return c.answer("CompleteMultipartUploadResult", struct {
		objectDoc
		sumsDoc
	}{c.objectDoc(etag), sumsOf(headers)})
}

// An objectDoc says in a document which object was made.
type objectDoc struct{ Location, Bucket, Key, ETag string }

func (c *call) objectDoc(etag string) objectDoc {
	return objectDoc{c.location(), c.bucket, c.key, etag}
}

// location returns the address of the object, as this client reaches it.
func (c *call) location() string {
	scheme := "http://"
	if c.r.TLS != nil {
		scheme = "https://"
	}
	return scheme + c.r.Host + "/" + sigv4.Path(c.bucket+"/"+c.key)
}

// join returns the checksum of an object from those of its parts: that of its
// content, or that of theirs.
func (a *algorithm) join(parts []Part, full bool) (string, error) {
	h, crc := a.make(), uint64(0)
	for _, p := range parts {
		sum, err := a.decode(p.Headers[checksumHeader+a.name])
		if err != nil {
			return "", fault("InvalidRequest", fmt.Sprintf("The upload was created using a %s checksum. The complete request must include the checksum for each part. It was missing for part %d in the request.", a.name, p.Number))
		}
		if h.Write(sum); full {
			var wide [8]byte
			copy(wide[8-len(sum):], sum)
			crc = a.shifted(crc, p.Size) ^ binary.BigEndian.Uint64(wide[:])
		}
	}
	if !full {
		return base64.StdEncoding.EncodeToString(h.Sum(nil)) + "-" + strconv.Itoa(len(parts)), nil
	}
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc)[8-a.size:]), nil
}

// shifted returns crc times x^(8n), modulo the polynomial: what the CRC of the
// bytes before n others contributes to that of all.
func (a *algorithm) shifted(crc uint64, n int64) uint64 {
	top := uint64(1) << (8*a.size - 1) // x^0: the bits are reversed
	for step := top >> 8; n > 0; n >>= 1 {
		if n&1 == 1 {
			crc = a.times(crc, step)
		}
		step = a.times(step, step)
	}
	return crc
}

func (a *algorithm) times(x, y uint64) (product uint64) {
	for bit := uint64(1) << (8*a.size - 1); bit > 0; bit >>= 1 {
		if x&bit != 0 {
			product ^= y
		}
		low := y & 1
		if y >>= 1; low == 1 {
			y ^= a.poly
		}
	}
	return product
}

func (c *call) abandon() error {
	if err := c.in.Abandon(c.r.Context(), c.key, c.q.Get("uploadId")); err != nil {
		return err
	}
	return c.done(http.StatusNoContent)
}

func (c *call) listUploads() error {
	k, err := parseKeysQuery(c.q)
	if err != nil {
		return err
	}
	all, err := c.in.Uploads(c.r.Context())
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b Begun) int { return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID)) })
	p, err := findKeys(c.r.Context(), k, func(prefix, from string) iter.Seq2[Version, error] {
		return func(yield func(Version, error) bool) {
			for _, u := range all {
				if strings.HasPrefix(u.Key, prefix) && u.Key >= from && (u.Key != k.after || u.ID > k.afterID) && !yield(Version{Key: u.Key, ID: u.ID, Entry: holdall.Entry{ModTime: u.Time}}, nil) {
					return
				}
			}
		}
	})
	if err != nil {
		return err
	}
	type upload struct {
		Key                     keyText
		UploadId                string
		Initiator, Owner        s3Owner
		StorageClass, Initiated string
	}
	doc := struct {
		Bucket             string
		KeyMarker          keyText
		UploadIdMarker     string
		NextKeyMarker      keyText `xml:",omitempty"`
		NextUploadIdMarker string  `xml:",omitempty"`
		Prefix             keyText `xml:",omitempty"`
		MaxUploads         int
		keysPage
		Upload         []upload
		CommonPrefixes []s3Prefix
	}{Bucket: c.bucket, KeyMarker: k.text(k.marker), UploadIdMarker: k.afterID, Prefix: k.text(k.prefix), MaxUploads: k.most, keysPage: p, CommonPrefixes: p.common}
	doc.NextKeyMarker, doc.NextUploadIdMarker = p.next()
	for _, u := range p.keys {
		doc.Upload = append(doc.Upload, upload{k.text(u.Key), u.ID, holdallOwner, holdallOwner, "STANDARD", s3Time(u.Entry.ModTime)})
	}
	return c.answer("ListMultipartUploadsResult", doc)
}
