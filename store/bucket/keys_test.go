package bucket

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdall/holdall/internal/testkit"
)

// profile makes a profile of these settings and returns its keys.
func profile(t *testing.T, config, credentials string) (keys, time.Time, error) {
	t.Helper()
	home(t, config, credentials)
	return profileKeys(t.Context())
}

func TestKeysOfAProfile(t *testing.T) {
	for _, c := range []struct {
		what, config, credentials string
		want                      keys
	}{
		{"keys with a token", "", "[default]\naws_access_key_id=A\naws_secret_access_key=S\naws_session_token=T\n", keys{"A", "S", "T"}},
		{"quotes and comments", "", "# one\n[default] ; two\n; three\naws_access_key_id = \"A\" # four\naws_secret_access_key='S'\t;five\n", keys{"A", "S", ""}},
		{"colons", "", "[default]\naws_access_key_id: A\naws_secret_access_key: S=x\n", keys{"A", "S=x", ""}},
		{"the file of credentials first", "[default]\naws_access_key_id=B\naws_secret_access_key=C\naws_session_token=D\n",
			"[default]\naws_access_key_id=A\naws_secret_access_key=S\n", keys{"A", "S", ""}},
		{"no keys of two files", "[default]\naws_access_key_id=B\naws_secret_access_key=C\n", "[default]\naws_access_key_id=A\n", keys{"B", "C", ""}},
		{"another section", "", "[other]\naws_access_key_id=A\naws_secret_access_key=S\n[default]\nregion=x\n", keys{}},
		{"a line that is broken in another section", "", "[default]\naws_access_key_id=A\naws_secret_access_key=S\n[other]\nwhat\n", keys{"A", "S", ""}},
	} {
		t.Run(c.what, func(t *testing.T) {
			got, end, err := profile(t, c.config, c.credentials)
			if err != nil || got != c.want || end.IsZero() || time.Until(end) > rereadAfter {
				t.Errorf("found %v until %v, %v", got, end, err)
			}
		})
	}
}

func TestKeysThatAnotherProgramReplacesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home(t, "", someKeys)
		l := newLease(profileKeys)
		if k, err := l.get(t.Context()); k.id != "AKIADEFAULT" || err != nil {
			t.Errorf("found %q, %v", k.id, err)
		}
		if err := os.WriteFile(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), []byte(strings.ReplaceAll(someKeys, "AKIADEFAULT", "AKIANEW")), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rereadAfter)
		if k, err := l.get(t.Context()); k.id != "AKIANEW" || err != nil {
			t.Errorf("found %q, %v", k.id, err)
		}
	})
}

func TestKeysOfAProgram(t *testing.T) {
	cat := testkit.Program(t, "cat")
	for _, c := range []struct{ what, said, want string }{
		{"keys", `{"Version":1,"AccessKeyId":"A","SecretAccessKey":"S","SessionToken":"T"}`, ""},
		{"no keys", `{"Version":1}`, "response without keys"},
		{"no JSON", "hush", "credential_process failed"},
		{"too much", `{"AccessKeyId":"A","SecretAccessKey":"` + strings.Repeat("hush", maxMachine) + `"}`, "credential_process failed"},
	} {
		t.Run(c.what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "said")
			if err := os.WriteFile(file, []byte(c.said), 0o600); err != nil {
				t.Fatal(err)
			}
			got, end, err := profile(t, "[default]\ncredential_process = "+cat+" "+file+"\n", "")
			if c.want == "" && (err != nil || got != keys{"A", "S", "T"} || !end.IsZero()) || c.want != "" && !refusedPrivately(err, c.want) {
				t.Errorf("found %v until %v, %v", got, end, err)
			}
		})
	}
	if _, _, err := profile(t, "[default]\ncredential_process = /nonexistent/hush x\n", ""); !refusedPrivately(err, "does not start") {
		t.Error(err)
	}
}

// refusedPrivately reports whether err says why keys cannot be used, and no secret.
func refusedPrivately(err error, want string) bool {
	return errors.Is(err, fs.ErrPermission) && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "hush")
}

const ssoConfig = "[default]\nsso_session = my\nsso_account_id = 12\nsso_role_name = reader\n[sso-session my]\nsso_region = eu-west-1\nsso_start_url = https://my.test/start\n"

func TestLoginThatCannotBeUsedIsToldWithoutSecrets(t *testing.T) {
	for _, c := range []struct{ what, config, stored, want string }{
		{"no login", ssoConfig, "", "aws sso login"},
		{"no JSON", ssoConfig, "hush", "aws sso login"},
		{"ended", ssoConfig, `{"accessToken":"hush","expiresAt":"2020-01-01T00:00:00Z"}`, "aws sso login"},
		{"no region", strings.Replace(ssoConfig, "sso_region = eu-west-1\n", "", 1), `{"accessToken":"hush","expiresAt":"2120-01-01T00:00:00Z"}`, "expected sso_region"},
		{"a host instead of a region", strings.Replace(ssoConfig, "eu-west-1", "evil.test/", 1), `{"accessToken":"hush","expiresAt":"2120-01-01T00:00:00Z"}`, "expected sso_region"},
		{"two regions", strings.Replace(ssoConfig, "sso_account_id", "sso_region = eu-west-2\nsso_account_id", 1), "", "sso_region of the profile"},
		{"no account", strings.Replace(ssoConfig, "sso_account_id", "x", 1), "", "expected sso_account_id"},
		{"no role", strings.Replace(ssoConfig, "sso_role_name", "x", 1), "", "without sso_role_name"},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("HOME", dir)
			t.Setenv("USERPROFILE", dir)
			if c.stored != "" {
				file := filepath.Join(dir, ".aws", "sso", "cache", fmt.Sprintf("%x.json", sha1.Sum([]byte("my"))))
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(c.stored), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if k, _, err := profile(t, c.config, ""); !refusedPrivately(err, c.want) || k != (keys{}) {
				t.Errorf("expected %q, found %v, %v", c.want, k, err)
			}
		})
	}
}

func TestPortalGivesTheKeysOfARole(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/federation/credentials" || r.URL.Query().Get("account_id") != "12" || r.URL.Query().Get("role_name") != "reader" || r.Header.Get("X-Amz-Sso_bearer_token") != "login-hush" {
			http.Error(w, "hush", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"roleCredentials":{"accessKeyId":"A","secretAccessKey":"S","sessionToken":"T","expiration":%d}}`, end.UnixMilli())
	}))
	defer srv.Close()
	p := map[string]string{"sso_account_id": "12", "sso_role_name": "reader"}
	if k, until, err := portalKeys(t.Context(), srv.URL, p, "login-hush"); err != nil || k != (keys{"A", "S", "T"}) || !until.Equal(end) {
		t.Errorf("found %v until %v, %v", k, until, err)
	}
	if k, _, err := portalKeys(t.Context(), srv.URL, p, "other-hush"); k != (keys{}) || err != errLogin {
		t.Errorf("found %v, %v", k, err)
	}
}

func TestKeysAreRenewedOnceAndBeforeTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := newLease(func(ctx context.Context) (int, time.Time, error) {
			asked++
			time.Sleep(time.Second)
			return asked, time.Now().Add(time.Hour), ctx.Err()
		})
		for range 10 {
			go l.get(t.Context())
		}
		synctest.Wait() // one renews, and the others wait
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited: %v", err)
		}
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{10 * time.Second, 1}, {55 * time.Minute, 1}, {time.Minute, 2}, {time.Hour, 3}} {
			time.Sleep(c.after)
			if got, err := l.get(t.Context()); got != c.want || err != nil {
				t.Errorf("after %v: expected %d, found %d, %v", c.after, c.want, got, err)
			}
		}
		l.drop(func(v int) bool { return v != 3 })
		if got, err := l.get(t.Context()); got != 3 || err != nil {
			t.Errorf("found %d, %v", got, err)
		}
		l.drop(func(v int) bool { return v == 3 })
		if got, err := l.get(t.Context()); got != 4 || err != nil {
			t.Errorf("found %d, %v", got, err)
		}
	})
}

// FuzzProfile reads any files of settings. The words of one are not those of an error.
func FuzzProfile(f *testing.F) {
	f.Add(someConfig, someKeys)
	f.Add(ssoConfig, "[default]\nhush\n")
	f.Add("[default]\naws_access_key_id=\"\n", "[default\n=\n:\n[]")
	f.Fuzz(func(t *testing.T, config, credentials string) {
		if strings.Contains(config+credentials, "credential_process") {
			return // it would run a program
		}
		k, _, err := profile(t, config, credentials)
		if err != nil && k != (keys{}) || err == nil && (k.id == "") != (k.secret == "") {
			t.Errorf("found %v, %v", k, err)
		}
	})
}
