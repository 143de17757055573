package azure

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testAccount = "someaccount"
	testKey     = "c2VjcmV0LW9mLXRoZS1hY2NvdW50LTAxMjM0NTY3ODk="
)

// A double is a server with one container, for what the emulator cannot do: fail where a
// test says so, and copy blocks. Requests are let in by signature, and by token if
// that was made of the account's key.
type double struct {
	hook func(w http.ResponseWriter, r *http.Request) bool // may answer instead
	page int

	mu     sync.Mutex
	blobs  map[string]*blob
	blocks map[string]map[string][]byte // of each name, those that no list was sent of
	took   []string
	last   int
}

type blob struct {
	content []byte
	etag    string
	mod     time.Time
	meta    string
	blocks  map[string][]byte // that it is made of
	md5     string            // that its writer said
	headers map[string]string // that are kept with it
	lease   string
	appends bool // it is an append blob
}

func serve(t *testing.T, d *double, prefix string) *Store {
	t.Helper()
	d.blobs, d.blocks = map[string]*blob{}, map[string]map[string][]byte{}
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	for k, v := range map[string]string{
		"AZURE_STORAGE_ACCOUNT": testAccount, "AZURE_STORAGE_KEY": testKey, "AZURE_STORAGE_SERVICE_ENDPOINT": srv.URL + "/" + testAccount,
	} {
		t.Setenv(k, v)
	}
	st, err := New(testAccount, "container", prefix, Options{Client: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func quiet(t *testing.T) {
	t.Helper()
	for _, k := range []string{"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
		"AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_STORAGE_AUTH_MODE", "HOLDALL_AZURE_ANONYMOUS"} {
		t.Setenv(k, "")
	}
}

func (d *double) set(name string, content []byte, meta string) string {
	d.last++
	b := &blob{bytes.Clone(content), fmt.Sprintf(`"0x8D%d"`, d.last), time.Now(), meta, nil, "", nil, "", false}
	d.blobs[name] = b
	return b.etag
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the server's own words about %s</Message></Error>", code, testKey)
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.took = append(d.took, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Range"))
	d.mu.Unlock()
	if d.hook != nil && d.hook(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	q := r.URL.Query()
	name, in := strings.CutPrefix(r.URL.Path, "/"+testAccount+"/container/")
	switch {
	case err != nil:
		return
	case r.Header.Get("Authorization") == "" && !passes(q, name), r.Header.Get("Authorization") != "" && !signed(r):
		refuse(w, http.StatusForbidden, "AuthenticationFailed")
		return
	case r.Header.Get("X-Ms-Version") == "":
		refuse(w, http.StatusBadRequest, "InvalidHeaderValue")
		return
	case r.Header.Get("Content-Md5") != "" && r.Header.Get("Content-Md5") != sum(body):
		refuse(w, http.StatusBadRequest, "Md5Mismatch")
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blobs[name]
	switch {
	case !in && q.Get("comp") == "list":
		d.list(w, q)
	case !in:
		refuse(w, http.StatusNotFound, "ContainerNotFound")
	case r.Method == http.MethodPut && q.Get("comp") == "lease":
		d.lease(w, r, b)
	case b != nil && b.lease != "" && r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get("X-Ms-Lease-Id") != b.lease:
		refuse(w, http.StatusPreconditionFailed, "LeaseIdMissing")
	case r.Method == http.MethodPut && q.Get("comp") == "appendblock":
		switch {
		case b == nil:
			refuse(w, http.StatusNotFound, "BlobNotFound")
		case !b.appends:
			refuse(w, http.StatusConflict, "InvalidBlobType")
		case r.Header.Get("X-Ms-Blob-Condition-Appendpos") != strconv.Itoa(len(b.content)):
			refuse(w, http.StatusPreconditionFailed, "AppendPositionConditionNotMet")
		case len(body) > appendBlock:
			refuse(w, http.StatusRequestEntityTooLarge, "RequestBodyTooLarge")
		default:
			d.set(name, append(b.content, body...), "")
			d.blobs[name].appends = true
			w.WriteHeader(http.StatusCreated)
		}
	case r.Method == http.MethodPut && q.Get("comp") == "block":
		d.block(w, r, q, name, body)
	case r.Method == http.MethodPut:
		d.put(w, r, q, name, body)
	case r.Method == http.MethodGet && q.Get("comp") == "blocklist":
		fmt.Fprint(w, "\ufeff<BlockList><UncommittedBlocks>")
		for _, id := range slices.Sorted(maps.Keys(d.blocks[name])) {
			fmt.Fprintf(w, "<Block><Name>%s</Name><Size>%d</Size></Block>", id, len(d.blocks[name][id]))
		}
		fmt.Fprint(w, "</UncommittedBlocks></BlockList>")
	case b == nil && r.Method == http.MethodDelete && r.Header.Get("If-Match") != "": // as the emulator does
		refuse(w, http.StatusPreconditionFailed, "ConditionNotMet")
	case b == nil:
		refuse(w, http.StatusNotFound, "BlobNotFound")
	case r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != b.etag:
		refuse(w, http.StatusPreconditionFailed, "ConditionNotMet")
	case r.Method == http.MethodDelete:
		delete(d.blobs, name)
		w.WriteHeader(http.StatusAccepted)
	case strings.HasPrefix(r.Header.Get("Range"), "bytes=-"):
		refuse(w, http.StatusBadRequest, "InvalidHeaderValue")
	case r.Header.Get("Range") != "" && len(b.content) == 0:
		refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
	default:
		w.Header().Set("ETag", b.etag)
		w.Header().Set("X-Ms-Meta-Holdallwriter", b.meta)
		if b.md5 != "" {
			w.Header().Set("X-Ms-Blob-Content-Md5", b.md5)
		}
		for name, value := range b.headers {
			w.Header().Set(name, value)
		}
		if b.headers["Content-Encoding"] != "" && r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", strconv.Itoa(len(b.content))) // which net/http leaves out
		}
		http.ServeContent(w, r, "", b.mod, bytes.NewReader(b.content))
	}
}

func (d *double) block(w http.ResponseWriter, r *http.Request, q url.Values, name string, body []byte) {
	if from := r.Header.Get("X-Ms-Copy-Source"); from != "" {
		u, err := url.Parse(from)
		if err != nil {
			refuse(w, http.StatusBadRequest, "InvalidHeaderValue")
			return
		}
		source := strings.TrimPrefix(u.Path, "/"+testAccount+"/container/")
		b := d.blobs[source]
		var first, last int
		_, err = fmt.Sscanf(r.Header.Get("X-Ms-Source-Range"), "bytes=%d-%d", &first, &last)
		switch {
		case !passes(u.Query(), source):
			refuse(w, http.StatusForbidden, "CannotVerifyCopySource")
			return
		case b == nil || err != nil || last >= len(b.content):
			refuse(w, http.StatusNotFound, "CannotVerifyCopySource")
			return
		case r.Header.Get("X-Ms-Source-If-Match") != b.etag:
			refuse(w, http.StatusPreconditionFailed, "SourceConditionNotMet")
			return
		}
		body = b.content[first : last+1]
	}
	if d.blocks[name] == nil {
		d.blocks[name] = map[string][]byte{}
	}
	d.blocks[name][q.Get("blockid")] = body
	w.WriteHeader(http.StatusCreated)
}

func (d *double) put(w http.ResponseWriter, r *http.Request, q url.Values, name string, body []byte) {
	content, listed := body, map[string][]byte{}
	if q.Get("comp") == "blocklist" {
		var list struct{ Latest []string }
		if err := xml.Unmarshal(body, &list); err != nil {
			refuse(w, http.StatusBadRequest, "InvalidXmlDocument")
			return
		}
		content = nil
		for _, id := range list.Latest {
			p, ok := d.blocks[name][id]
			if old := d.blobs[name]; !ok && old != nil {
				p, ok = old.blocks[id]
			}
			if !ok {
				refuse(w, http.StatusBadRequest, "InvalidBlockList")
				return
			}
			content, listed[id] = append(content, p...), p
		}
	} else if kind := r.Header.Get("X-Ms-Blob-Type"); kind != "BlockBlob" && (kind != "AppendBlob" || len(body) > 0) {
		refuse(w, http.StatusBadRequest, "MissingRequiredHeader")
		return
	}
	if r.Header.Get("If-None-Match") == "*" && d.blobs[name] != nil {
		refuse(w, http.StatusConflict, "BlobAlreadyExists")
		return
	}
	w.Header().Set("ETag", d.set(name, content, r.Header.Get("X-Ms-Meta-Holdallwriter")))
	d.blobs[name].blocks, d.blobs[name].appends = listed, r.Header.Get("X-Ms-Blob-Type") == "AppendBlob"
	d.blobs[name].headers = map[string]string{}
	for k, v := range r.Header {
		if strings.HasPrefix(strings.ToLower(k), metaPrefix) {
			d.blobs[name].headers[k] = v[0]
		}
	}
	delete(d.blocks, name)
	w.WriteHeader(http.StatusCreated)
}

func (d *double) lease(w http.ResponseWriter, r *http.Request, b *blob) {
	id := r.Header.Get("X-Ms-Lease-Id")
	switch action := r.Header.Get("X-Ms-Lease-Action"); {
	case b == nil:
		refuse(w, http.StatusNotFound, "BlobNotFound")
	case action == "acquire" && b.lease != "" && b.lease != r.Header.Get("X-Ms-Proposed-Lease-Id"):
		refuse(w, http.StatusConflict, "LeaseAlreadyPresent")
	case action == "acquire":
		b.lease = r.Header.Get("X-Ms-Proposed-Lease-Id")
		w.WriteHeader(http.StatusCreated)
	case id != b.lease:
		refuse(w, http.StatusConflict, "LeaseIdMismatchWithLeaseOperation")
	}
}

func (d *double) list(w http.ResponseWriter, q url.Values) {
	most, _ := strconv.Atoi(q.Get("maxresults"))
	if d.page > 0 {
		most = d.page
	}
	fmt.Fprint(w, "\ufeff"+`<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>`)
	next, n := "", 0
	for _, name := range slices.Sorted(maps.Keys(d.blobs)) {
		if !strings.HasPrefix(name, q.Get("prefix")) || "m"+name < q.Get("marker") {
			continue
		}
		if n++; n > most {
			next = "m" + name
			break
		}
		shown := "<Name>" + escaped(name) + "</Name>"
		if strings.ContainsRune(name, 1) {
			shown = `<Name Encoded="true">` + url.PathEscape(name) + "</Name>"
		}
		b := d.blobs[name]
		meta := ""
		if q.Get("include") == "metadata" {
			meta = "<Metadata>"
			for _, k := range slices.Sorted(maps.Keys(b.headers)) {
				if m := k[min(len(k), len(metaPrefix)):]; strings.HasPrefix(strings.ToLower(k), metaPrefix) {
					meta += "<" + m + ">" + escaped(b.headers[k]) + "</" + m + ">"
				}
			}
			meta += "</Metadata>"
		}
		fmt.Fprintf(w, "<Blob>%s<Properties><Last-Modified>%s</Last-Modified><Etag>%s</Etag><Content-Length>%d</Content-Length></Properties>%s</Blob>",
			shown, b.mod.UTC().Format(http.TimeFormat), strings.Trim(b.etag, `"`), len(b.content), meta)
	}
	fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", escaped(next))
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes all
	return b.String()
}

func mac(text string) string {
	key, err := base64.StdEncoding.DecodeString(testKey)
	if err != nil {
		panic(err)
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// signed checks a signature by the rules for GET, PUT, HEAD and DELETE as Microsoft's
// pages have them.
func signed(r *http.Request) bool {
	length := r.Header.Get("Content-Length")
	if length == "0" {
		length = ""
	}
	h := r.Header
	text := strings.Join([]string{r.Method, "", "", length, h.Get("Content-MD5"), h.Get("Content-Type"), "", "", h.Get("If-Match"), h.Get("If-None-Match"), "", h.Get("Range")}, "\n") + "\n"
	own := []string{}
	for k := range h {
		if k = strings.ToLower(k); strings.HasPrefix(k, "x-ms-") {
			own = append(own, k)
		}
	}
	slices.Sort(own)
	for _, k := range own {
		text += k + ":" + h.Get(k) + "\n"
	}
	text += "/" + testAccount + r.URL.EscapedPath()
	for _, k := range slices.Sorted(maps.Keys(r.URL.Query())) {
		text += "\n" + k + ":" + r.URL.Query().Get(k)
	}
	return h.Get("Authorization") == "SharedKey "+testAccount+":"+mac(text)
}

// passes checks a token for one object.
func passes(q url.Values, name string) bool {
	end, err := time.Parse(time.RFC3339, q.Get("se"))
	text := strings.Join([]string{q.Get("sp"), q.Get("st"), q.Get("se"), "/blob/" + testAccount + "/container/" + name, "", "",
		q.Get("spr"), q.Get("sv"), q.Get("sr"), "", "", "", "", "", "", ""}, "\n")
	return err == nil && time.Now().Before(end) && q.Get("sig") == mac(text)
}
