package bucket

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/web"
)

// keys are what requests are signed with. Without keys, they are not signed.
type keys struct{ id, secret, token string }

// rereadAfter is how long the keys in a file are used, because other programs replace them there.
const rereadAfter = time.Minute

// findKeys returns where the keys come from. There are none if anonymous access is requested or if
// nothing is configured. If something is configured but cannot be used, findKeys returns an error,
// because anonymous requests would only be denied.
func findKeys(o Options, profile map[string]string) (*lease[keys], error) {
	anonymous, err := far.Switch(o.Anonymous, "HOLDALL_S3_ANONYMOUS")
	if err != nil {
		return nil, err
	}
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	switch {
	case anonymous:
		return fixed(keys{}), nil
	case id != "" && secret != "":
		return fixed(keys{id, secret, os.Getenv("AWS_SESSION_TOKEN")}), nil
	case id != "" || secret != "":
		return nil, errors.New("expected both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, found one of them")
	}
	if os.Getenv("AWS_PROFILE") == "" {
		// The role of a pod takes precedence over files in its image.
		m, err := findMachine()
		if err != nil {
			return nil, err
		}
		if m != nil && (m.of != onEC2 || !profileHasKeys(profile)) {
			return newLease(m.renew), nil
		}
	}
	if profile == nil {
		return fixed(keys{}), nil
	}
	if k := unsupportedProfile(profile); k != "" && profile["aws_access_key_id"] == "" {
		return nil, fmt.Errorf("profile with %s: roles are not supported; use keys, credential_process or SSO: %w", k, errors.ErrUnsupported)
	}
	return newLease(profileKeys), nil
}

// credentialWords are the settings that say where a profile's credentials come from.
var credentialWords = []string{"aws_access_key_id", "credential_process", "sso_session", "sso_start_url", "sso_role_name",
	"role_arn", "source_profile", "credential_source", "web_identity_token_file"}

// profileHasKeys reports whether a profile says where credentials come from.
func profileHasKeys(profile map[string]string) bool {
	return slices.ContainsFunc(credentialWords, func(k string) bool { return profile[k] != "" })
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

// profileKeys gets the keys of the user's profile. A profile may have only a region.
func profileKeys(ctx context.Context) (k keys, end time.Time, err error) {
	p, err := readProfile()
	if err != nil {
		return k, end, err
	}
	k = keys{p["aws_access_key_id"], p["aws_secret_access_key"], p["aws_session_token"]}
	process := strings.Fields(p["credential_process"])
	switch sso := p["sso_role_name"]; {
	case p[unread] != "":
		err = errors.New("a line without =")
	case k.id != "" && k.secret != "":
		return k, time.Now().Add(rereadAfter), nil
	case k.id != "" || k.secret != "":
		err = errors.New("one key without the other")
	case sso != "":
		k, end, err = ssoKeys(ctx, p)
	case p["sso_session"] != "" || p["sso_start_url"] != "" || p["sso_account_id"] != "" || p["sso_region"] != "":
		err = errors.New("SSO without sso_role_name")
	case len(process) > 0:
		k, end, err = processKeys(ctx, process)
	default:
		return keys{}, time.Now().Add(rereadAfter), nil
	}
	if ctx.Err() != nil {
		return keys{}, end, ctx.Err()
	}
	if err == nil && (k.id == "" || k.secret == "") {
		err = errors.New("response without keys")
	}
	if err != nil {
		return keys{}, end, fmt.Errorf("the credentials of the profile cannot be used: %w: %w", err, fs.ErrPermission)
	}
	return k, end, nil
}

// processKeys gets keys from a program. Its words are not shown, because they may be secret.
func processKeys(ctx context.Context, words []string) (k keys, end time.Time, err error) {
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	out, err := run.StdoutPipe()
	if err == nil {
		err = run.Start()
	}
	if err != nil {
		return k, end, errors.New("credential_process does not start")
	}
	doc, _ := io.ReadAll(io.LimitReader(out, maxMachine)) // a part of it is not valid
	_ = out.Close()                                       // a program that writes more would wait
	var got grant
	if err := run.Wait(); err != nil || json.Unmarshal(doc, &got) != nil {
		return k, end, errors.New("credential_process failed")
	}
	return got.keys(), got.Expiration, nil
}

var errLogin = errors.New("a new login is required (aws sso login)")

// ssoKeys gets keys with the token that `aws sso login` has stored.
func ssoKeys(ctx context.Context, p map[string]string) (k keys, end time.Time, err error) {
	session, region, start := p["sso_session"], p["sso_region"], p["sso_start_url"]
	if session != "" {
		s, err := readSection(settingsFile("AWS_CONFIG_FILE", "config"), "sso-session "+session, "")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return k, end, err
		}
		for _, word := range []string{"sso_region", "sso_start_url"} {
			if s[word] != "" && p[word] != "" && s[word] != p[word] {
				return k, end, fmt.Errorf("%s of the profile and of its sso-session differ", word)
			}
		}
		region = cmp.Or(s["sso_region"], region)
	}
	if p["sso_account_id"] == "" || session == "" && start == "" {
		return k, end, errors.New("expected sso_account_id, and sso_session or sso_start_url")
	}
	name := sha1.Sum([]byte(cmp.Or(session, start)))
	home, err := os.UserHomeDir()
	if err != nil {
		return k, end, err
	}
	stored, err := readToken(filepath.Join(home, ".aws", "sso", "cache", hex.EncodeToString(name[:])+".json"))
	var login struct {
		AccessToken string    `json:"accessToken"`
		ExpiresAt   time.Time `json:"expiresAt"`
		Region      string    `json:"region"`
	}
	if err != nil || json.Unmarshal([]byte(stored), &login) != nil || login.ExpiresAt.Before(time.Now()) {
		return k, end, errLogin
	}
	if region = cmp.Or(region, login.Region); !isRegion(region) {
		return k, end, errors.New("expected sso_region")
	}
	return portalKeys(ctx, "https://portal.sso."+region+"."+amazonDomain(region), p, login.AccessToken)
}

func portalKeys(ctx context.Context, portal string, p map[string]string, token string) (k keys, end time.Time, err error) {
	client := &http.Client{
		Transport:     web.Transport(),
		Timeout:       tokenWait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	q := url.Values{"account_id": {p["sso_account_id"]}, "role_name": {p["sso_role_name"]}}
	doc, err := fetch(ctx, client, http.MethodGet, portal+"/federation/credentials?"+q.Encode(), http.Header{"X-Amz-Sso_bearer_token": {token}}, nil)
	if errors.Is(err, errRefused) {
		return k, end, errLogin
	}
	var got struct {
		RoleCredentials struct {
			AccessKeyID, SecretAccessKey, SessionToken string
			Expiration                                 int64 // in milliseconds
		}
	}
	if err == nil && json.Unmarshal(doc, &got) != nil {
		err = errors.New("response without keys")
	}
	r := got.RoleCredentials
	return keys{r.AccessKeyID, r.SecretAccessKey, r.SessionToken}, time.UnixMilli(r.Expiration), err
}
