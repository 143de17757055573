package serve_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/testkit"
)

// TestClients writes and reads with the clients that HOLDALL_AWS and
// HOLDALL_RCLONE name.
func TestClients(t *testing.T) {
	k := serve.Key{ID: "AKIDEXAMPLE", Secret: "secretexample"}
	for name, lines := range map[string][][]string{
		"HOLDALL_AWS": {
			{"s3", "mb", "s3://clients"}, {"s3", "cp", "--recursive", "src", "s3://clients/up/"}, {"s3", "cp", "--recursive", "s3://clients/up/", "back"},
			{"s3", "mv", "s3://clients/up/big", "s3://clients/moved"}, {"s3", "cp", "s3://clients/moved", "back/big"},
			{"s3api", "put-object-tagging", "--bucket", "clients", "--key", "moved", "--tagging", "TagSet=[{Key=a,Value=b}]"},
			{"s3api", "get-object-attributes", "--bucket", "clients", "--key", "moved", "--object-attributes", "ETag", "ObjectParts"},
			{"s3", "sync", "--delete", "src", "s3://clients/"}, {"s3", "rb", "--force", "s3://clients"},
		},
		"HOLDALL_RCLONE": {
			{"copy", "src", "h:clients/up", "--s3-upload-cutoff", "6M", "--s3-chunk-size", "6M"}, {"check", "--download", "src", "h:clients/up"}, {"moveto", "h:clients/up/big", "h:clients/moved"},
			{"copyto", "h:clients/moved", "back/big"}, {"copy", "h:clients/up", "back"}, {"purge", "h:clients"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			program := testkit.Needs(t, name)
			m, at, log := keeping(t, serve.S3Options{Key: k})
			dir := t.TempDir()
			big := bytes.Repeat([]byte("0123456789abcdef"), 20<<16)
			testkit.Tree(t, filepath.Join(dir, "src"), map[string]string{"big": string(big), "d/small +&ü": "hello", "empty": ""})
			config := "[h]\ntype = s3\nprovider = Other\nforce_path_style = true\nendpoint = " + at + "\naccess_key_id = " + k.ID + "\nsecret_access_key = " + k.Secret + "\n"
			testkit.Tree(t, dir, map[string]string{"rclone.conf": config})
			for _, args := range lines {
				cmd := exec.CommandContext(t.Context(), program, args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+k.ID, "AWS_SECRET_ACCESS_KEY="+k.Secret, "AWS_DEFAULT_REGION=us-east-1", "AWS_CONFIG_FILE=none", "AWS_CA_BUNDLE=", "AWS_ENDPOINT_URL="+at, "RCLONE_CONFIG="+filepath.Join(dir, "rclone.conf"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%q: %v\n%s", args, err, out)
				}
			}
			for _, file := range []string{"big", "d/small +&ü", "empty"} {
				want, err := os.ReadFile(filepath.Join(dir, "src", file))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(dir, "back", file)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %d bytes, %v, expected %d", file, len(got), err, len(want))
				}
			}
			if len(m.buckets) != 0 || log.String() != "" {
				t.Error(m.buckets, log)
			}
		})
	}
}
