package s3test

import (
	"path/filepath"
	"testing"
)

// Setenv sets the environment variables of S3 for a test: an endpoint, if it is not empty, the
// credentials that a Server accepts, and nothing else.
func Setenv(t testing.TB, endpoint string) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL_S3": endpoint, "AWS_ENDPOINT_URL": "", "AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": Secret,
		"AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": none,
		"AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "HOLDALL_S3_ANONYMOUS": "", "HOLDALL_S3_PATH_STYLE": "",
	} {
		t.Setenv(k, v)
	}
}
