package fleet

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/sorter"
	"github.com/holdall/holdall/internal/app/fleet/parquet"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// maxManifest is the maximum size of an inventory's manifest, which names one
// file per some million objects.
const maxManifest = 64 << 20

// csvColumns are the columns that are used, in lower case, and parquetColumns are what they are called in Parquet.
var (
	csvColumns     = []string{"bucket", "key", "isdeletemarker", "islatest", "size", "etag"}
	parquetColumns = []string{"bucket", "key", "is_delete_marker", "is_latest", "size", "e_tag"}
)

// A manifest describes an inventory of a bucket: its files, the format of
// their rows, and the columns.
type manifest struct {
	Bucket string          `json:"sourceBucket"`
	Format string          `json:"fileFormat"`
	Schema string          `json:"fileSchema"`
	Files  []inventoryFile `json:"files"`

	columns []string
}

type inventoryFile struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	MD5  string `json:"MD5checksum"`
}

// parseManifest parses a manifest. It returns an error if the inventory cannot
// be read.
func parseManifest(b []byte) (m manifest, err error) {
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("expected the manifest of an inventory: %w", err)
	}
	switch {
	case m.Format == "Parquet": // its files say what they have
		m.Schema = strings.Join(csvColumns, ",")
	case strings.EqualFold(m.Format, "ORC"):
		return m, fmt.Errorf("inventories in ORC are not supported: configure one in CSV or Parquet: %w", errors.ErrUnsupported)
	case m.Format != "CSV":
		return m, fmt.Errorf("expected the manifest of an inventory in CSV or Parquet, found %.100q", m.Format)
	}
	switch {
	case m.Bucket == "":
		return m, errors.New("expected a manifest with the name of its bucket")
	}
	for column := range strings.SplitSeq(m.Schema, ",") {
		column = strings.ToLower(strings.TrimSpace(column))
		if column != "" && slices.Contains(m.columns, column) {
			return m, fmt.Errorf("duplicate column %.100q", column)
		}
		m.columns = append(m.columns, column)
	}
	if m.column("bucket") < 0 || m.column("key") < 0 {
		return m, fmt.Errorf("expected columns of bucket and key, found %.200q", m.Schema)
	}
	for _, f := range m.Files {
		if sum, err := hex.DecodeString(f.MD5); f.Key == "" || f.Size < 0 || err != nil || len(sum) != md5.Size {
			return m, fmt.Errorf("file %.200q: expected a key, a size and an MD5 sum", f.Key)
		}
	}
	return m, nil
}

func (m manifest) column(name string) int { return slices.Index(m.columns, name) }

// bucket returns the bucket of the source, and what its keys begin with.
func (l *list) bucket() (bucket, prefix string, err error) {
	source, err := url.Parse(storekit.AddressOf(l.from.st, ""))
	if err != nil || source.Scheme != "s3" {
		return "", "", fmt.Errorf("%s: expected a bucket of S3, s3://…: %w", format.Escape(l.from.address), errors.ErrUnsupported)
	}
	return source.Host, strings.TrimPrefix(source.Path, "/"), nil
}

// addKey adds an object by its key in the source's bucket.
func (l *list) addKey(key, prefix string, size int64, version string) error {
	name, ok := strings.CutPrefix(key, prefix)
	if !ok || name == "" {
		l.skipped.Outside++
		return nil
	}
	return l.add(name, size, version)
}

func (l *list) readInventory(ctx context.Context, address string) error {
	bucket, prefix, err := l.bucket()
	if err != nil {
		return err
	}
	in, err := openWhole(ctx, address)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.size > maxManifest {
		return fmt.Errorf("%s: %d bytes, expected the manifest of an inventory", format.Escape(address), in.size)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	m, err := parseManifest(b)
	if err == nil && m.Bucket != bucket {
		err = fmt.Errorf("inventory of bucket %.100q, expected one of %q", m.Bucket, bucket)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", format.Escape(address), err)
	}
	for _, f := range m.Files {
		at, err := beside(address, f.Key)
		if err == nil {
			err = l.readFile(ctx, m, f, at, prefix)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beside returns the address of a file that a manifest names. It is in the
// manifest's bucket or, on a disk, below one of the manifest's parent folders
// or beside the manifest.
func beside(manifest, key string) (string, error) {
	if scheme := store.Scheme(manifest); scheme != "" {
		u, err := url.Parse(manifest)
		if err != nil || u.Scheme != "s3" && u.Scheme != "gs" {
			return "", fmt.Errorf("%s: expected s3://bucket/…/manifest.json, or a path: %w", store.Redact(manifest), errors.ErrUnsupported)
		}
		u.Path, u.RawPath = "/"+key, ""
		return u.String(), nil
	}
	if !fs.ValidPath(key) {
		return "", fmt.Errorf("%s: expected a file by its path, found %.200q", format.Escape(manifest), key)
	}
	dir := filepath.Dir(manifest)
	for above := dir; ; above = filepath.Dir(above) {
		file := filepath.Join(above, filepath.FromSlash(key))
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		if above == filepath.Dir(above) {
			return filepath.Join(dir, filepath.Base(filepath.FromSlash(key))), nil
		}
	}
}

// readFile adds the objects of one file of an inventory. Only keys that begin
// with prefix belong to the source.
func (l *list) readFile(ctx context.Context, m manifest, f inventoryFile, address, prefix string) error {
	in, err := openWhole(ctx, address)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.size != f.Size {
		return fmt.Errorf("%s: expected %d bytes as in its manifest, found %d", format.Escape(address), f.Size, in.size)
	}
	sum := md5.New()
	raw := io.TeeReader(in, sum)
	same := func() error {
		if found := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(found, f.MD5) {
			return fmt.Errorf("%s: expected md5 %s as in its manifest, found %s", format.Escape(address), f.MD5, found)
		}
		return nil
	}
	if m.Format == "Parquet" {
		whole, err := pack.NewScratch()
		if err != nil {
			return err
		}
		defer whole.Close()
		if _, err = io.Copy(whole, raw); err == nil {
			err = same()
		}
		if err != nil {
			return err
		}
		if err := parquet.Read(at{whole}, f.Size, parquetColumns, func(row []string) error { return l.addRow(m, row, prefix) }); err != nil {
			return fmt.Errorf("%s: %w", format.Escape(address), err)
		}
		return nil
	}
	r := raw
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		if r, err = gzip.NewReader(raw); err != nil {
			return fmt.Errorf("%s: %w", format.Escape(address), err)
		}
	}
	var fields []string
	if err := eachLine(r, address, func(line []byte) (err error) {
		if fields, err = splitRow(string(bytes.TrimSuffix(line, []byte("\r"))), fields[:0]); err != nil {
			return err
		}
		return l.addRow(m, fields, prefix)
	}); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return err
	}
	return same()
}

// at reads scratch anywhere.
type at struct{ sorter.Scratch }

func (a at) ReadAt(p []byte, off int64) (int, error) {
	if _, err := a.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	return io.ReadFull(a, p)
}

// addRow adds a row if it is the newest version of an object of the source.
func (l *list) addRow(m manifest, fields []string, prefix string) error {
	if len(fields) != len(m.columns) {
		return fmt.Errorf("expected %d columns, found %d", len(m.columns), len(fields))
	}
	of := func(column string) string {
		if i := m.column(column); i >= 0 {
			return fields[i]
		}
		return ""
	}
	if bucket := of("bucket"); bucket != m.Bucket {
		return fmt.Errorf("expected an object of bucket %q, found one of %.100q", m.Bucket, bucket)
	}
	key, err := of("key"), error(nil)
	if m.Format == "CSV" {
		key, err = url.QueryUnescape(key)
	}
	if err != nil || key == "" || len(key) > maxLine {
		return fmt.Errorf("expected a key, found %.200q", of("key"))
	}
	switch {
	case strings.EqualFold(of("isdeletemarker"), "true"):
		l.skipped.Deleted++
		return nil
	case strings.EqualFold(of("islatest"), "false"):
		l.skipped.Older++
		return nil
	}
	size := int64(-1)
	if text := of("size"); text != "" {
		if size, err = strconv.ParseInt(text, 10, 64); err != nil || size < 0 || size > maxListed {
			return fmt.Errorf("expected a size, found %.100q", text)
		}
	}
	version, err := etag(of("etag"))
	if err != nil {
		return err
	}
	return l.addKey(key, prefix, size, version)
}

// splitRow appends the fields of a CSV row. Keys are escaped, so no field
// contains a line end.
func splitRow(line string, fields []string) ([]string, error) {
	for {
		field := ""
		if quoted, ok := strings.CutPrefix(line, `"`); ok {
			var b strings.Builder
			for {
				i := strings.IndexByte(quoted, '"')
				if i < 0 {
					return fields, errors.New("expected a quote at the end of a field")
				}
				b.WriteString(quoted[:i])
				if quoted = quoted[i+1:]; !strings.HasPrefix(quoted, `"`) {
					break
				}
				b.WriteByte('"')
				quoted = quoted[1:]
			}
			field, line = b.String(), quoted
			if line != "" && line[0] != ',' {
				return fields, errors.New("expected a comma after a quote")
			}
		} else {
			i := strings.IndexByte(line, ',')
			if i < 0 {
				i = len(line)
			}
			if field = line[:i]; strings.Contains(field, `"`) {
				return fields, errors.New("expected no quote within a field")
			}
			line = line[i:]
		}
		fields = append(fields, field)
		if line == "" {
			return fields, nil
		}
		line = line[1:]
	}
}
