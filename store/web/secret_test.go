package web

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// chain returns the text of err and of every error inside it, as a program may
// print any of them.
func chain(err error) string {
	if err == nil {
		return ""
	}
	text := fmt.Sprintf("%v %+v %#v\n", err, err, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		text += chain(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			text += chain(inner)
		}
	}
	return text
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestErrorsAndLogsHoldNoCredentials(t *testing.T) {
	secrets := []string{"s3cret-user", "s3cret-pass", "s3cret-sig", "s3cret%20enc", "s3cret enc", "s3cret-header", "s3cret-location",
		base64.StdEncoding.EncodeToString([]byte("s3cret-user:s3cret-pass"))}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.URL.String()+fmt.Sprint(r.Header), code) // what a server may echo
		}
	}
	back := httptest.NewServer(status(http.StatusForbidden))
	defer back.Close()
	plainServer := httptest.NewServer(status(http.StatusOK))
	defer plainServer.Close()
	asked := 0
	flaky := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			partial(w, 0, "0", "10")
			return
		}
		status(http.StatusServiceUnavailable)(w, r)
	}))
	defer flaky.Close()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		client  *http.Client
		address string
	}{
		"ok":          {handler: func(w http.ResponseWriter, r *http.Request) { plain(w, r, "0123456789") }},
		"not found":   {handler: status(404)},
		"forbidden":   {handler: status(403)},
		"in trouble":  {handler: status(503)},
		"no range":    {handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000000000") }},
		"bad request": {handler: status(400)},
		"dropped":     {handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"redirected to a refusal": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, back.URL+"/x?sig=s3cret-location", http.StatusFound)
		}},
		"redirected to a user": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(flaky.URL, "//", "//s3cret-user:s3cret-pass@", 1)+"/x?sig=s3cret-location", http.StatusFound)
		}},
		"redirected in a loop": {handler: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/loop?sig=s3cret-location", http.StatusFound)
		}},
		"redirected to a malformed address": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{"http://[x?sig=s3cret-location"}
			w.WriteHeader(http.StatusFound)
		}},
		"redirected to another scheme": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{"gopher://s3cret-user:s3cret-pass@h/x?sig=s3cret-location"}
			w.WriteHeader(http.StatusFound)
		}},
		"redirected to nobody": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{"http://s3cret-user:s3cret-pass@127.0.0.1:1/x?sig=s3cret-location"}
			w.WriteHeader(http.StatusFound)
		}},
		"connection refused": {address: "http://127.0.0.1:1"},
		"http on https":      {address: strings.Replace(plainServer.URL, "http:", "https:", 1)},
		"a transport that tells everything": {client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("sending %s with %v", r.URL, r.Header)
		})}, address: "http://host.test"},
		"a transport that tells the authorization": {client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, errors.New(r.Header.Get("Authorization"))
		})}, address: "http://host.test"},
		"a transport that tells the user": {client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			user, password, _ := r.BasicAuth()
			return nil, errors.New(user + " " + password)
		})}, address: "http://host.test"},
		"a transport that wraps another's error": {client: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("wrapped: %w", &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("inner")})
		})}, address: "http://host.test"},
	} {
		t.Run(name, func(t *testing.T) {
			base := c.address
			if c.handler != nil {
				srv := httptest.NewServer(c.handler)
				defer srv.Close()
				base = srv.URL
			}
			var log bytes.Buffer
			st, object, err := At(strings.Replace(base, "//", "//s3cret-user:s3cret-pass@", 1)+"/object?sig=s3cret-sig&x=s3cret%20enc", Options{
				Client: c.client,
				Header: http.Header{"X-Key": {"s3cret-header"}},
				Tries:  2,
				Log:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			if err != nil {
				t.Fatal(err)
			}
			st.jitter = func(time.Duration) time.Duration { return 0 }
			o := storetest.Open(t, st, object)
			_, readErr := read(t, o, 0, 1)
			_, tailErr := storekit.ReadTail(t.Context(), o, make([]byte, 3))
			_, infoErr := o.Info(t.Context())
			if name != "ok" && tailErr == nil {
				t.Errorf("expected errors, found %v, %v, %v", readErr, tailErr, infoErr)
			}
			if log.Len() == 0 || !strings.Contains(log.String(), "object=") {
				t.Errorf("expected the requests in the log, found %q", log.String())
			}
			shown := log.String() + chain(readErr) + chain(tailErr) + chain(infoErr) + object
			for _, s := range secrets {
				if i := strings.Index(shown, s); i >= 0 {
					t.Errorf("%s is shown: …%s…", s, shown[max(0, i-200):min(len(shown), i+100)])
				}
			}
		})
	}
}

func TestLogHasOneLineForEachRequest(t *testing.T) {
	var s site
	s.put("object", []byte("0123456789"))
	srv := httptest.NewServer(&s)
	defer srv.Close()
	var log bytes.Buffer
	st := below(t, srv.URL, Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "took" {
				return slog.Attr{}
			}
			return a
		},
	}))})
	o := storetest.Open(t, st, "object")
	wantTail(t, o, 4, "6789")
	wantRead(t, o, 1, "12")
	want := strings.ReplaceAll(`level=DEBUG msg=request object=BASE/object off=-1 len=4 status=206
level=DEBUG msg=request object=BASE/object off=1 len=2 status=206
`, "BASE", srv.URL)
	if got := log.String(); got != want {
		t.Errorf("expected\n%s, found\n%s", want, got)
	}
}

func TestCertificateErrorIsNotTriedAgain(t *testing.T) {
	n := 0
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n++ }))
	defer srv.Close()
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	_, err := read(t, storetest.Open(t, below(t, srv.URL, Options{}), "object"), 0, 1)
	if err == nil || storekit.Temporary(err) || !strings.Contains(err.Error(), "certificate") || n != 0 {
		t.Errorf("expected the certificate's error, not temporary, found %v after %d requests", err, n)
	}
}

func TestSilentWithoutALog(t *testing.T) {
	if below(t, "http://host.test/", Options{}).log.Enabled(context.Background(), slog.LevelError) {
		t.Error("logs without being asked to")
	}
}
