package bucket

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/web"
)

const (
	// machineWait limits the time of a request for a machine's credentials.
	machineWait = 5 * time.Second

	maxMachine = 64 << 10 // of a response with credentials
)

// machine gets credentials from the role of a container, a pod or a virtual machine. They expire,
// and are renewed in time.
type machine struct {
	credentials.IAM
	of string
}

// onEC2 is the role of a virtual machine, which exists without being configured. The settings of
// a profile take precedence.
const onEC2 = "role of this machine"

// profileHasKeys reports whether a profile says where credentials come from.
func profileHasKeys(profile map[string]string) bool {
	return slices.ContainsFunc(credentialWords, func(k string) bool { return profile[k] != "" })
}

// findMachine returns the credentials for which this machine is configured or, on a machine of
// Amazon's, those of its role. It returns nil if there are none. It sends no request to find out
// whether the machine is Amazon's, because elsewhere that would take until a timeout.
func findMachine() (*machine, error) {
	m := &machine{}
	switch {
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		if os.Getenv("AWS_ROLE_ARN") == "" {
			return nil, errors.New("AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not")
		}
		m.of = "role by web identity (AWS_WEB_IDENTITY_TOKEN_FILE)"
		m.Endpoint = os.Getenv("AWS_ENDPOINT_URL_STS")
	case os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "", os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		m.of = "role of the container"
	case strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		return nil, nil
	case os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT") != "", boardSays("sys_vendor", "Amazon EC2"):
		m.of = onEC2
		m.Endpoint = strings.TrimRight(os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "/")
	default:
		return nil, nil
	}
	if u, err := url.Parse(m.Endpoint); m.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return nil, fmt.Errorf("%s: endpoint: expected http://host:port or https://host: %w", m.of, fs.ErrInvalid)
	}
	// Requests carry tokens that a server returned, so they are not sent on to where a server
	// redirects.
	m.Client = &http.Client{
		Transport:     short{web.Transport()},
		Timeout:       machineWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return m, nil
}

func (m *machine) Retrieve() (credentials.Value, error) { return m.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext returns errors without the texts of the server and the client, because
// the client's text quotes the response. A request without a response may be retried.
func (m *machine) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := m.IAM.RetrieveWithCredContext(cc)
	if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
		return v, nil
	}
	if err == nil {
		return v, fmt.Errorf("%s: response without keys: %w", m.of, fs.ErrPermission)
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		what := "no answer"
		if ue.Timeout() {
			what = fmt.Sprintf("no answer within %v", machineWait)
		}
		return v, fmt.Errorf("%s: %s", m.of, what)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return v, fmt.Errorf("%s: the token file does not exist: %w", m.of, fs.ErrPermission)
	}
	what := "refused"
	if said, ok := errors.AsType[credentials.ErrorResponse](err); ok && far.IsWord(said.STSError.Code) {
		what = said.STSError.Code
	}
	return v, fmt.Errorf("%s: %s: %w", m.of, what, fs.ErrPermission)
}

// short limits the length of responses to that of credentials.
type short struct{ next http.RoundTripper }

func (s short) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxMachine), resp.Body}
	}
	return resp, err
}

// unsupportedProfile returns the name of a setting in a profile that is not supported, or "" if
// there is none. Such a profile would otherwise be taken for one without credentials.
func unsupportedProfile(profile map[string]string) string {
	words := []string{"role_arn", "source_profile", "credential_source", "web_identity_token_file"}
	if i := slices.IndexFunc(words, func(k string) bool { return profile[k] != "" }); i >= 0 {
		return words[i]
	}
	return ""
}
