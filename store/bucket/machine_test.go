package bucket

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdall/holdall/store/storetest"
	"github.com/holdall/holdall/store/storetest/s3test"
)

const sessionToken = "session-token"

// A keeper gives the credentials of a role as Amazon's services do.
type keeper struct {
	life time.Duration
	mu   sync.Mutex
	took []string
}

func (k *keeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.took = append(k.took, r.Method+" "+r.URL.Path)
	end := time.Now().Add(k.life).UTC().Format(time.RFC3339)
	keys := fmt.Sprintf(`{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":%q,"Token":%q,"Expiration":%q}`,
		s3test.AccessKey, s3test.Secret, sessionToken, end)
	switch {
	case r.URL.Path == "/latest/api/token" && r.Method == http.MethodPut && r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "":
		fmt.Fprint(w, "imds-token")
	case strings.HasPrefix(r.URL.Path, "/latest/") && r.Header.Get("X-Aws-Ec2-Metadata-Token") != "imds-token":
		w.WriteHeader(http.StatusUnauthorized) // the first version of the service is not answered
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/":
		fmt.Fprint(w, "some-role")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/some-role":
		fmt.Fprint(w, keys)
	case r.URL.Path == "/container" && r.Header.Get("Authorization") == "container-hush":
		fmt.Fprint(w, keys)
	case r.URL.Path == "/" && r.PostFormValue("Action") == "AssumeRoleWithWebIdentity" && r.PostFormValue("WebIdentityToken") == "identity-hush" &&
		r.PostFormValue("RoleArn") == "arn:aws:iam::1:role/x":
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
			`<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, s3test.AccessKey, s3test.Secret, sessionToken, end)
	case r.URL.Path == "/":
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Code>AccessDenied</Code><Message>not with %s</Message></Error></ErrorResponse>`, r.PostFormValue("WebIdentityToken"))
	case r.URL.Path == "/silly":
		fmt.Fprint(w, `{"Code":"Success"}`)
	case r.URL.Path == "/long":
		fmt.Fprint(w, strings.Repeat(" ", 2*maxMachine)+keys)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// roles is an environment without keys, and a service that knows a role.
func roles(t *testing.T, config string, env ...string) *keeper {
	t.Helper()
	home(t, config, "")
	for _, k := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_ENDPOINT_URL_STS",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT"} {
		t.Setenv(k, "")
	}
	k := &keeper{life: time.Hour}
	srv := httptest.NewServer(k)
	t.Cleanup(srv.Close)
	identity := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(identity, []byte("identity-hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, strings.NewReplacer("URL", srv.URL, "FILE", identity).Replace(value))
	}
	return k
}

var (
	byWebIdentity = []string{"AWS_WEB_IDENTITY_TOKEN_FILE=FILE", "AWS_ROLE_ARN=arn:aws:iam::1:role/x", "AWS_ENDPOINT_URL_STS=URL"}
	byContainer   = []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=URL/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN=container-hush"}
	byMachine     = []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=URL"}
)

func TestRoleOfAMachineIsTaken(t *testing.T) {
	for _, c := range []struct {
		what string
		env  []string
		asks int
	}{{"web identity", byWebIdentity, 1}, {"container", byContainer, 1}, {"virtual machine", byMachine, 3}} {
		t.Run(c.what, func(t *testing.T) {
			k := roles(t, "", c.env...)
			s := s3test.New("bucket")
			s.Token = sessionToken
			st := serve(t, s, "", Options{})
			if err := storetest.Put(t.Context(), st, "x", []byte("0123456789")); err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 3)
			if err := storetest.Open(t, st, "x").ReadAt(t.Context(), p, 4); err != nil || string(p) != "456" {
				t.Errorf("found %q, %v", p, err)
			}
			if len(k.took) != c.asks {
				t.Errorf("asked for %q", k.took)
			}
		})
	}
}

func TestRoleThatEndsIsAskedForAgain(t *testing.T) {
	k := roles(t, "", byContainer...)
	k.life = -time.Minute
	s := s3test.New("bucket")
	s.Token = sessionToken
	st := serve(t, s, "", Options{})
	for range 2 {
		if err := storetest.Put(t.Context(), st, "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(k.took) < 2 {
		t.Errorf("asked for %q", k.took)
	}
}

func TestWhatIsSetComesBeforeTheRoleOfAMachine(t *testing.T) {
	for _, c := range []struct {
		what, config string
		env          []string
		key          string
		asks         int
	}{
		{"keys", "", append([]string{"AWS_ACCESS_KEY_ID=AKIAENV", "AWS_SECRET_ACCESS_KEY=x"}, byContainer...), "AKIAENV", 0},
		{"chosen profile", someKeys, append([]string{"AWS_PROFILE=default"}, byContainer...), "AKIADEFAULT", 0},
		{"default profile before a machine's", someKeys, byMachine, "AKIADEFAULT", 0},
		{"a container's before the default profile", someKeys, byContainer, s3test.AccessKey, 1},
		{"a machine's before a profile with a region only", "[default]\nregion=eu-north-1\n", byMachine, s3test.AccessKey, 3},
		{"nobody", "", append([]string{"HOLDALL_S3_ANONYMOUS=1"}, byMachine...), "", 0},
		{"a machine's is not wanted", "", append([]string{"AWS_EC2_METADATA_DISABLED=true"}, byMachine...), "", 0},
		{"nothing", "", []string{"AWS_EC2_METADATA_DISABLED=true"}, "", 0}, // the tests may run on such a machine
	} {
		t.Run(c.what, func(t *testing.T) {
			k := roles(t, c.config, c.env...)
			_, creds, err := find("bucket", Options{})
			if err != nil {
				t.Fatal(err)
			}
			v, err := creds.get(t.Context())
			if err != nil || v.id != c.key || len(k.took) != c.asks {
				t.Errorf("found %q, %v; asked for %q", v.id, err, k.took)
			}
		})
	}
}

func TestRoleThatCannotBeHadIsToldWithoutSecrets(t *testing.T) {
	for _, c := range []struct {
		what, config string
		env          []string
		want         string
		is           error
	}{
		{"refused", "", append(byWebIdentity[:2:2], "AWS_ENDPOINT_URL_STS=URL", "AWS_ROLE_ARN=arn:hush"), "web identity (AWS_WEB_IDENTITY_TOKEN_FILE): AccessDenied", fs.ErrPermission},
		{"no file", "", []string{"AWS_WEB_IDENTITY_TOKEN_FILE=/nonexistent", "AWS_ROLE_ARN=x", "AWS_ENDPOINT_URL_STS=URL"}, "file does not exist", fs.ErrPermission},
		{"no role", "", byWebIdentity[:1], "AWS_ROLE_ARN is not", nil},
		{"another token", "", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=URL/container"}, "role of the container: refused", fs.ErrPermission},
		{"no keys", "", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=URL/silly"}, "response without keys", fs.ErrPermission},
		{"endless", "", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=URL/long"}, "role of the container: refused", fs.ErrPermission},
		{"another host", "", []string{"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://192.0.2.1/hush"}, "role of the container: refused", fs.ErrPermission},
		{"nobody there", "", []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1"}, "role of this machine: no answer", nil},
		{"endpoint that is none", "", []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://me:hush@x"}, "endpoint: expected", fs.ErrInvalid},
		{"role of a profile", "[default]\nrole_arn=arn:hush\nsource_profile=x\n", nil, "profile with role_arn", errors.ErrUnsupported},
	} {
		t.Run(c.what, func(t *testing.T) {
			roles(t, c.config, c.env...)
			st, err := New("bucket", "", Options{Endpoint: "http://127.0.0.1:1", Tries: 1})
			if err == nil {
				_, err = storetest.Open(t, st, "x").Info(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) || strings.Contains(err.Error(), "hush") {
				t.Errorf("expected %q, found %v", c.want, err)
			}
		})
	}
}
