package bucket

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/store/internal/far"
)

// place is where the requests for a bucket are sent.
type place struct {
	endpoint  *url.URL // scheme and host only
	region    string
	amazon    bool // the endpoint is Amazon's own, one for each region
	pathStyle bool
	google    *google // nil for S3
}

const (
	defaultRegion = "us-east-1"

	// serverForm describes the address of a server.
	serverForm = "http://host:port or https://host and nothing else"
)

// amazonHost returns the host name of the servers of a region. China's have a domain of their
// own.
func amazonHost(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "s3." + region + ".amazonaws.com.cn"
	}
	return "s3." + region + ".amazonaws.com"
}

func (p place) base(bucket string) *url.URL {
	u := *p.endpoint
	if p.pathStyle {
		u.Path = "/" + bucket + "/"
	} else {
		u.Host, u.Path = bucket+"."+u.Host, "/"
	}
	return &u
}

func find(bucket string, o Options) (place, *credentials.Credentials, error) {
	if o.Google {
		return findGoogle(o)
	}
	profile, err := readProfile()
	if err != nil {
		return place{}, nil, err
	}
	p := place{region: cmp.Or(o.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), profile["region"], defaultRegion)}
	if !isRegion(p.region) {
		return place{}, nil, fmt.Errorf("region %.50q: expected small letters, digits and hyphens: %w", p.region, fs.ErrInvalid)
	}
	endpoint := cmp.Or(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), profile["endpoint_url"])
	if endpoint == "" {
		p.amazon = true
		endpoint = "https://" + amazonHost(p.region)
	}
	u, err := far.ParseEndpoint(endpoint, serverForm, false)
	if err != nil {
		return place{}, nil, err
	}
	p.endpoint = u

	// The name of a bucket cannot precede a numeric address, and a name with a dot does not match
	// a certificate for *.host. Servers other than Amazon's seldom have a host name for each
	// bucket.
	p.pathStyle = o.PathStyle || !p.amazon || strings.ContainsAny(bucket, "._") || far.IsLocal(u.Hostname())
	if os.Getenv("HOLDALL_S3_PATH_STYLE") != "" && !o.PathStyle {
		if p.pathStyle, err = far.Switch(false, "HOLDALL_S3_PATH_STYLE"); err != nil {
			return place{}, nil, err
		}
		p.pathStyle = p.pathStyle || far.IsLocal(u.Hostname())
	}
	keys, err := provider(o, profile)
	if err != nil {
		return place{}, nil, err
	}
	return p, credentials.New(keys), nil
}

// isRegion reports whether s is valid in a host name and in a signature.
func isRegion(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	})
}

// provider returns the provider of the credentials to use. It is anonymous if that is requested
// or if nothing is configured. If something is configured but cannot be used, provider returns an
// error, because anonymous requests would only be denied.
func provider(o Options, profile map[string]string) (credentials.Provider, error) {
	anonymous, err := far.Switch(o.Anonymous, "HOLDALL_S3_ANONYMOUS")
	if err != nil {
		return nil, err
	}
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	switch {
	case anonymous:
		return &credentials.Static{Value: credentials.Value{SignerType: credentials.SignatureAnonymous}}, nil
	case id != "" && secret != "":
		return &credentials.EnvAWS{}, nil
	case id != "" || secret != "":
		return nil, errors.New("expected both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, found one of them")
	}
	chosen := os.Getenv("AWS_PROFILE") != ""
	if !chosen {
		// The role of a pod takes precedence over files in its image.
		if m, err := findMachine(); err != nil || m != nil && (m.of != onEC2 || !profileHasKeys(profile)) {
			return m, err
		}
	}
	if profile != nil {
		if k := unsupportedProfile(profile); k != "" && profile["aws_access_key_id"] == "" {
			return nil, fmt.Errorf("profile with %s: roles are not supported; use keys, credential_process or SSO: %w", k, errors.ErrUnsupported)
		}
		return profileKeys{&credentials.FileAWSCredentials{}}, nil
	}
	return &credentials.Static{Value: credentials.Value{SignerType: credentials.SignatureAnonymous}}, nil
}

// profileKeys gets the keys of the user's profile. A profile may have only a region.
type profileKeys struct {
	*credentials.FileAWSCredentials
}

func (k profileKeys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

func (k profileKeys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if cc == nil {
		cc = &credentials.CredContext{Client: http.DefaultClient}
	}
	v, err := k.FileAWSCredentials.RetrieveWithCredContext(cc)
	if err != nil {
		// A parser's error quotes the line that it could not parse.
		return v, errProfile
	}
	if v.AccessKeyID == "" {
		v.SignerType = credentials.SignatureAnonymous
	}
	return v, nil
}

var errProfile = fmt.Errorf("the credentials of the profile cannot be used (reason hidden, since it may quote a secret): %w", fs.ErrPermission)

const (
	// Files with settings are small; a larger file is not one.
	maxProfile = 1 << 20
	maxLine    = 64 << 10
)

// readProfile returns the settings of the chosen profile that say where buckets are. It returns
// nil if there is no such profile and none was chosen.
func readProfile() (map[string]string, error) {
	name, chosen := os.Getenv("AWS_PROFILE"), true
	if name == "" {
		name, chosen = "default", false
	}
	var found map[string]string
	for _, f := range []struct{ env, name, section string }{
		{"AWS_CONFIG_FILE", "config", "profile " + name},
		{"AWS_SHARED_CREDENTIALS_FILE", "credentials", name},
	} {
		file := os.Getenv(f.env)
		if file == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				continue
			}
			file = filepath.Join(home, ".aws", f.name)
		}
		section, err := readSection(file, f.section, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if section != nil && found == nil {
			found = map[string]string{}
		}
		maps.Copy(found, section)
	}
	if found == nil && chosen {
		return nil, fmt.Errorf("profile %q (AWS_PROFILE): %w", name, fs.ErrNotExist)
	}
	return found, nil
}

// credentialWords are the settings that say where a profile's credentials come from.
var credentialWords = []string{"aws_access_key_id", "credential_process", "sso_session", "sso_start_url", "sso_role_name",
	"role_arn", "source_profile", "credential_source", "web_identity_token_file"}

// readSection returns region and endpoint_url of a section of a file, and which of the settings
// for credentials it has. It returns nil if there is no such section. The default profile has the
// same name in both files.
func readSection(file, section, name string) (map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found map[string]string
	inside := false
	lines := bufio.NewScanner(io.LimitReader(f, maxProfile))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if title, ok := strings.CutPrefix(line, "["); ok {
			title, _, _ = strings.Cut(title, "]")
			title = strings.Join(strings.Fields(title), " ")
			inside = title == section || name == "default" && title == name
			if inside && found == nil {
				found = map[string]string{}
			}
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		switch key = strings.TrimSpace(key); {
		case inside && (key == "region" || key == "endpoint_url"):
			found[key] = strings.TrimSpace(value)
		case inside && slices.Contains(credentialWords, key):
			found[key] = "set" // the secret itself is not kept
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}
