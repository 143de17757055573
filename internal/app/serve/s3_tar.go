package serve

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"

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
		x := &extraction{c: c, slots: make(chan struct{}, atOnce), keys: map[string]bool{}}
		if err = x.files(tar.NewReader(in)); !x.wait() && err == nil {
			err = x.err
		}
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
	c     *call
	slots chan struct{}
	work  sync.WaitGroup

	keys map[string]bool // of those that are being put

	mu  sync.Mutex
	err error
}

// wait waits for the files that are being put, and reports whether all is well.
func (x *extraction) wait() bool {
	x.work.Wait()
	clear(x.keys)
	return x.failed() == nil
}

func (x *extraction) failed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
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
	switch err := x.failed(); {
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
	if (x.keys[key] || size > smallFile) && !x.wait() { // of two files with a name, the last counts
		return x.err
	}
	if size > smallFile {
		return tarError(put(r))
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(r, content); err != nil {
		return tarError(err)
	}
	x.keys[key] = true
	x.slots <- struct{}{}
	x.work.Go(func() {
		err := put(bytes.NewReader(content))
		x.mu.Lock()
		if err != nil && x.c.asksTar("ignore-errors") != "true" && x.err == nil {
			x.err = err
		}
		x.mu.Unlock()
		<-x.slots
	})
	return nil
}
