package serve

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/holdall/holdall/store/storekit"
)

// Small files of a tar are held in memory and put several at a time.
const (
	smallFile = 64 << 10
	atOnce    = 16
)

// asksTar returns an option of a request for the files of a tar.
func (c *call) asksTar(option string) string {
	return c.r.Header.Get(storekit.MetaHeader + "minio-snowball-" + option)
}

// extract puts the files of a tar.
func (c *call) extract() error {
	p, err := c.body()
	if err != nil {
		return err
	}
	in, end, err := untarred(p)
	if err == nil {
		x := &extraction{c: c, work: &errgroup.Group{}, keys: map[string]bool{}}
		_ = x.wait()
		err = x.files(tar.NewReader(in))
		err = cmp.Or(err, x.wait())
		end()
	}
	if err == nil { // what follows the tar counts for the sums, too
		_, err = io.Copy(io.Discard, p)
	}
	if p.err != nil && p.err != io.EOF {
		return p.err // and not what it makes of the tar
	}
	if err != nil {
		return err
	}
	p.upload(Condition{}, map[string]string{}).End()
	c.wrote(p.etag, nil)
	return c.done(http.StatusOK)
}

// untarred decompresses a tar.
func untarred(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReader(r)
	magic, _ := b.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, func() {}, tarError(err)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(16<<20))
		if err != nil {
			return nil, nil, tarError(err)
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
}

// tarError is an error of the tar, unless it is one of the body.
func tarError(err error) error {
	if _, ok := err.(*s3Fault); ok || err == nil {
		return err
	}
	return fault("InvalidArgument", "The tar cannot be read: "+err.Error())
}

// An extraction puts files.
type extraction struct {
	c    *call
	work *errgroup.Group
	all  context.Context // ends when one cannot be put
	keys map[string]bool // of those that are being put
}

// wait waits for the files that are being put.
func (x *extraction) wait() error {
	err := x.work.Wait()
	x.work, x.all = errgroup.WithContext(x.c.r.Context())
	x.work.SetLimit(atOnce)
	clear(x.keys)
	return err
}

func (x *extraction) files(r *tar.Reader) error {
	prefix := strings.Trim(x.c.asksTar("prefix"), "/")
	if prefix != "" {
		prefix += "/"
	}
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return tarError(err)
		}
		name := strings.TrimLeft(strings.TrimPrefix(h.Name, "./"), "/")
		switch {
		case strings.Trim(name, "./") == "" || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
			continue
		case h.Typeflag == tar.TypeDir:
			if x.c.asksTar("ignore-dirs") == "true" {
				continue
			}
			name = strings.TrimRight(name, "/") + "/"
		}
		if err := x.file(prefix+name, h.Size, r); err != nil && x.c.asksTar("ignore-errors") != "true" {
			return err
		}
	}
}

func (x *extraction) file(key string, size int64, r io.Reader) error {
	switch err := context.Cause(x.all); {
	case err != nil:
		return err
	case len(key) > maxKey:
		return fault("KeyTooLongError", "")
	case !utf8.ValidString(key) || strings.Contains(key, "\x00"):
		return fault("InvalidArgument", "A name in the tar is not UTF-8.")
	case size > maxPut:
		return fault("EntityTooLarge", "")
	}
	put := func(r io.Reader) error {
		_, err := x.c.in.Put(x.c.r.Context(), key, newPayload(r, size).upload(Condition{}, map[string]string{}))
		return err
	}
	if x.keys[key] || size > smallFile { // of two files with a name, the last counts
		if err := x.wait(); err != nil {
			return err
		}
	}
	if size > smallFile {
		return tarError(put(r))
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(r, content); err != nil {
		return tarError(err)
	}
	x.keys[key] = true
	x.work.Go(func() error {
		err := put(bytes.NewReader(content))
		if x.c.asksTar("ignore-errors") == "true" {
			return nil
		}
		return err
	})
	return nil
}
