package azure

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/holdall/holdall/store/internal/far"
)

// credentials are an account's key, or a token with permissions. If both are empty, requests are
// anonymous.
type credentials struct {
	account string
	key     []byte
	sas     string // a query
}

func (c credentials) anonymous() bool { return c.key == nil && c.sas == "" }

type settings struct {
	account, key, sas, endpoint string
	from                        string // the variable that they come from
}

func find(account string, o Options) (*url.URL, credentials, error) {
	anonymous, err := far.Switch(o.Anonymous, "HOLDALL_AZURE_ANONYMOUS")
	if err != nil {
		return nil, credentials{}, err
	}
	s, err := environment()
	if err != nil {
		return nil, credentials{}, err
	}
	other := s.account != "" && s.account != account
	if other {
		s.endpoint = "" // it is that of the other account
	}
	endpoint, err := far.ParseEndpoint(cmp.Or(o.Endpoint, s.endpoint, "https://"+account+".blob.core.windows.net"),
		"http://host:port/account or https://account.host", true)
	if err != nil {
		return nil, credentials{}, err
	}
	c := credentials{account: account}
	if anonymous || s.key == "" && s.sas == "" {
		return endpoint, c, nil
	}
	if other {
		return nil, c, fmt.Errorf("%s has credentials for account %q; ?anonymous reads public data: %w", s.from, s.account, fs.ErrPermission)
	}
	if s.key != "" {
		c.key, err = base64.StdEncoding.DecodeString(s.key)
		if err != nil || len(c.key) == 0 {
			return nil, c, fmt.Errorf("%s: the account's key is not in base64: %w", s.from, fs.ErrPermission)
		}
		return endpoint, c, nil
	}
	q, err := url.ParseQuery(strings.TrimPrefix(s.sas, "?"))
	switch {
	case err != nil || q.Get("sig") == "":
		return nil, c, fmt.Errorf("%s: the token (SAS) is malformed: expected a query with sig=: %w", s.from, fs.ErrPermission)
	case endpoint.Scheme != "https" && !far.IsLocal(endpoint.Hostname()):
		return nil, c, fmt.Errorf("endpoint http://%s: expected https, since a token is sent there: %w", endpoint.Host, fs.ErrInvalid)
	}
	c.sas = strings.TrimPrefix(s.sas, "?")
	return endpoint, c, nil
}

func environment() (settings, error) {
	s := settings{account: os.Getenv("AZURE_STORAGE_ACCOUNT"), endpoint: os.Getenv("AZURE_STORAGE_SERVICE_ENDPOINT")}
	text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING")
	key, sas := os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	switch {
	case text != "":
		return parseConnection(text)
	case os.Getenv("AZURE_STORAGE_AUTH_MODE") == "login":
		return s, fmt.Errorf("AZURE_STORAGE_AUTH_MODE=login: Entra ID logins are not supported; use a key or a token (SAS): %w", errors.ErrUnsupported)
	case key != "" && s.account == "":
		return s, errors.New("AZURE_STORAGE_KEY is set and AZURE_STORAGE_ACCOUNT is not")
	case key != "":
		s.key, s.from = key, "AZURE_STORAGE_KEY"
	case sas != "":
		s.sas, s.from = sas, "AZURE_STORAGE_SAS_TOKEN"
	}
	return s, nil
}

// parseConnection parses a connection string. Errors contain only the names of its parts.
func parseConnection(text string) (settings, error) {
	const from = "AZURE_STORAGE_CONNECTION_STRING"
	parts := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		k, v, ok := strings.Cut(part, "=")
		if strings.TrimSpace(part) != "" && !ok {
			return settings{}, fmt.Errorf("%s: expected name=value;…: %w", from, fs.ErrInvalid)
		}
		parts[strings.ToLower(strings.TrimSpace(k))] = strings.TrimSpace(v)
	}
	s := settings{account: parts["accountname"], key: parts["accountkey"], sas: parts["sharedaccesssignature"], endpoint: parts["blobendpoint"], from: from}
	switch {
	case parts["usedevelopmentstorage"] != "":
		return s, fmt.Errorf("%s: UseDevelopmentStorage is not supported: set AccountName, AccountKey and BlobEndpoint: %w", from, errors.ErrUnsupported)
	case s.key != "" && s.account == "":
		return s, fmt.Errorf("%s: AccountKey without AccountName: %w", from, fs.ErrInvalid)
	case s.endpoint == "" && s.account != "":
		s.endpoint = cmp.Or(parts["defaultendpointsprotocol"], "https") + "://" + s.account + ".blob." + cmp.Or(parts["endpointsuffix"], "core.windows.net")
	}
	return s, nil
}
