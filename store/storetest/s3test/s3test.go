// Package s3test is a server for tests that speaks S3: in memory, strict about
// signatures, and made to fail where a test says so.
//
// It is for tests; as a place to keep objects it is useless.
package s3test

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"io"
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

	// What a Server takes as credentials unless it is told others.
	AccessKey = "AKIATESTTESTTEST"
	Secret    = "secret/of+the=test"
)

// A Server keeps buckets. Its fields are set before the first request.
type Server struct {
	// Token is the session token that requests have to bring, if any.
	Token string

	// Google makes the server speak Google's dialect, and Bearer is a token that it
	// takes, if any.
	Google bool
	Bearer string

	// Region is that of all buckets; "us-east-1" if empty.
	Region string

	// Public lets requests without a signature read and list.
	Public bool

	// Hook may answer a request instead; it returns false to leave it be. What
	// it does to the bucket meanwhile the request meets.
	Hook func(w http.ResponseWriter, r *http.Request) bool

	// Careless copies parts of an object whatever the ETag that they were to be of.
	Careless bool

	// Replacing creates objects whether or not they are to be created once.
	Replacing bool

	// MinPart is the least length of a part that is not the last; 5 MiB if 0.
	MinPart int

	// Clock is the server's; the real one if nil.
	Clock func() time.Time

	// Sums are the algorithms of the checksums that objects get: "crc32c", "sha256" and
	// what else S3 has. Those of objects in parts are of the parts' own.
	Sums []string

	// Encrypts has the server keep new objects by keys of its own: ETags are no sums then.
	Encrypts bool

	// Page is how many keys a listing has at most; 1000 if 0.
	Page int

	mu      sync.Mutex
	buckets map[string]map[string]*object
	uploads map[string]*upload
	reqs    []string
	last    int
}

type object struct {
	content   []byte
	etag      string
	mod       time.Time
	sums      map[string]string // by algorithm, as headers have them
	part      int               // length of the parts, of one that has some
	encrypted bool
	headers   http.Header // that are kept with it
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

// Put makes content the object of a key, by no request.
func (s *Server) Put(bucket, key string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key] = s.newObject(bytes.Clone(content), 0)
}

// Describe has an object keep headers, by no request: "Content-Type" and others, and
// "X-Amz-Meta-…".
func (s *Server) Describe(bucket, key string, headers map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := http.Header{}
	for name, value := range headers {
		h.Set(name, value)
	}
	s.buckets[bucket][key].headers = h
}

// Touch sets when an object was written, by no request.
func (s *Server) Touch(bucket, key string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key].mod = at
}

// Remove takes a key away, by no request.
func (s *Server) Remove(bucket, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buckets[bucket], key)
}

// Get returns the bytes of a key, nil if it has none.
func (s *Server) Get(bucket, key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.buckets[bucket][key]; o != nil {
		return append([]byte{}, o.content...)
	}
	return nil
}

// Keys returns the keys of a bucket, in order.
func (s *Server) Keys(bucket string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.buckets[bucket]))
}

// Uploads is how many were begun and neither completed nor aborted.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Took returns the requests since the last call, each as its method, path and query,
// and its range if it asks for one.
func (s *Server) Took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	reqs := s.reqs
	s.reqs = nil
	return reqs
}

// PutParts is Put of an object that was sent in parts of a length.
func (s *Server) PutParts(bucket, key string, content []byte, part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key] = s.newObject(bytes.Clone(content), part)
}

// Rot changes a byte of an object, and nothing else that is known of it.
func (s *Server) Rot(bucket, key string, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[bucket][key].content[at] ^= 0x10
}

// newObject makes an object of content, in parts of a length if that is not 0.
func (s *Server) newObject(content []byte, part int) *object {
	o := &object{content: content, mod: time.Now(), sums: map[string]string{}, part: part, encrypted: s.Encrypts}
	all := slices.Collect(slices.Chunk(content, max(1, cmp.Or(part, len(content)))))
	sum := func(algo string) (value []byte, end string) {
		if part == 0 {
			return sumOf(algo, content), ""
		}
		var sums []byte
		for _, b := range all {
			sums = append(sums, sumOf(algo, b)...)
		}
		return sumOf(algo, sums), fmt.Sprintf("-%d", len(all))
	}
	for _, algo := range s.Sums {
		value, end := sum(algo)
		if s.Google { // which has no MD5 of what was sent in parts, but the other of the whole
			if value, end = sumOf(algo, content), ""; algo == "md5" && part > 0 {
				continue
			}
		}
		o.sums[algo] = base64.StdEncoding.EncodeToString(value) + end
	}
	value, end := sum("md5")
	o.etag = fmt.Sprintf(`"%x%s"`, value, end)
	switch {
	case s.Encrypts:
		s.last++
		o.etag = fmt.Sprintf(`"%032x%s"`, s.last, end)
	case s.Google && part > 0:
		o.etag = s.joinedTag([16]byte{}, 0)
	}
	return o
}

// keptOf are the headers of a request that are kept with the object that it makes.
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

// Refuse answers as S3 does when it says no.
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

// statuses are those of the codes of refusals, as far as they are not 403.
var statuses = map[string]int{
	"AuthenticationRequired": 401, "PreconditionFailed": 412, "InvalidRange": 416, "NotImplemented": 501, "MethodNotAllowed": 405,
	"NoSuchBucket": 404, "NoSuchKey": 404, "NoSuchUpload": 404, "AuthorizationHeaderMalformed": 400, "BadDigest": 400, "IncompleteBody": 400,
	"InvalidArgument": 400, "MalformedXML": 400, "InvalidPart": 400, "InvalidPartOrder": 400, "EntityTooSmall": 400,
}

// serve answers a request, or returns the code of why not.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, now time.Time) (code string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "IncompleteBody"
	}
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
	case key == "" && r.Method == http.MethodGet && q.Has("uploads"):
		return s.listUploads(w, bucket, q)
	case key == "":
		return "NotImplemented"
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
		if tag := r.Header.Get("If-Match"); tag != "" && (objs[key] == nil || objs[key].etag != tag) {
			return "PreconditionFailed"
		}
		delete(objs, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		return "MethodNotAllowed"
	}
	return ""
}

// answer writes a document. Errors of writing are the client's to notice.
func answer(w http.ResponseWriter, name, inner string) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><%s xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</%s>`, name, inner, name)
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
		w.Header()[http.CanonicalHeaderKey(strings.Replace(name, "X-Amz-Meta-", s.dialect().headers+"Meta-", 1))] = values
	}
	if s.Google { // which says so of all, as of the answer
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
		w.Header().Set("Content-Length", strconv.Itoa(len(content))) // which net/http leaves out
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
		var content, sums []byte
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
			sum := md5.Sum(o.content)
			sums = append(sums, sum[:]...)
		}
		o := s.newObject(content, 0)
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
		up.parts[n] = s.newObject(bytes.Clone(o.content[first:last+1]), 0)
		answer(w, "CopyPartResult", "<ETag>"+strings.ReplaceAll(up.parts[n].etag, `"`, "&quot;")+"</ETag>")
	}
	return ""
}

func (s *Server) list(w http.ResponseWriter, objs map[string]*object, q url.Values) (code string) {
	after, err := hex.DecodeString(q.Get("continuation-token"))
	if err != nil || q.Get("encoding-type") != "url" { // a key may hold what XML cannot
		return "InvalidArgument"
	}
	if len(after) == 0 {
		after = []byte(q.Get("start-after"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<EncodingType>url</EncodingType>")
	n, truncated, last := 0, false, ""
	below := "" // which prefix was listed instead of what begins with it
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
		// What continues a listing is the server's own affair, and no key.
		fmt.Fprintf(&b, "<IsTruncated>true</IsTruncated><NextContinuationToken>%x</NextContinuationToken>", last)
	}
	answer(w, "ListBucketResult", b.String())
	return ""
}

// listUploads tells what was begun and is not finished, by key and then by the order in
// which it was begun.
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

// unsigned returns the code of what is wrong with a request's signature, "" if
// nothing is.
func (s *Server) unsigned(r *http.Request, body []byte, region string, now time.Time) string {
	d := s.dialect()
	auth, ok := strings.CutPrefix(r.Header.Get("Authorization"), d.algorithm)
	if !ok {
		if token, bears := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); bears && s.Google {
			if token == "" || token != s.Bearer {
				return "AuthenticationRequired"
			}
			return ""
		}
		if s.Public && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return ""
		}
		return "AccessDenied"
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(auth, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[k] = v
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[3] != d.service || scope[4] != d.end {
		return "AuthorizationHeaderMalformed"
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get(d.headers+"Date"))
	hash := r.Header.Get(d.headers + "Content-Sha256")
	switch sum := sha256.Sum256(body); {
	case scope[0] != AccessKey:
		return "InvalidAccessKeyId"
	case scope[2] != region:
		return "AuthorizationHeaderMalformed"
	case err != nil || !strings.HasPrefix(r.Header.Get(d.headers+"Date"), scope[1]):
		return "AccessDenied"
	case at.Sub(now).Abs() > 15*time.Minute:
		return "RequestTimeTooSkewed"
	case r.Header.Get(d.headers+"Security-Token") != s.Token:
		return "InvalidToken"
	case hash != hex.EncodeToString(sum[:]) && hash != "UNSIGNED-PAYLOAD":
		return "XAmzContentSHA256Mismatch"
	}
	names := strings.Split(fields["SignedHeaders"], ";")
	var head strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		fmt.Fprintf(&head, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	// What could change the answer has to be signed.
	for k := range r.Header {
		k = strings.ToLower(k)
		if (strings.HasPrefix(k, strings.ToLower(d.headers)) || k == "range" || k == "if-match") && !slices.Contains(names, k) {
			return "AccessDenied"
		}
	}
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	canonical := strings.Join([]string{r.Method, uri(r.URL.Path), query, head.String(), fields["SignedHeaders"], hash}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{strings.TrimSpace(d.algorithm), r.Header.Get(d.headers + "Date"), strings.Join(scope[1:], "/"), hex.EncodeToString(sum[:])}, "\n")
	key := []byte(d.key + Secret)
	for _, part := range append(scope[1:], text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(key)), []byte(fields["Signature"])) {
		return "SignatureDoesNotMatch"
	}
	return ""
}

// uri escapes a path as signatures have it: all but letters, digits, -._~ and
// slashes.
func uri(path string) string {
	var b strings.Builder
	for _, c := range []byte(path) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
