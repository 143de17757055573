package bucket

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/web"
)

const (
	// machineWait limits the time of a request for a machine's credentials.
	machineWait = 5 * time.Second

	maxMachine = 64 << 10 // of a response with keys
)

// machine gets keys from the role of a container, a pod or a virtual machine. They expire, and are
// renewed in time.
type machine struct {
	of       string
	endpoint string // "" is the usual one
	ask      func(context.Context) (grant, error)
	client   *http.Client
}

// onEC2 is the role of a virtual machine, which exists without being configured. The settings of
// a profile take precedence.
const onEC2 = "role of this machine"

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
		m.endpoint, m.ask = os.Getenv("AWS_ENDPOINT_URL_STS"), m.byWebIdentity
	case os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "", os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		m.of, m.ask = "role of the container", m.ofContainer
	case strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		return nil, nil
	case os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT") != "", boardSays("sys_vendor", "Amazon EC2"):
		m.of, m.ask = onEC2, m.ofEC2
		m.endpoint = strings.TrimRight(os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "/")
	default:
		return nil, nil
	}
	if u, err := url.Parse(m.endpoint); m.endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil) {
		return nil, fmt.Errorf("%s: endpoint: expected http://host:port or https://host: %w", m.of, fs.ErrInvalid)
	}
	// Requests carry tokens that a server returned, so they are not sent on to where a server
	// redirects.
	m.client = &http.Client{
		Transport:     web.Transport(),
		Timeout:       machineWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return m, nil
}

// renew returns errors without the texts of the server, which may quote what it was sent. A request
// without a response may be retried.
func (m *machine) renew(ctx context.Context) (keys, time.Time, error) {
	got, err := m.ask(ctx)
	k := got.keys()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err == nil && (k.id == "" || k.secret == ""):
		err = fmt.Errorf("%s: response without keys: %w", m.of, fs.ErrPermission)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s: the token file does not exist: %w", m.of, fs.ErrPermission)
	case err != nil:
		err = fmt.Errorf("%s: %w", m.of, err)
	}
	return k, got.Expiration, err
}

// grant is what services say of keys, in JSON and in XML.
type grant struct {
	Code            string
	AccessKeyID     string `xml:"AccessKeyId"`
	SecretAccessKey string
	SessionToken    string
	Token           string
	Expiration      time.Time
}

func (g grant) keys() keys {
	return keys{g.AccessKeyID, g.SecretAccessKey, cmp.Or(g.SessionToken, g.Token)}
}

var errRefused = fmt.Errorf("refused: %w", fs.ErrPermission)

// fetch sends a request for keys and returns the beginning of the response, which is enough for keys.
func fetch(ctx context.Context, client *http.Client, method, address string, header http.Header, form url.Values) (doc []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, errRefused
	}
	for name, values := range header {
		r.Header.Set(name, values[0])
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := client.Do(r)
	if ue, ok := errors.AsType[*url.Error](err); ok && ue.Timeout() {
		return nil, fmt.Errorf("no answer within %v", client.Timeout)
	}
	if err != nil {
		return nil, errors.New("no answer")
	}
	defer resp.Body.Close()
	doc, _ = io.ReadAll(io.LimitReader(resp.Body, maxMachine)) // a part of it is not valid
	if resp.StatusCode != http.StatusOK {
		err = errRefused
	}
	return doc, err
}

// readToken returns the token in a file.
func readToken(file string) (string, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fs.ErrNotExist
	}
	if err != nil {
		return "", errRefused
	}
	defer f.Close()
	token, err := io.ReadAll(io.LimitReader(f, maxMachine))
	if err != nil {
		return "", errRefused
	}
	return strings.TrimSpace(string(token)), nil
}

func (m *machine) fetchJSON(ctx context.Context, address string, header http.Header) (got grant, err error) {
	doc, err := fetch(ctx, m.client, http.MethodGet, address, header, nil)
	if err == nil && json.Unmarshal(doc, &got) != nil {
		err = errRefused
	}
	return got, err
}

func (m *machine) byWebIdentity(ctx context.Context) (grant, error) {
	token, err := readToken(os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE"))
	if err != nil {
		return grant{}, err
	}
	endpoint, region := m.endpoint, os.Getenv("AWS_REGION")
	if endpoint == "" {
		if endpoint = "https://sts.amazonaws.com"; isRegion(region) {
			endpoint = "https://sts." + region + "." + amazonDomain(region)
		}
	}
	doc, err := fetch(ctx, m.client, http.MethodPost, endpoint, nil, url.Values{"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"},
		"RoleArn": {os.Getenv("AWS_ROLE_ARN")}, "WebIdentityToken": {token},
		"RoleSessionName": {cmp.Or(os.Getenv("AWS_ROLE_SESSION_NAME"), strconv.FormatInt(time.Now().UnixNano(), 10))}})
	var said struct {
		Got  grant  `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
		Code string `xml:"Error>Code"`
	}
	if (decode(doc, &said) != nil || said.Code != "") && err == nil {
		err = errRefused
	}
	if errors.Is(err, errRefused) && far.IsWord(said.Code) {
		err = fmt.Errorf("%s: %w", said.Code, fs.ErrPermission)
	}
	return said.Got, err
}

// ofContainer sends no token to another machine unless the environment names a file with tokens, as
// that of a pod does.
func (m *machine) ofContainer(ctx context.Context) (got grant, err error) {
	at, token := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"), os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	file := os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	u, err := url.Parse(at)
	if relative := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); relative != "" {
		at = "http://169.254.170.2" + relative
	} else if err != nil || file == "" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return got, errRefused
	}
	if file != "" {
		if token, err = readToken(file); err != nil {
			return got, err
		}
	}
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", token)
	}
	return m.fetchJSON(ctx, at, header)
}

func (m *machine) ofEC2(ctx context.Context) (grant, error) {
	endpoint := cmp.Or(m.endpoint, "http://169.254.169.254")
	header := http.Header{"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": {"21600"}}
	first, cancel := context.WithTimeout(ctx, time.Second)
	token, err := fetch(first, m.client, http.MethodPut, endpoint+"/latest/api/token", header, nil)
	late := first.Err() != nil && ctx.Err() == nil // in a container, the answer may be too far away; the first version of the service may be nearer
	cancel()
	if err != nil && !late {
		return grant{}, err
	}
	if header = nil; err == nil {
		header = http.Header{"X-Aws-Ec2-Metadata-Token": {string(token)}}
	}
	const roles = "/latest/meta-data/iam/security-credentials/"
	list, err := fetch(ctx, m.client, http.MethodGet, endpoint+roles, header, nil)
	if err != nil {
		return grant{}, err
	}
	role, _, _ := strings.Cut(string(list), "\n") // there is only one
	if role = strings.TrimSpace(role); role == "" {
		return grant{}, errRefused
	}
	got, err := m.fetchJSON(ctx, endpoint+roles+url.PathEscape(role), header)
	if err == nil && got.Code != "Success" {
		err = errRefused
	}
	return got, err
}
