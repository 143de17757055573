package serve

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/minio/crc64nvme"
	"github.com/zeebo/xxh3"

	"github.com/holdall/holdall/internal/base/sigv4"
)

// An s3Fault is an error that clients of S3 know by its code.
type s3Fault struct{ code, text string }

func (f *s3Fault) Error() string { return f.code + ": " + f.text }

// fault returns an s3Fault. An empty text means Amazon's usual one.
func fault(code, text string) error { return &s3Fault{code, text} }

// maxPut is the most that one request may bring.
const maxPut = 5 << 30

var errAlgorithm = fault("InvalidRequest", "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256, SHA512, MD5, XXHASH64, XXHASH3, XXHASH128]")

// An algorithm is one of x-amz-checksum-NAME.
type algorithm struct {
	name string
	key  string // of the header, as http.Header has it
	size int
	make func() hash.Hash
	poly uint64 // of a CRC
}

var algorithms = []*algorithm{
	{"crc32", "X-Amz-Checksum-Crc32", 4, func() hash.Hash { return crc32.NewIEEE() }, crc32.IEEE},
	{"crc32c", "X-Amz-Checksum-Crc32c", 4, func() hash.Hash { return crc32.New(castagnoli) }, crc32.Castagnoli},
	{"crc64nvme", "X-Amz-Checksum-Crc64nvme", 8, func() hash.Hash { return crc64nvme.New() }, crc64nvme.NVME},
	{"sha1", "X-Amz-Checksum-Sha1", sha1.Size, sha1.New, 0},
	{"sha256", "X-Amz-Checksum-Sha256", sha256.Size, sha256.New, 0},
	{"sha512", "X-Amz-Checksum-Sha512", sha512.Size, sha512.New, 0},
	{"md5", "X-Amz-Checksum-Md5", md5.Size, md5.New, 0},
	{"xxhash64", "X-Amz-Checksum-Xxhash64", 8, func() hash.Hash { return xxhash.New() }, 0},
	{"xxhash3", "X-Amz-Checksum-Xxhash3", 8, func() hash.Hash { return xxh3.New() }, 0},
	{"xxhash128", "X-Amz-Checksum-Xxhash128", 16, func() hash.Hash { return xxh3.New128() }, 0},
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksumHeader is the prefix of the names of headers with checksums.
const checksumHeader = "x-amz-checksum-"

// algorithmOf returns the algorithm with this name, or nil.
func algorithmOf(name string) *algorithm {
	for _, a := range algorithms {
		if a.name == name {
			return a
		}
	}
	return nil
}

// decode decodes the value of a header or trailer.
func (a *algorithm) decode(value string) ([]byte, error) {
	want, err := base64.StdEncoding.Strict().DecodeString(value)
	if err != nil || len(want) != a.size {
		return nil, fault("InvalidRequest", "Value for "+checksumHeader+a.name+" header is invalid.")
	}
	return want, nil
}

// A sum is what the client has said of a body.
type sum struct {
	hash.Hash
	want  []byte // nil if it comes in the trailer, or if the client has not said it
	fault error
}

// A payload is the content that a request brings. Its last Read fails if it is
// not what the client has said.
type payload struct {
	from   io.Reader
	size   int64
	n      int64
	md5    hash.Hash
	sums   []sum
	by     *algorithm // of the checksum that is stored; nil for none
	kept   hash.Hash
	chunks *chunked
	etag   string // at the end
	err    error
}

func newPayload(from io.Reader, size int64) *payload {
	p := &payload{from: from, size: size, md5: md5.New()}
	p.sums = append(p.sums, sum{Hash: p.md5})
	return p
}

// keep adds a checksum that is stored with the object.
func (p *payload) keep(a *algorithm, want []byte) {
	p.by, p.kept = a, a.make()
	p.sums = append(p.sums, sum{p.kept, want, fault("BadDigest", "The "+strings.ToUpper(a.name)+" you specified did not match the calculated checksum.")})
}

func (p *payload) Read(b []byte) (n int, err error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err = p.from.Read(b)
	p.n += int64(n)
	for _, s := range p.sums {
		s.Write(b[:n])
	}
	switch {
	case p.n > p.size:
		err = fault("IncompleteBody", "")
	case err == io.EOF:
		if err = p.check(); err == nil {
			err = io.EOF
		}
	default:
		err = bodyError(err)
	}
	p.err = err
	return n, err
}

// bodyError returns what an error of the body of a request means to clients.
func bodyError(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault("RequestTimeout", "")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault("IncompleteBody", "")
	}
	return err
}

// check compares all of the content with what the client has said.
func (p *payload) check() error {
	if p.n != p.size {
		return fault("IncompleteBody", "")
	}
	for _, s := range p.sums {
		if s.Hash == p.kept && p.chunks != nil && s.want == nil {
			var err error
			if s.want, err = p.by.decode(p.chunks.trailer[checksumHeader+p.by.name]); err != nil {
				return err
			}
		}
		if s.want != nil && !bytes.Equal(s.want, s.Sum(nil)) {
			return s.fault
		}
	}
	return nil
}

// upload returns an Upload of the content, for an object with headers. At its
// end, the ETag is known, and headers has the checksum.
func (p *payload) upload(c Condition, headers map[string]string) *Upload {
	return &Upload{Body: p, Size: p.size, If: c, End: func() (string, map[string]string) {
		if p.kept != nil {
			headers[checksumHeader+p.by.name] = base64.StdEncoding.EncodeToString(p.kept.Sum(nil))
		}
		p.etag = `"` + hex.EncodeToString(p.md5.Sum(nil)) + `"`
		return p.etag, headers
	}}
}

// body returns the content that the request brings.
func (c *call) body() (*payload, error) {
	head, size, sent := c.r.Header, c.r.ContentLength, c.sig.payload
	if sent == "" { // without a signature
		sent = head.Get("X-Amz-Content-Sha256")
	} else if hasBody(c.r) && !c.sig.presigned && head.Get("X-Amz-Content-Sha256") == "" {
		return nil, fault("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
	}
	isChunked := strings.HasPrefix(sent, "STREAMING-") || head.Get("X-Amz-Decoded-Content-Length") != "" && slices.Contains(codings(head), "aws-chunked")
	if isChunked {
		n, err := strconv.ParseInt(head.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || n < 0 {
			return nil, fault("MissingContentLength", "")
		}
		size = n
	}
	switch {
	case size < 0:
		return nil, fault("MissingContentLength", "")
	case size > maxPut:
		return nil, fault("EntityTooLarge", "")
	}
	p := newPayload(c.slow(), size)
	if isChunked {
		if err := p.unchunk(c, sent); err != nil {
			return nil, err
		}
	} else if sent != "" && sent != sigv4.Unsigned {
		want, err := hex.DecodeString(sent)
		if err != nil || len(want) != sha256.Size {
			return nil, fault("InvalidArgument", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.")
		}
		p.sums = append(p.sums, sum{sha256.New(), want, fault("XAmzContentSHA256Mismatch", "")})
	}
	if value := head.Get("Content-Md5"); value != "" || len(head["Content-Md5"]) > 0 {
		want, err := base64.StdEncoding.Strict().DecodeString(value)
		if err != nil || len(want) != md5.Size {
			return nil, fault("InvalidDigest", "")
		}
		p.sums[0].want, p.sums[0].fault = want, fault("BadDigest", "")
	}
	if c.r.Method == http.MethodPost && c.q.Has("uploadId") {
		return p, nil // the checksum is that of the object
	}
	a, want, err := checksumIn(head)
	if a != nil {
		p.keep(a, want)
	}
	return p, err
}

// checksumIn returns the algorithm of the checksum that comes with a request,
// or nil, and its value unless it comes in the trailer.
func checksumIn(head http.Header) (by *algorithm, want []byte, err error) {
	trailer := trailers(head)
	for name := range head { // what cannot be compared must not seem to be
		if kind, is := strings.CutPrefix(strings.ToLower(name), checksumHeader); is && algorithmOf(kind) == nil && !slices.Contains([]string{"algorithm", "mode", "type"}, kind) {
			return nil, nil, errAlgorithm
		}
	}
	for _, a := range algorithms {
		value, inTrailer := head.Get(a.key), slices.Contains(trailer, checksumHeader+a.name)
		if value == "" && !inTrailer {
			continue
		}
		if by != nil || value != "" && inTrailer {
			return nil, nil, fault("InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
		}
		if by = a; !inTrailer {
			if want, err = a.decode(value); err != nil {
				return nil, nil, err
			}
		}
	}
	switch said := strings.ToLower(head.Get("X-Amz-Sdk-Checksum-Algorithm")); {
	case said == "" || by != nil && said == by.name:
	case by != nil || algorithmOf(said) == nil:
		return nil, nil, fault("InvalidRequest", "Value for x-amz-sdk-checksum-algorithm header is invalid.")
	default:
		return nil, nil, fault("InvalidRequest", "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.")
	}
	return by, want, nil
}

// codings returns the Content-Encoding of a request.
func codings(head http.Header) []string { return items(head["Content-Encoding"]) }

// trailers returns the names of the headers that the trailer of a body has.
func trailers(head http.Header) []string {
	return items([]string{strings.ToLower(strings.Join(head["X-Amz-Trailer"], ","))})
}

// items returns the items of a header.
func items(values []string) (all []string) {
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if item = strings.TrimSpace(item); item != "" {
			all = append(all, item)
		}
	}
	return all
}

// A slowBody is the body of a request. The client must send each piece within
// the time limit. The time in which nobody reads it does not count.
type slowBody struct {
	io.Reader
	ctl   *http.ResponseController
	stall time.Duration
	left  time.Duration
	got   int
}

// slow returns the body of the request.
func (c *call) slow() io.Reader {
	return &slowBody{Reader: c.r.Body, ctl: http.NewResponseController(c.w), stall: c.s.site.o.Stall}
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left == 0 || b.got >= piece {
		b.left, b.got = b.stall, 0
	}
	start := time.Now()
	_ = b.ctl.SetReadDeadline(start.Add(b.left)) // some connections have no deadline
	n, err := b.Reader.Read(p)
	b.left, b.got = max(b.left-time.Since(start), 1), b.got+n
	if err == io.EOF {
		_ = b.ctl.SetReadDeadline(time.Time{}) // it would also end the request
	}
	return n, err
}

// A chunked decodes aws-chunked: chunks that may be signed, and perhaps a
// trailer.
type chunked struct {
	r       *bufio.Reader
	left    int64    // of the chunk
	named   []string // the headers that the trailer has
	trailer map[string]string
	signed  bool        // the client signs
	by      *chunkSigns // nil if signatures are not checked
	got     string      // the signature of the chunk
	err     error
}

// chunkSigns makes the signatures of chunks, one from the other.
type chunkSigns struct {
	key       []byte
	at, scope string
	last      string
	sum       hash.Hash
}

func (s *chunkSigns) sign(kind, more, sum string) string {
	s.last = hex.EncodeToString(sigv4.MAC(s.key, strings.Join([]string{sigv4.Algorithm + kind, s.at, s.scope, s.last, more + sum}, "\n")))
	return s.last
}

var (
	errChunk   = fault("InvalidRequest", "The chunks of the body are not well-formed.")
	errTrailer = fault("MalformedTrailerError", "")
)

// unchunk decodes the content, which is sent in one of the ways that begin
// with STREAMING.
func (p *payload) unchunk(c *call, sent string) error {
	x := &chunked{r: bufio.NewReaderSize(p.from, 1<<10), named: trailers(c.r.Header), trailer: map[string]string{}}
	switch sent {
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER":
		x.signed = true
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER", sigv4.Unsigned, "":
	default:
		return fault("NotImplemented", "")
	}
	if x.signed && c.sig.id != "" {
		x.by = &chunkSigns{key: c.s.o.Key.of(c.sig), at: c.sig.at.Format(sigv4.Time), scope: c.sig.scope, last: hex.EncodeToString(c.sig.sum), sum: sha256.New()}
	}
	p.from, p.chunks = x, x
	return nil
}

func (x *chunked) Read(p []byte) (n int, err error) {
	if len(p) == 0 || x.err != nil {
		return 0, x.err
	}
	if x.left == 0 {
		x.err = x.begin()
	}
	if x.err == nil {
		n, x.err = x.r.Read(p[:min(int64(len(p)), x.left)])
		x.left -= int64(n)
		if x.by != nil {
			x.by.sum.Write(p[:n])
		}
		if x.err == io.EOF {
			x.err = io.ErrUnexpectedEOF
		} else if x.err == nil && x.left == 0 {
			if line, err := x.line(); err == io.EOF {
				x.err = io.ErrUnexpectedEOF
			} else if err != nil || line != "" {
				x.err = cmp.Or(err, errChunk)
			} else {
				x.err = x.compare()
			}
		}
	}
	return n, x.err
}

// line returns the next line, without its end, or io.EOF.
func (x *chunked) line() (string, error) {
	b, err := x.r.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return "", errChunk
	case err == io.EOF && len(b) > 0:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return strings.TrimSuffix(string(b[:len(b)-1]), "\r"), nil
}

// begin reads the head of a chunk. After the last chunk and the trailer, it
// returns io.EOF.
func (x *chunked) begin() error {
	line, err := x.line()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	size, ext, _ := strings.Cut(line, ";")
	n, err := strconv.ParseUint(size, 16, 40)
	if err != nil || n > maxPut {
		return errChunk
	}
	signature, ok := strings.CutPrefix(ext, "chunk-signature=")
	if x.signed && !ok {
		return errChunk
	}
	x.got, x.left = signature, int64(n)
	if n > 0 {
		return nil
	}
	if err := x.compare(); err != nil {
		return err
	}
	return x.end()
}

// compare compares the signature of a chunk.
func (x *chunked) compare() error {
	if x.by == nil {
		return nil
	}
	want := x.by.sign("-PAYLOAD", sigv4.Empty+"\n", hex.EncodeToString(x.by.sum.Sum(nil)))
	if x.by.sum.Reset(); !hmac.Equal([]byte(want), []byte(x.got)) {
		return fault("SignatureDoesNotMatch", "")
	}
	return nil
}

// end reads the trailer, to the end of the body. Some clients end each line
// with an empty one.
func (x *chunked) end() error {
	var signed strings.Builder
	signature, ends := "", false
	for {
		line, err := x.line()
		switch {
		case err == io.EOF && !ends:
			return io.ErrUnexpectedEOF
		case err == io.EOF && len(x.trailer) != len(x.named):
			return errTrailer
		case err == io.EOF && x.by != nil && len(x.named) > 0:
			sum := sha256.Sum256([]byte(signed.String()))
			if want := x.by.sign("-TRAILER", "", hex.EncodeToString(sum[:])); !hmac.Equal([]byte(want), []byte(signature)) {
				return fault("SignatureDoesNotMatch", "")
			}
			return io.EOF
		case err != nil:
			return err
		}
		if ends = line == ""; ends {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		_, again := x.trailer[name]
		switch {
		case name == "x-amz-trailer-signature" && x.signed && signature == "":
			signature = value
		case !ok || again || signature != "" || !slices.Contains(x.named, name):
			return errTrailer
		default:
			x.trailer[name] = value
			signed.WriteString(name + ":" + value + "\n")
		}
	}
}
