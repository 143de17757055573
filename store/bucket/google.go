package bucket

import (
	"cmp"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/web"
)

// google signs requests to Google. Its XML interface differs from S3 in how requests are signed,
// in the names of conditions, and in what it lacks:
//
//   - A request may have headers of Amazon's or of Google's, not of both. With Google's headers,
//     it must be signed in Google's way or sent with a token.
//   - Parts cannot be copied from other objects.
//   - An upload in parts accepts no condition. The object has no MD5 checksum, so its ETag shows
//     nothing about its parts.
type google struct {
	id, secret string  // HMAC keys
	tokens     *tokens // nil if there are none
}

const (
	googleEndpoint = "https://storage.googleapis.com"

	// maxGoogleBucket is the longest name of a bucket, which may be a domain.
	maxGoogleBucket = 222
)

// findGoogle is like find for Google's dialect.
func findGoogle(o Options) (place, *credentials.Credentials, error) {
	emulator := os.Getenv("STORAGE_EMULATOR_HOST")
	if emulator != "" && !strings.Contains(emulator, "://") {
		emulator = "http://" + emulator
	}
	set := cmp.Or(o.Endpoint, os.Getenv("HOLDALL_GS_ENDPOINT"))
	endpoint, err := far.ParseEndpoint(cmp.Or(set, emulator, googleEndpoint), serverForm, false)
	if err != nil {
		return place{}, nil, err
	}
	g, err := googleKeys(o, set == "" && emulator != "")
	if err != nil {
		return place{}, nil, err
	}
	if g.tokens != nil && endpoint.Scheme != "https" && !far.IsLocal(endpoint.Hostname()) {
		return place{}, nil, fmt.Errorf("endpoint http://%s: expected https, since tokens are sent there: %w", endpoint.Host, fs.ErrInvalid)
	}
	// The client that writes must sign its requests, because only then does it send checksums of
	// their bodies. These signatures are replaced before the requests are sent.
	some := &credentials.Static{Value: credentials.Value{AccessKeyID: "x", SecretAccessKey: "x", SignerType: credentials.SignatureV4}}
	return place{endpoint: endpoint, region: "auto", pathStyle: true, google: g}, credentials.New(some), nil
}

// googleKeys returns the credentials to use. No token is sent to an emulator, which may be any
// address in the environment.
func googleKeys(o Options, emulator bool) (*google, error) {
	anonymous, err := far.Switch(o.Anonymous, "HOLDALL_GS_ANONYMOUS")
	if err != nil {
		return nil, err
	}
	id, secret := os.Getenv("GS_ACCESS_KEY_ID"), os.Getenv("GS_SECRET_ACCESS_KEY")
	switch {
	case anonymous:
		return &google{}, nil
	case id != "" && secret != "":
		return &google{id: id, secret: secret}, nil
	case id != "" || secret != "":
		return nil, errors.New("expected both GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, found one of them")
	case emulator:
		return &google{}, nil
	}
	t, err := findTokens()
	if err != nil || t == nil {
		return &google{}, err
	}
	t.client = &http.Client{
		Transport:     web.Transport(),
		Timeout:       tokenWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.Client != nil && o.Client.Transport != nil {
		t.client.Transport = o.Client.Transport
	}
	return &google{tokens: t}, nil
}

func (g *google) anonymous() bool { return g.id == "" && g.tokens == nil }

// sign translates a request of the client from Amazon's headers to Google's, and signs it.
func (g *google) sign(r *http.Request, now time.Time) error {
	sum := cmp.Or(r.Header.Get("X-Amz-Content-Sha256"), noContent)
	for k := range r.Header {
		if strings.HasPrefix(k, "X-Amz-") {
			r.Header.Del(k)
		}
	}
	// Otherwise objects stored as gzip would be decompressed, and sent as a whole whatever the
	// range.
	r.Header.Set("Accept-Encoding", "gzip")
	if r.Header.Get("If-None-Match") == "*" {
		r.Header.Del("If-None-Match")
		r.Header.Set("X-Goog-If-Generation-Match", "0")
	}
	switch {
	case g.id != "":
		r.Header.Set("X-Goog-Content-Sha256", sum)
		g.signKeys(r, sum, now.UTC())
	case g.tokens != nil:
		token, err := g.tokens.get(r.Context())
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// signKeys signs with HMAC keys: version 4 of Amazon's signatures with Google's names. It signs
// only headers for Google, because Google's front end changes Accept-Encoding.
func (g *google) signKeys(r *http.Request, sum string, now time.Time) {
	date := now.Format("20060102T150405Z")
	r.Header.Set("X-Goog-Date", date)
	head := map[string]string{"host": r.URL.Host}
	for k, v := range r.Header {
		k = strings.ToLower(k)
		if strings.HasPrefix(k, "x-goog-") || k == "range" || k == "content-md5" || strings.HasPrefix(k, "if-") {
			head[k] = strings.Join(v, ",")
		}
	}
	names := slices.Sorted(maps.Keys(head))
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, s3utils.EncodePath(r.URL.Path), strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"))
	for _, k := range names {
		fmt.Fprintf(&canonical, "%s:%s\n", k, strings.TrimSpace(head[k]))
	}
	signed := strings.Join(names, ";")
	fmt.Fprintf(&canonical, "\n%s\n%s", signed, sum)

	scope := []string{date[:8], "auto", "storage", "goog4_request"}
	all := sha256.Sum256([]byte(canonical.String()))
	text := "GOOG4-HMAC-SHA256\n" + date + "\n" + strings.Join(scope, "/") + "\n" + hex.EncodeToString(all[:])
	key := []byte("GOOG4" + g.secret)
	for _, part := range append(scope, text) {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("GOOG4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
		g.id, strings.Join(scope, "/"), signed, key))
}

// onceInParts reports whether an object that is uploaded in parts can be created on condition
// that none exists. Google's servers ignore that condition.
func (p place) onceInParts() bool { return p.google == nil }

// contentMD5 returns the checksum of a body for the server to compare. Amazon's servers compare
// the SHA-256 of the signature; Google's do not.
func (p place) contentMD5(body []byte) string {
	if p.google == nil {
		return ""
	}
	sum := md5.Sum(body)
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (p place) scheme() string {
	if p.google != nil {
		return "gs"
	}
	return "s3"
}
