package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

func TestAddressIsBucketAndKey(t *testing.T) {
	quiet(t)
	for _, c := range []struct{ address, prefix, name, again string }{
		{"s3://bucket/x.caf", "", "x.caf", "s3://bucket/x.caf"},
		{"S3://bucket/dir/sub/x", "dir/sub/", "x", "s3://bucket/dir/sub/x"},
		{"s3://bucket/a%20b/c%3Fd%23%25+e", "a b/", "c?d#%+e", "s3://bucket/a%20b/c%3Fd%23%25+e"},
		{"s3://bucket/dir/", "", "dir", "s3://bucket/dir"},
		{"s3://bucket//x", "/", "x", "s3://bucket//x"},
		{"s3://bucket/a//x", "a//", "x", "s3://bucket/a//x"},
		{"s3://bucket/x?anonymous", "", "x", "s3://bucket/x"},
	} {
		st, name, err := At(c.address, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.address, err)
			continue
		}
		if st.bucket != "bucket" || st.prefix != c.prefix || name != c.name || st.Address(name) != c.again {
			t.Errorf("%s: found bucket %q, prefix %q, name %q, address %s", c.address, st.bucket, st.prefix, name, st.Address(name))
		}
	}
}

func TestAddressThatIsNoneIsRefusedWithoutItsSecrets(t *testing.T) {
	quiet(t)
	for address, want := range map[string]string{
		"s3://bucket":                 "found no key",
		"s3://bucket//":               "found no key",
		"s3:///x":                     "expected s3://bucket/key",
		"http://bucket/x":             "expected s3://bucket/key",
		"s3://Bucket_/x":              "bucket name",
		"s3://b/x":                    "expected 3 to 63",
		"s3://a..b/x":                 "two dots",
		"s3://bucket/x#y":             "write it %23",
		"s3://bucket/x?region=secret": "expected ?anonymous",
		"s3://me:secret@bucket/x":     "must not contain credentials",
		"s3://bucket/%zz":             "malformed",
		"s3://bucket/a/../b/x":        `a key with a '..' element cannot be requested over HTTP`,
		"s3://bucket/%ff/x":           "not UTF-8",
		"s3://bucket/%00/x":           "NUL byte",
		"s3://bucket/" + strings.Repeat("k", 1100) + "/x": "at most 1024",
	} {
		_, _, err := At(address, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60s: expected %q, found %v", address, want, err)
		}
	}
}

func TestNameThatCannotBeAKeyIsRefused(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	st := serve(t, s, "", Options{})
	for _, name := range []string{"", "/x", "a/../x", ".", "\xff", "a\x00b", strings.Repeat("k", maxKey+1)} {
		_, open := st.Open(t.Context(), name)
		_, create := storekit.Create(t.Context(), st, name)
		if name == "/x" { // which is read
			open = create
		}
		for op, err := range map[string]error{"open": open, "create": create, "remove": st.Remove(t.Context(), name)} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s %.20q: found %v", op, name, err)
			}
		}
	}
	if reqs := s.Took(); len(reqs) > 0 {
		t.Errorf("asked for %q", reqs)
	}
}

// home makes files of settings and returns the folder.
func home(t *testing.T, config, keys string) {
	t.Helper()
	quiet(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"config": config, "credentials": keys} {
		if content != "" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
}

const (
	someKeys = "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = sssssecret\n" +
		"[work]\naws_access_key_id=AKIAWORK\naws_secret_access_key=wwwsecret\naws_session_token=wwwtoken\n"
	someConfig = "[default]\nregion = eu-north-1\n[profile work]\nregion=ap-south-1\nendpoint_url = https://s3.example.test\n"
)

func TestSettingsComeFromTheEnvironmentBeforeTheProfile(t *testing.T) {
	for _, c := range []struct {
		what     string
		env      string
		o        Options
		endpoint string
		region   string
		key      string
		path     bool
	}{
		{"default profile", "", Options{}, "https://s3.eu-north-1.amazonaws.com", "eu-north-1", "AKIADEFAULT", false},
		{"another profile", "AWS_PROFILE=work", Options{}, "https://s3.example.test", "ap-south-1", "AKIAWORK", true},
		{"environment", "AWS_REGION=us-west-2 AWS_ENDPOINT_URL=http://one.test AWS_ACCESS_KEY_ID=AKIAENV AWS_SECRET_ACCESS_KEY=x", Options{},
			"http://one.test", "us-west-2", "AKIAENV", true},
		{"endpoint of S3", "AWS_ENDPOINT_URL=http://one.test AWS_ENDPOINT_URL_S3=http://two.test:81/ HOLDALL_S3_PATH_STYLE=0", Options{},
			"http://two.test:81", "eu-north-1", "AKIADEFAULT", false},
		{"address of numbers", "AWS_ENDPOINT_URL=http://127.0.0.1:9 HOLDALL_S3_PATH_STYLE=0", Options{}, "http://127.0.0.1:9", "eu-north-1", "AKIADEFAULT", true},
		{"path style", "HOLDALL_S3_PATH_STYLE=1", Options{}, "https://s3.eu-north-1.amazonaws.com", "eu-north-1", "AKIADEFAULT", true},
		{"nobody", "HOLDALL_S3_ANONYMOUS=1", Options{}, "https://s3.eu-north-1.amazonaws.com", "eu-north-1", "", false},
		{"options", "AWS_REGION=us-west-2", Options{Region: "cn-north-1", Anonymous: true}, "https://s3.cn-north-1.amazonaws.com.cn", "cn-north-1", "", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			home(t, someConfig, someKeys)
			for kv := range strings.FieldsSeq(c.env) {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			p, creds, err := find("bucket", c.o)
			if err != nil {
				t.Fatal(err)
			}
			v, err := creds.get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p.endpoint.String() != c.endpoint || p.region != c.region || v.id != c.key || p.pathStyle != c.path {
				t.Errorf("found %s, %s, %q, path style %v", p.endpoint, p.region, v.id, p.pathStyle)
			}
			if (v == keys{}) != (c.key == "") {
				t.Error("signs without a key, or does not with one")
			}
		})
	}
}

func TestSettingsThatCannotBeUsedAreToldWithoutSecrets(t *testing.T) {
	for _, c := range []struct{ what, config, keys, env, want string }{
		{"half of the keys", "", "", "AWS_ACCESS_KEY_ID=AKIAENVSECRET", "found one of them"},
		{"profile that is not there", someConfig, someKeys, "AWS_PROFILE=nosuch", `profile "nosuch"`},
		{"region that is none", "", "", "AWS_REGION=evil.host/x", "region"},
		{"endpoint that is none", "", "", "AWS_ENDPOINT_URL=ftp://host", "endpoint"},
		{"endpoint with a password", "", "", "AWS_ENDPOINT_URL=http://me:secret@host", "endpoint"},
		{"switch that is none", "", "", "HOLDALL_S3_ANONYMOUS=perhaps", "expected 1 or 0"},
		{"profile that is broken", "", "[default]\naws_access_key_id=AKIASECRET\nwsecretsecret\n", "", "cannot be used"},
		{"profile with half of the keys", "", "[default]\naws_access_key_id=AKIASECRET\n", "", "cannot be used"},
	} {
		t.Run(c.what, func(t *testing.T) {
			home(t, c.config, c.keys)
			for kv := range strings.FieldsSeq(c.env) {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			srv := s3test.New("bucket")
			o := Options{}
			if !strings.Contains(c.env, "ENDPOINT") {
				o.Endpoint = "http://127.0.0.1:1"
			}
			st, err := New("bucket", "", o)
			if err == nil {
				_, err = storetest.Open(t, st, "x").Info(t.Context())
				if e := storetest.Put(t.Context(), st, "x", nil); e == nil || !strings.Contains(e.Error(), c.want) {
					t.Errorf("write: expected %q, found %v", c.want, e)
				}
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(strings.ToLower(err.Error()), "secretsecret") ||
				strings.Contains(err.Error(), "AKIA") || strings.Contains(err.Error(), "me:") {
				t.Errorf("expected %q, found %v", c.want, err)
			}
			if reqs := srv.Took(); len(reqs) > 0 {
				t.Errorf("asked for %q", reqs)
			}
		})
	}
}

func TestWithoutCredentialsPublicObjectsAreRead(t *testing.T) {
	home(t, "", "")
	s := s3test.New("bucket")
	s.Public = true
	s.Put("bucket", "x", []byte("0123456789"))
	st := serve(t, s, "", Options{})
	p := make([]byte, 3)
	if err := storetest.Open(t, st, "x").ReadAt(t.Context(), p, 4); err != nil || string(p) != "456" {
		t.Errorf("found %q, %v", p, err)
	}
	if err := storetest.Put(t.Context(), st, "x", []byte("other")); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "requested without credentials") {
		t.Errorf("write: found %v", err)
	}
}

func names(t *testing.T, st store.Store, prefix string) (names []string, err error) {
	t.Helper()
	for info, err := range storekit.List(t.Context(), st, prefix) {
		if err != nil {
			return names, err
		}
		names = append(names, info.Name)
	}
	return names, nil
}

func TestListingGoesOnPageAfterPage(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Page = 3
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("k&<%03d+ ü", i))
		s.Put("bucket", "p/"+want[i], []byte("x"))
	}
	s.Put("bucket", "other", nil)
	// What XML cannot say, and what cannot be opened, is listed all the same.
	want = append(want, "z\x01", "z//y", "z/../y")
	for _, name := range want[20:] {
		s.Put("bucket", "p/"+name, nil)
	}
	got, err := names(t, serve(t, s, "p/", Options{}), "")
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("expected %q, found %q, %v", want, got, err)
	}
	reqs := s.Took()
	if len(reqs) != 8 || !strings.Contains(reqs[0], "encoding-type=url") || !strings.Contains(reqs[1], "continuation-token=") {
		t.Errorf("requests: found %q", reqs)
	}
}

func TestListingThatIsCancelledDoesNotLookComplete(t *testing.T) {
	quiet(t)
	s := s3test.New("bucket")
	s.Page = 2
	for i := range 10 {
		s.Put("bucket", fmt.Sprint(i), nil)
	}
	st := serve(t, s, "", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	var last error
	for _, err := range st.List(ctx, "") {
		n++
		cancel()
		last = err
	}
	cancel()
	if !errors.Is(last, context.Canceled) || n > 3 {
		t.Errorf("%d objects, %v", n, last)
	}
}

func TestListingThatIsWrongIsNotBelieved(t *testing.T) {
	testkit.Long(t)
	item := func(key, size string) string {
		return "<Contents><Key>" + key + "</Key><Size>" + size + "</Size></Contents>"
	}
	for what, c := range map[string]struct{ body, want string }{
		"order":      {item("p/b", "1") + item("p/a", "1"), "expected the order"},
		"twice":      {item("p/b", "1") + item("p/b", "1"), "expected the order"},
		"prefix":     {item("q/b", "1"), "does not begin with"},
		"size":       {item("p/b", "-1"), "with size -1"},
		"no token":   {item("p/b", "1") + "<IsTruncated>true</IsTruncated>", "invalid response"},
		"same token": {item("p/b", "1") + "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>", "expected the order"},
		"no XML":     {"<<", ""},
		"too long":   {strings.Repeat(" ", maxDocument), ""},
	} {
		t.Run(what, func(t *testing.T) {
			quiet(t)
			s := s3test.New("bucket")
			s.Hook = func(w http.ResponseWriter, r *http.Request) bool {
				var b bytes.Buffer
				b.WriteString("<ListBucketResult><EncodingType>url</EncodingType>" + c.body + "</ListBucketResult>")
				_, _ = w.Write(b.Bytes()) // the client notices
				return true
			}
			_, err := names(t, serve(t, s, "p/", Options{}), "")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "list s3://bucket/p/") {
				t.Errorf("expected %q, found %v", c.want, err)
			}
		})
	}
}
