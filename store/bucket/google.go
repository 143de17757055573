package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

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
	keys   keys    // HMAC keys
	tokens *tokens // nil if there are none
}

const (
	googleEndpoint = "https://storage.googleapis.com"

	// maxGoogleBucket is the longest name of a bucket, which may be a domain.
	maxGoogleBucket = 222
)

// findGoogle is like find for Google's dialect.
func findGoogle(o Options) (place, error) {
	emulator := os.Getenv("STORAGE_EMULATOR_HOST")
	if emulator != "" && !strings.Contains(emulator, "://") {
		emulator = "http://" + emulator
	}
	set := cmp.Or(o.Endpoint, os.Getenv("HOLDALL_GS_ENDPOINT"))
	endpoint, err := far.ParseEndpoint(cmp.Or(set, emulator, googleEndpoint), serverForm, false)
	if err != nil {
		return place{}, err
	}
	g, err := googleKeys(o, set == "" && emulator != "")
	if err != nil {
		return place{}, err
	}
	if g.tokens != nil && endpoint.Scheme != "https" && !far.IsLocal(endpoint.Hostname()) {
		return place{}, fmt.Errorf("endpoint http://%s: expected https, since tokens are sent there: %w", endpoint.Host, fs.ErrInvalid)
	}
	return place{endpoint: endpoint, region: "auto", pathStyle: true, google: g}, nil
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
		return &google{keys: keys{id: id, secret: secret}}, nil
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

func (g *google) anonymous() bool { return g.keys.id == "" && g.tokens == nil }

// sign translates a request from Amazon's headers to Google's, and signs it.
func (g *google) sign(s *signer, r *http.Request, now time.Time) error {
	sum := r.Header.Get("X-Amz-Content-Sha256")
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
	case g.keys.id != "":
		if sum != "" {
			r.Header.Set("X-Goog-Content-Sha256", sum)
		}
		googleWords.sign(r, &s.keys, g.keys, "auto", now)
	case g.tokens != nil:
		token, err := g.tokens.get(r.Context())
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// onceInParts reports whether an object that is uploaded in parts can be created on condition
// that none exists. Google's servers ignore that condition.
func (p place) onceInParts() bool { return p.google == nil }

func (p place) scheme() string {
	if p.google != nil {
		return "gs"
	}
	return "s3"
}
