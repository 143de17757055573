package bucket

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"

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

// amazonDomain returns the domain of the servers of a region. Some groups of regions have one of
// their own.
func amazonDomain(region string) string {
	for begin, domain := range map[string]string{"cn-": "amazonaws.com.cn", "us-iso-": "c2s.ic.gov", "us-isob-": "sc2s.sgov.gov",
		"eu-isoe-": "cloud.adc-e.uk", "us-isof-": "csp.hci.ic.gov", "eusc-": "amazonaws.eu"} {
		if strings.HasPrefix(region, begin) {
			return domain
		}
	}
	return "amazonaws.com"
}

// amazonHost returns the host name of the servers of a region.
func amazonHost(region string) string { return "s3." + region + "." + amazonDomain(region) }

func (p place) base(bucket string) *url.URL {
	u := *p.endpoint
	if p.pathStyle {
		u.Path = "/" + bucket + "/"
	} else {
		u.Host, u.Path = bucket+"."+u.Host, "/"
	}
	return &u
}

func find(bucket string, o Options) (place, *lease[keys], error) {
	if o.Google {
		p, err := findGoogle(o)
		return p, nil, err
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
	creds, err := findKeys(o, profile)
	return p, creds, err
}

// isRegion reports whether s is valid in a host name and in a signature.
func isRegion(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	})
}

const (
	// Files with settings are small; a larger file is not one.
	maxProfile = 1 << 20
	maxLine    = 64 << 10
)

// settingsFile returns the path of one of the two files with the user's profiles, or "" if there is
// none.
func settingsFile(env, name string) string {
	if file := os.Getenv(env); file != "" {
		return file
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".aws", name)
}

// readProfile returns the settings of the chosen profile. It returns nil if there is no such profile
// and none was chosen.
func readProfile() (map[string]string, error) {
	name, chosen := os.Getenv("AWS_PROFILE"), true
	if name == "" {
		name, chosen = "default", false
	}
	found, err := readSection(settingsFile("AWS_CONFIG_FILE", "config"), "profile "+name, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	section, err := readSection(settingsFile("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	switch {
	case found == nil && section == nil && chosen:
		return nil, fmt.Errorf("profile %q (AWS_PROFILE): %w", name, fs.ErrNotExist)
	case found == nil:
		return section, nil
	case section["aws_access_key_id"] == "" || section["aws_secret_access_key"] == "": // keys are not taken from both
		for _, k := range []string{"aws_access_key_id", "aws_secret_access_key", "aws_session_token"} {
			delete(section, k)
		}
	default:
		delete(found, "aws_session_token")
	}
	maps.Copy(found, section)
	return found, nil
}

// unread is the setting that stands for lines that cannot be read.
const unread = ""

// readSection returns the settings of a section of a file. It returns nil if there is no such
// section. The default profile has the same name in both files.
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
		if !inside || line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		i := strings.IndexAny(line, "=:")
		if i < 0 {
			found[unread] = "set"
			continue
		}
		value := line[i+1:]
		for _, comment := range []string{" #", " ;", "\t#", "\t;"} {
			value, _, _ = strings.Cut(value, comment)
		}
		value = strings.TrimSpace(value)
		if n := len(value); n > 1 && value[0] == value[n-1] && (value[0] == '"' || value[0] == '\'') {
			value = value[1 : n-1]
		}
		found[strings.TrimSpace(line[:i])] = value
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}
