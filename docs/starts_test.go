package docs_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// This file has all that TestCommandsOfPagesRun needs for pages. To add one, give it a start, and delete it from elsewhere.

// elsewhere has the pages that other tests run, or that have no commands of their own.
var elsewhere = map[string]string{
	"cli.md":    "it is the help of the verbs, which scripts in cmd/holdall/testdata test",
	"moving.md": "TestMovingAsItStands in interop/fleet runs it, with real servers",
	"python.md": "python/tests/test_docs.py runs it",
}

// built are programs that pages use.
var built = map[string]string{
	"holdall":    "github.com/holdall/holdall/cmd/holdall",
	"age-keygen": "filippo.io/age/cmd/age-keygen",
}

// standIns are programs that only look like those that pages use, which are not everywhere. The test binary is all of them.
var standIns = map[string]func(args []string) error{"aws": aws}

// hosts are the servers of pages, which do not exist. A start puts the files that they have into $WEB. No other server can be
// reached: requests go to a proxy that has only these.
var hosts = []string{"example.org"}

// buckets are those of pages, with the objects that are there at the start. They are in memory: a cloud costs money.
var buckets = map[string]map[string]string{
	"photos": {"2026/05/a.jpg": "a picture", "2026/05/b.jpg": "another picture"},
	"other":  {"photos/2026/05/a.jpg": "a picture"},
	"packed": {}, "bucket": {}, "sets": {}, "old": {}, "new": {},
}

// An absent block is not run.
type absent struct{ page, begins, why string }

var notRun = []absent{
	{"oak.md", "holdall verify az://", "no server here is like Azure; interop/azure runs these verbs with one"},
	{"releasing.md", "go run -C tools/release", "it takes minutes, and the check makes a release in tools/release"},
}

// A start makes what a page, or one of its sections, says that exists at its start.
type start struct {
	page, section string
	commands      string
	after         string // commands that must succeed afterwards
	apart         bool   // each section begins anew with it
	fuse          bool   // it mounts
}

const (
	docs      = "mkdir -p docs/guide; echo TODO one >docs/guide/a.txt; echo two >docs/guide/b.txt; echo hello >docs/intro.md\n"
	docsCAF   = docs + "holdall pack -q -f caf -o docs.caf docs\n"
	photos    = "mkdir -p photos/2026/05; echo a picture >photos/2026/05/a.jpg; echo another >photos/2026/05/b.jpg; echo old >photos/2026/a.jpg\n"
	recording = `gunzip -c "$CLONE/internal/app/catalog/survey/testdata/recording.nwb.gz" >recording.nwb` + "\n"
	gcStore   = `tar xzf "$CLONE/internal/oak/testdata/datastore-gc.tar.gz"` + "\n"
)

// siteStore has a site with an asset, indexes, and a revision of the first of November.
const siteStore = `{
	sed -e '1,/^-- indexes.jsonl --$/d' -e '/^-- /,$d' -e '/"\/content"/d' "$CLONE/cmd/holdall/testdata/oak_indexes.txtar"
	cat <<-'END'
	{"path":"/content","properties":{"jcr:primaryType":{"type":"Name","value":"nt:unstructured"}}}
	{"path":"/content/site","properties":{"jcr:primaryType":{"type":"Name","value":"cq:Page"}}}
	{"path":"/content/site/jcr:content","properties":{"jcr:primaryType":{"type":"Name","value":"cq:PageContent"},"cq:lastModified":{"type":"Date","value":"2026-10-01T12:00:00.000Z"},"jcr:title":{"type":"String","value":"A site"}}}
	{"path":"/content/broken","properties":{"jcr:primaryType":{"type":"Name","value":"nt:unstructured"}}}
	{"path":"/content/dam","properties":{"jcr:primaryType":{"type":"Name","value":"nt:folder"}}}
	{"path":"/content/dam/site","properties":{"jcr:primaryType":{"type":"Name","value":"nt:folder"}}}
	{"path":"/content/dam/site/a.txt","properties":{"jcr:primaryType":{"type":"Name","value":"nt:file"}}}
	{"path":"/content/dam/site/a.txt/jcr:content","properties":{"jcr:primaryType":{"type":"Name","value":"nt:resource"},"jcr:data":{"type":"Binary","length":3,"base64":"AAEC"}}}
	END
} >$TMPDIR/site.jsonl
holdall oak import $TMPDIR/site.jsonl -o segmentstore
sed -i 's/[0-9]*$/1793491200000/' segmentstore/journal.log
mkdir datastore
`

// starts has those of sections before that of the page, which is run with all other sections.
var starts = []start{
	{page: "../README.md"},
	{page: "TOUR.md", commands: docs + "mv docs/intro.md docs/guide; holdall pack -q -f caf -o $WEB/docs.caf docs"},
	{page: "buckets.md", commands: docs},
	{page: "cache.md"},
	{page: "caf.md", commands: docs},
	{page: "catalog.md", section: "Archives that have moved", commands: photos + `export HOLDALL_CATALOG=photos.catalog
holdall catalog init
holdall pack -q -o s3://old/photos.caf --catalog photos.catalog photos
holdall pack -q -o s3://new/photos.caf photos`, after: "holdall catalog cat 2026/05/a.jpg"},
	{page: "catalog.md", commands: photos + "mkdir recordings; cd recordings\n" + recording + "cd .."},
	{page: "databundle.md", commands: photos},
	{page: "encryption.md", commands: photos, after: "diff -r photos out"},
	{page: "explorer.md", commands: docsCAF},
	{page: "fixity.md", commands: docs},
	{page: "fleet.md", commands: photos},
	{page: "gateway.md", section: "With a catalogue in a bucket", commands: keys},
	{page: "gateway.md", section: "Coming from another bucket", commands: keys},
	{page: "gateway.md", commands: "echo a picture >a.jpg"},
	{page: "hdf5.md", commands: recording + "cp recording.nwb data.nc"},
	{page: "index.md", commands: docs + "holdall pack -q -f caf -o big.caf docs"},
	{page: "lindi.md", commands: recording + "cp recording.nwb sorted.nwb"},
	{page: "mount.md", commands: docsCAF + "cp docs.caf b.caf", fuse: true},
	{page: "oak.md", section: "My repository does not start", commands: `tar xzf "$CLONE/internal/oak/testdata/corrupt-value.tar.gz"`, after: "holdall oak check repaired"},
	{page: "oak.md", section: "The disk is full", commands: gcStore, after: "holdall diff --datastore datastore segmentstore compacted && holdall oak blobs --datastore datastore --missing segmentstore"},
	{page: "oak.md", section: "What has grown", commands: gcStore},
	{page: "oak.md", section: "Moving, and keeping a copy", commands: gcStore, after: "holdall diff --datastore datastore segmentstore fetched && holdall diff --datastore datastore segmentstore restored"},
	{page: "oak.md", section: "Files as files", commands: siteStore, fuse: true},
	{page: "oak.md", commands: siteStore + "cp -r segmentstore backup; mkdir author publish folder; cp -r segmentstore author; cp -r segmentstore publish; echo text >folder/a.txt"},
	{page: "parity.md", commands: docsCAF + "holdall pack -q -f caf -o photos.caf --chunk-size 13 docs"},
	{page: "problems.md", commands: docsCAF},
	{page: "rvn.md", commands: "mkdir -p stage/bin; echo tool >stage/bin/tool"},
	{page: "serve.md", section: "Buckets as they were", commands: keys + `; export HOLDALL_CATALOG=s3://packed/photos.catalog
holdall catalog init
holdall fleet plan s3://photos -o s3://packed/photos.caf
holdall fleet work`},
	{page: "serve.md", commands: docsCAF + "mkdir archives; cp docs.caf archives; holdall pack -q -o s3://bucket/archives/docs.caf docs"},
	{page: "signing.md", commands: docsCAF},
	{page: "sync.md", commands: docs + `holdall pack -q -o docs-1.tar docs
echo new >docs/new.txt
holdall pack -q -o $WEB/docs.tar docs
rm docs/new.txt
holdall pack -q -o s3://bucket/repo/docs-1.rvn docs
(cd $WEB; holdall catalog init --catalog repo.catalog; holdall catalog add --catalog repo.catalog docs.tar)`},
}

const keys = "echo testkey:testsecret >key.txt"

// aws knows a few commands of the real one.
func aws(args []string) error {
	flags := flag.NewFlagSet("aws", flag.ExitOnError)
	endpoint := flags.String("endpoint-url", cmp.Or(os.Getenv("AWS_ENDPOINT_URL"), os.Getenv("AWS_ENDPOINT_URL_S3")), "")
	unsigned := flags.Bool("no-sign-request", false, "")
	flags.Parse(args)
	if args = flags.Args(); len(args) < 3 || args[0] != "s3" {
		return fmt.Errorf("aws %q: unknown", args)
	}
	server, err := url.Parse(*endpoint)
	if err != nil {
		return err
	}
	who := credentials.NewEnvAWS()
	if *unsigned {
		who = credentials.NewStaticV4("", "", "")
	}
	c, err := minio.New(server.Host, &minio.Options{Creds: who, Secure: server.Scheme == "https", Region: "us-east-1"})
	if err != nil {
		return err
	}
	split := func(address string) (bucket, key string) {
		bucket, key, _ = strings.Cut(strings.TrimPrefix(address, "s3://"), "/")
		return bucket, key
	}
	ctx, last := context.Background(), args[len(args)-1]
	bucket, key := split(last)
	switch args[1] {
	case "mb":
		return c.MakeBucket(ctx, bucket, minio.MakeBucketOptions{})
	case "ls":
		for x := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: key, Recursive: slices.Contains(args, "--recursive")}) {
			if x.Err != nil {
				return x.Err
			}
			fmt.Println(x.Size, strings.TrimPrefix(x.Key, key))
		}
		return nil
	case "cp":
		if strings.HasPrefix(last, "s3://") {
			_, err = c.FPutObject(ctx, bucket, key, args[2], minio.PutObjectOptions{})
			return err
		}
		bucket, key = split(args[2])
		return c.FGetObject(ctx, bucket, key, filepath.Join(last, path.Base(key)), minio.GetObjectOptions{})
	}
	return fmt.Errorf("aws %q: unknown", args)
}
