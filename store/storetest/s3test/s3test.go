// Package s3test is an in-memory server with the interface of S3 for tests. It checks signatures
// strictly, and fails where a test says so.
package s3test

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	minPart = 5 << 20

	// Credentials that a Server accepts by default.
	AccessKey = "AKIATESTTESTTEST"
	Secret    = "secret/of+the=test"
)

// A Server stores buckets in memory. Its fields must be set before the first request.
type Server struct {
	// Token, if set, is the session token that requests must have.
	Token string

	// Google makes the server use Google's dialect. Bearer, if set, is a token that it accepts.
	Google bool
	Bearer string

	// Region is the region of all buckets; empty means "us-east-1".
	Region string

	// Public allows requests without a signature to read and list.
	Public bool

	// Hook may answer a request itself; if it returns false, the server answers it. The server
	// then sees any changes that Hook made to the bucket.
	Hook func(w http.ResponseWriter, r *http.Request) bool

	// Careless makes the server ignore the required ETag when it copies parts of an object.
	Careless bool

	// Replacing makes the server ignore the condition that an object must not exist.
	Replacing bool

	// MinPart is the smallest size of a part except the last; 0 means 5 MiB.
	MinPart int

	// Clock returns the server's time; nil means the system's clock.
	Clock func() time.Time

	// Sums are the algorithms of the checksums of objects, such as "crc32c" and "sha256".
	// Checksums of objects in parts are made from those of their parts.
	Sums []string

	// Encrypts makes the server encrypt new objects with its own keys, so that ETags are not
	// checksums.
	Encrypts bool

	// Ownership is that of the objects of all buckets, which have no lists of access if it is
	// BucketOwnerEnforced, the default. If it is an error code, the server answers that instead.
	// Grants are what the lists have besides the owner, by key.
	Ownership string
	Grants    map[string]string

	// Many says how the server deletes many objects by one request: "" if it compares their versions,
	// "careless" if it does not, or an error code.
	Many string

	// Versions makes the server keep the objects that are deleted, unless a request names a version.
	Versions bool

	// Page is the largest number of keys in a listing; 0 means 1000.
	Page int

	mu      sync.Mutex
	buckets map[string]map[string]*object
	uploads map[string]*upload
	reqs    []string
	last    int
	written int // objects
	older   []string
}

type object struct {
	content   []byte
	etag      string
	md5       []byte // of content that was not uploaded in parts
	mod       time.Time
	sums      map[string]string // by algorithm, as in headers
	part      int               // size of the parts; 0 if it was not uploaded in parts
	encrypted bool
	headers   http.Header // headers stored with the object

	generation, described int // Google's numbers of the content and of the headers
}

type upload struct {
	bucket, key string
	parts       map[int]*object
	begun       time.Time
}

// New returns a server with these buckets, all empty.
func New(buckets ...string) *Server {
	s := &Server{buckets: map[string]map[string]*object{}, uploads: map[string]*upload{}}
	for _, b := range buckets {
		s.buckets[b] = map[string]*object{}
	}
	return s
}

// Put stores content under a key, without a request.
func (s *Server) Put(bucket, key string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key] = s.newObject(bytes.Clone(content), 0)
}

// Describe sets the headers stored with an object, such as "Content-Type" or "X-Amz-Meta-…",
// without a request.
func (s *Server) Describe(bucket, key string, headers map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := http.Header{}
	for name, value := range headers {
		h.Set(name, value)
	}
	o := s.buckets[bucket][key]
	o.headers, o.described = h, o.described+1
}

// Touch sets the time when an object was written, without a request.
func (s *Server) Touch(bucket, key string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key].mod = at
}

// Remove removes a key, without a request.
func (s *Server) Remove(bucket, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buckets[bucket], key)
}

// Get returns the content of a key, or nil if there is none.
func (s *Server) Get(bucket, key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.buckets[bucket][key]; o != nil {
		return append([]byte{}, o.content...)
	}
	return nil
}

// Keys returns the sorted keys of a bucket.
func (s *Server) Keys(bucket string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.buckets[bucket]))
}

// Uploads returns the number of uploads that were neither completed nor aborted.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Took returns the requests since the last call: method, path and query of each, and its range if
// it has one.
func (s *Server) Took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	reqs := s.reqs
	s.reqs = nil
	return reqs
}

// PutParts is like Put for an object that was uploaded in parts of the given size.
func (s *Server) PutParts(bucket, key string, content []byte, part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key] = s.newObject(bytes.Clone(content), part)
}

// Rot changes a byte of an object, but not its ETag, time or checksums.
func (s *Server) Rot(bucket, key string, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.buckets[bucket][key]
	o.content = bytes.Clone(o.content) // parts that were copied from it share it
	o.content[at] ^= 0x10
}

// newObject returns an object with that content, in parts of the given size if it is not 0.
func (s *Server) newObject(content []byte, part int) *object {
	o := s.untagged(content, part)
	value, end := sumInParts("md5", content, part)
	o.md5, o.etag = value, fmt.Sprintf(`"%x%s"`, value, end)
	switch {
	case s.Encrypts:
		s.last++
		o.etag = fmt.Sprintf(`"%032x%s"`, s.last, end)
	case s.Google && part > 0:
		o.etag = s.joinedTag([16]byte{}, 0)
	}
	return o
}

// untagged is newObject without an ETag, so that large content is hashed no more than necessary.
func (s *Server) untagged(content []byte, part int) *object {
	o := &object{content: content, mod: time.Now(), sums: map[string]string{}, part: part, encrypted: s.Encrypts, generation: s.written}
	s.written++
	for _, algo := range s.Sums {
		value, end := sumInParts(algo, content, part)
		if s.Google { // Google has no MD5 of uploads in parts, but the other checksum of the whole object
			if value, end = sumOf(algo, content), ""; algo == "md5" && part > 0 {
				continue
			}
		}
		o.sums[algo] = base64.StdEncoding.EncodeToString(value) + end
	}
	return o
}

// sumInParts returns the checksum of content, or of the checksums of its parts, and how it ends
// then.
func sumInParts(algo string, content []byte, part int) (value []byte, end string) {
	if part == 0 {
		return sumOf(algo, content), ""
	}
	var sums []byte
	n := 0
	for b := range slices.Chunk(content, part) {
		sums = append(sums, sumOf(algo, b)...)
		n++
	}
	return sumOf(algo, sums), fmt.Sprintf("-%d", n)
}

// keptOf returns the headers of a request that are stored with the object that it creates.
func keptOf(h http.Header) http.Header {
	kept := http.Header{}
	for name, values := range h {
		name = strings.Replace(name, "X-Goog-Meta-", "X-Amz-Meta-", 1)
		if strings.HasPrefix(name, "X-Amz-Meta-") || slices.Contains([]string{"Content-Type", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Expires"}, name) {
			kept[name] = values
		}
	}
	return kept
}

func sumOf(algo string, b []byte) []byte {
	h := md5.New()
	switch algo {
	case "sha256":
		h = sha256.New()
	case "sha1":
		h = sha1.New()
	case "crc32":
		h = crc32.NewIEEE()
	case "crc32c":
		h = crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc64nvme":
		h = crc64.New(crc64.MakeTable(0x9a6c9329ac4bc9b5))
	}
	h.Write(b)
	return h.Sum(nil)
}

// Refuse writes an error response as S3 does.
func Refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>the server's own words about %s</Message></Error>",
			code, AccessKey)
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line := r.Method + " " + r.URL.RequestURI()
	if rg := r.Header.Get("Range"); rg != "" {
		line += " " + rg
	}
	s.mu.Lock()
	s.reqs = append(s.reqs, line)
	s.mu.Unlock()
	now := time.Now()
	if s.Clock != nil {
		now = s.Clock()
	}
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	if s.Hook != nil && s.Hook(w, r) {
		return
	}
	if code := s.serve(w, r, now); code != "" {
		Refuse(w, r, cmp.Or(statuses[code], http.StatusForbidden), code)
	}
}

// statuses has the status of each error code, unless it is 403.
var statuses = map[string]int{
	"AuthenticationRequired": 401, "PreconditionFailed": 412, "InvalidRange": 416, "NotImplemented": 501, "MethodNotAllowed": 405,
	"NoSuchBucket": 404, "OwnershipControlsNotFoundError": 404, "NoSuchKey": 404, "NoSuchUpload": 404, "AuthorizationHeaderMalformed": 400, "BadDigest": 400, "IncompleteBody": 400,
	"InvalidArgument": 400, "MalformedXML": 400, "InvalidPart": 400, "InvalidPartOrder": 400, "EntityTooSmall": 400,
}

// serve answers a request, or returns an error code.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, now time.Time) (code string) {
	var in bytes.Buffer
	in.Grow(int(min(max(r.ContentLength, 0), 64<<20)) + bytes.MinRead)
	if _, err := in.ReadFrom(r.Body); err != nil {
		return "IncompleteBody"
	}
	body := in.Bytes()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if b, _, virtual := strings.Cut(r.Host, ".s3."); virtual {
		bucket, key = b, strings.TrimPrefix(r.URL.Path, "/")
	}
	region := cmp.Or(s.Region, "us-east-1")
	if s.Google {
		region = "auto"
	}
	if code = s.unsigned(r, body, region, now); code == "AuthorizationHeaderMalformed" {
		w.Header().Set("X-Amz-Bucket-Region", region)
	}
	if code = cmp.Or(code, s.misspoken(r)); code != "" {
		return code
	}
	if want := r.Header.Get("Content-Md5"); want != "" {
		if sum := md5.Sum(body); want != base64.StdEncoding.EncodeToString(sum[:]) {
			return "BadDigest"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	objs, ok := s.buckets[bucket]
	if !ok {
		return "NoSuchBucket"
	}
	q := r.URL.Query()
	switch {
	case key == "" && r.Method == http.MethodHead:
	case key == "" && r.Method == http.MethodGet && q.Get("list-type") == "2":
		return s.list(w, objs, q)
	case key != "" && r.Method == http.MethodGet && q.Has("tagging"):
		return s.tags(w, objs[key])
	case key == "" && r.Method == http.MethodGet && q.Has("uploads"):
		return s.listUploads(w, bucket, q)
	case key == "" && q.Has("ownershipControls"):
		is := cmp.Or(s.Ownership, "BucketOwnerEnforced")
		if statuses[is] != 0 || is == "AccessDenied" {
			return is
		}
		answer(w, "OwnershipControls", "<Rule><ObjectOwnership>"+is+"</ObjectOwnership></Rule>")
	case key == "" && r.Method == http.MethodPost && q.Has("delete") && !s.Google:
		return s.removeMany(w, bucket, body)
	case key == "":
		return "NotImplemented"
	case r.Method == http.MethodGet && q.Has("acl"):
		switch grant := s.Grants[key]; {
		case objs[key] == nil:
			return "NoSuchKey"
		case statuses[grant] != 0 || grant == "AccessDenied":
			return grant
		default:
			answer(w, "AccessControlPolicy", "<Owner><ID>me</ID></Owner><AccessControlList><Grant><Grantee><ID>me</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant>"+grant+"</AccessControlList>")
		}
	case !q.Has("uploadId") && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return s.get(w, r, objs[key])
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.last++
		id := fmt.Sprintf("upload %d+/", s.last)
		s.uploads[id] = &upload{bucket, key, map[int]*object{}, now}
		answer(w, "InitiateMultipartUploadResult", "<UploadId>"+id+"</UploadId>")
	case q.Has("uploadId"):
		return s.part(w, r, q, bucket, key, body)
	case r.Method == http.MethodPut:
		if s.notOnce(r, objs[key] != nil) {
			return "PreconditionFailed"
		}
		objs[key] = s.newObject(body, 0)
		objs[key].headers = keptOf(r.Header)
		w.Header().Set("ETag", objs[key].etag)
	case r.Method == http.MethodDelete:
		if s.another(r, objs[key]) {
			return "PreconditionFailed"
		}
		s.remove(bucket, key, q.Get("versionId"))
		w.WriteHeader(http.StatusNoContent)
	default:
		return "MethodNotAllowed"
	}
	return ""
}

// answer writes a document. It ignores errors of writing, which the client notices.
func answer(w http.ResponseWriter, name, inner string) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><%s xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</%s>`, name, inner, name)
}

// tags answers what is described as X-Amz-Tagging. Objects with nothing but a number of tags refuse that.
func (s *Server) tags(w http.ResponseWriter, o *object) (code string) {
	if o == nil {
		return "NoSuchKey"
	}
	all, err := url.ParseQuery(o.headers.Get("X-Amz-Tagging"))
	if err != nil || len(all) == 0 && o.headers.Get("X-Amz-Tagging-Count") != "" {
		return "AccessDenied"
	}
	var inner bytes.Buffer
	for key, values := range all {
		inner.WriteString("<Tag><Key>")
		_ = xml.EscapeText(&inner, []byte(key))
		inner.WriteString("</Key><Value>")
		_ = xml.EscapeText(&inner, []byte(values[0]))
		inner.WriteString("</Value></Tag>")
	}
	answer(w, "Tagging", "<TagSet>"+inner.String()+"</TagSet>")
	return ""
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, o *object) (code string) {
	if o == nil {
		return "NoSuchKey"
	}
	if m := r.Header.Get("If-Match"); m != "" && m != o.etag {
		return "PreconditionFailed"
	}
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Content-Type", "binary/octet-stream")
	for name, values := range o.headers {
		if name == "X-Amz-Tagging" { // responses have only their number
			name, values = "X-Amz-Tagging-Count", []string{strconv.Itoa(strings.Count(values[0], "&") + 1)}
		}
		w.Header()[http.CanonicalHeaderKey(strings.Replace(name, "X-Amz-Meta-", s.dialect().headers+"Meta-", 1))] = values
	}
	if s.Google { // Google sends them for all objects, in the header of the response
		o.numbers(w.Header(), "X-Goog-")
		w.Header().Set("X-Goog-Stored-Content-Encoding", cmp.Or(w.Header().Get("Content-Encoding"), "identity"))
		w.Header().Set("Expires", w.Header().Get("Date"))
	}
	if r.Header.Get("Range") != "" && len(o.content) == 0 {
		return "InvalidRange"
	}
	content := o.content
	if o.part > 0 && r.URL.Query().Get("partNumber") == "1" {
		content = content[:min(o.part, len(content))]
	}
	if o.encrypted {
		w.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
	}
	var hashes []string
	for algo, value := range o.sums {
		if s.Google {
			hashes = append(hashes, algo+"="+value)
		} else if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
			w.Header().Set("X-Amz-Checksum-"+algo, value)
		}
	}
	if len(hashes) > 0 {
		w.Header().Set("X-Goog-Hash", strings.Join(hashes, ","))
	}
	if w.Header().Get("Content-Encoding") != "" && r.Header.Get("Range") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(len(content))) // net/http omits it
	}
	http.ServeContent(w, r, "", o.mod, bytes.NewReader(content))
	return ""
}

func (s *Server) part(w http.ResponseWriter, r *http.Request, q url.Values, bucket, key string, body []byte) (code string) {
	id := q.Get("uploadId")
	up := s.uploads[id]
	if up == nil || up.bucket != bucket || up.key != key {
		return "NoSuchUpload"
	}
	switch r.Method {
	case http.MethodPut:
		n, err := strconv.Atoi(q.Get("partNumber"))
		if err != nil || n < 1 || n > 10_000 {
			return "InvalidArgument"
		}
		if from := r.Header.Get("X-Amz-Copy-Source"); from != "" {
			return s.copy(w, r, up, n, from)
		}
		up.parts[n] = s.newObject(body, 0)
		w.Header().Set("ETag", up.parts[n].etag)
	case http.MethodGet:
		marker, _ := strconv.Atoi(q.Get("part-number-marker")) // none is 0
		fmt.Fprint(w, "<ListPartsResult>")
		listed := 0
		for _, n := range slices.Sorted(maps.Keys(up.parts)) {
			if n <= marker {
				continue
			}
			if listed == cmp.Or(s.Page, 1000) {
				fmt.Fprint(w, "<IsTruncated>true</IsTruncated>")
				break
			}
			listed++
			fmt.Fprintf(w, "<Part><PartNumber>%d</PartNumber><Size>%d</Size><ETag>%s</ETag></Part>", n, len(up.parts[n].content),
				strings.ReplaceAll(up.parts[n].etag, `"`, "&quot;"))
		}
		fmt.Fprint(w, "</ListPartsResult>")
	case http.MethodDelete:
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPost:
		var list struct {
			Part []struct {
				PartNumber int
				ETag       string
			}
		}
		if err := xml.Unmarshal(body, &list); err != nil || len(list.Part) == 0 {
			return "MalformedXML"
		}
		if s.notOnceInParts(r, s.buckets[bucket][key] != nil) {
			return "PreconditionFailed"
		}
		size := 0
		for _, o := range up.parts {
			size += len(o.content)
		}
		content, sums := make([]byte, 0, size), []byte(nil)
		for i, p := range list.Part {
			o := up.parts[p.PartNumber]
			switch {
			case o == nil || strings.Trim(p.ETag, `"`) != strings.Trim(o.etag, `"`):
				return "InvalidPart"
			case i > 0 && p.PartNumber <= list.Part[i-1].PartNumber:
				return "InvalidPartOrder"
			case i < len(list.Part)-1 && len(o.content) < cmp.Or(s.MinPart, minPart):
				return "EntityTooSmall"
			}
			content = append(content, o.content...)
			sums = append(sums, o.md5...)
		}
		o := s.untagged(content, 0)
		o.etag = s.joinedTag(md5.Sum(sums), len(list.Part))
		s.buckets[bucket][key] = o
		delete(s.uploads, id)
		answer(w, "CompleteMultipartUploadResult", "<Bucket>"+bucket+"</Bucket><ETag>"+strings.ReplaceAll(o.etag, `"`, "&quot;")+"</ETag>")
	default:
		return "MethodNotAllowed"
	}
	return ""
}

// copy makes a range of an object a part.
func (s *Server) copy(w http.ResponseWriter, r *http.Request, up *upload, n int, from string) (code string) {
	from, err := url.PathUnescape(strings.TrimPrefix(from, "/"))
	bucket, key, _ := strings.Cut(from, "/")
	o := s.buckets[bucket][key]
	var first, last int
	_, scan := fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &first, &last)
	switch {
	case err != nil || o == nil:
		return "NoSuchKey"
	case r.Header.Get("X-Amz-Copy-Source-If-Match") != o.etag && !s.Careless:
		return "PreconditionFailed"
	case scan != nil || first > last || last >= len(o.content):
		return "InvalidRange"
	default:
		up.parts[n] = s.newObject(o.content[first:last+1:last+1], 0)
		answer(w, "CopyPartResult", "<ETag>"+strings.ReplaceAll(up.parts[n].etag, `"`, "&quot;")+"</ETag>")
	}
	return ""
}

func (s *Server) list(w http.ResponseWriter, objs map[string]*object, q url.Values) (code string) {
	after, err := hex.DecodeString(q.Get("continuation-token"))
	if err != nil || q.Get("encoding-type") != "url" { // a key may contain characters that XML cannot
		return "InvalidArgument"
	}
	if len(after) == 0 {
		after = []byte(q.Get("start-after"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<EncodingType>url</EncodingType>")
	n, truncated, last := 0, false, ""
	below := "" // the prefix that is listed instead of the names that begin with it
	for _, key := range slices.Sorted(maps.Keys(objs)) {
		if !strings.HasPrefix(key, q.Get("prefix")) || key <= string(after) || below != "" && strings.HasPrefix(key, below) {
			continue
		}
		if n == cmp.Or(s.Page, 1000) {
			truncated = true
			break
		}
		n++
		if i := strings.Index(key[len(q.Get("prefix")):], "/") + 1; i > 0 && q.Get("delimiter") == "/" {
			below = key[:len(q.Get("prefix"))+i]
			fmt.Fprintf(&b, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", url.QueryEscape(below))
			last = below + "\U0010ffff"
			continue
		}
		o := objs[key]
		fmt.Fprintf(&b, "<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag><LastModified>%s</LastModified></Contents>",
			url.QueryEscape(key), len(o.content), strings.ReplaceAll(o.etag, `"`, "&quot;"), o.mod.UTC().Format("2006-01-02T15:04:05.000Z"))
		last = key
	}
	if truncated {
		// The token is opaque and not a key.
		fmt.Fprintf(&b, "<IsTruncated>true</IsTruncated><NextContinuationToken>%x</NextContinuationToken>", last)
	}
	answer(w, "ListBucketResult", b.String())
	return ""
}

// listUploads lists unfinished uploads by key, and then in the order in which they were begun.
func (s *Server) listUploads(w http.ResponseWriter, bucket string, q url.Values) (code string) {
	if q.Get("encoding-type") != "url" {
		return "InvalidArgument"
	}
	var ids []string
	for id, u := range s.uploads {
		if u.bucket == bucket && strings.HasPrefix(u.key, q.Get("prefix")) &&
			(u.key > q.Get("key-marker") || u.key == q.Get("key-marker") && id > q.Get("upload-id-marker")) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(strings.Compare(s.uploads[a].key, s.uploads[b].key), strings.Compare(a, b))
	})
	var b strings.Builder
	fmt.Fprint(&b, "<EncodingType>url</EncodingType>")
	for i, id := range ids {
		if i == cmp.Or(s.Page, 1000) {
			last := ids[i-1]
			fmt.Fprintf(&b, "<IsTruncated>true</IsTruncated><NextKeyMarker>%s</NextKeyMarker><NextUploadIdMarker>%s</NextUploadIdMarker>",
				url.QueryEscape(s.uploads[last].key), url.QueryEscape(last))
			break
		}
		fmt.Fprintf(&b, "<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>",
			url.QueryEscape(s.uploads[id].key), id, s.uploads[id].begun.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	answer(w, "ListMultipartUploadsResult", b.String())
	return ""
}
