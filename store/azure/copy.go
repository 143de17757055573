package azure

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
)

const (
	// copyBlock is the size of copied blocks, as long as other blocks are shorter.
	copyBlock = 256 * mib

	// passLife is how long the server may read a source to copy one block.
	passLife = time.Hour

	maxBlockList = 32 << 20
)

// WriteRange makes the server copy a range of an object of the same account, as blocks of this
// one. The bytes written before become a block of their own, so a range must be long enough that
// the number of blocks does not grow.
func (w *writer) WriteRange(ctx context.Context, from store.Object, off, n int64) error {
	src, ok := from.(*object)
	if !ok || w.st.noCopies.Load() || *src.st.signed.endpoint != *w.st.signed.endpoint ||
		off < 0 || n < 2*int64(blockSize(w.Sent)) || n > far.MaxSize-w.Written {
		return errors.ErrUnsupported
	}
	if err := w.Usable(); err != nil {
		return w.fail("write", err)
	}
	info, err := src.Info(ctx)
	switch {
	case err != nil:
		return err
	case off > info.Size || n > info.Size-off:
		return &store.Error{Op: "read", Name: src.st.Address(src.Name), Off: off, Len: n, Err: io.ErrUnexpectedEOF}
	case !strings.HasPrefix(info.Version, `"`):
		return errors.ErrUnsupported // there is no version to require
	}
	if len(w.Buf) > 0 {
		if err := w.Send(); err != nil {
			return w.fail("write", err)
		}
	}
	for n > 0 {
		k := min(n, int64(max(copyBlock, blockSize(w.Sent))))
		switch err := w.copy(ctx, src, info.Version, off, k); {
		case errors.Is(err, errNoCopy):
			w.st.noCopies.Store(true)
			return storekit.WriteRange(ctx, w, from, off, n)
		case errors.Is(err, store.ErrChanged):
			return w.Spoil(&store.Error{Op: "read", Name: src.st.Address(src.Name), Off: off, Len: k, Err: err})
		case err != nil:
			return w.Spoil(w.fail("copy", err))
		}
		off, n = off+k, n-k
	}
	return nil
}

var errNoCopy = errors.New("the server cannot copy")

func (w *writer) copy(ctx context.Context, src *object, version string, off, n int64) error {
	if err := w.Room(); err != nil {
		return err
	}
	id := w.blockID(w.Count)
	u := w.st.address(w.key)
	u.RawQuery = url.Values{"comp": {"block"}, "blockid": {id}}.Encode()
	at := src.st.address(src.key)
	at.RawQuery = src.st.signed.pass(src.st.container+"/"+src.key, time.Now().UTC())
	err := drop(w.st.do(ctx, call{method: http.MethodPut, url: u, header: map[string]string{
		"X-Ms-Copy-Source": at.String(), "X-Ms-Source-Range": fmt.Sprintf("bytes=%d-%d", off, off+n-1), "X-Ms-Source-If-Match": version,
	}}))
	if err != nil {
		if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusNotImplemented || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			return errNoCopy // permission to write here may not include permission to read there
		}
		return err
	}
	if w.copies == nil {
		w.copies = map[string]int64{}
	}
	w.copies[id] = n
	w.Copied(n)
	return nil
}

// pass returns the query with which the server itself may read an object: the existing token, or
// one that is made from the account's key for this object ("service SAS").
func (s *signer) pass(path string, now time.Time) string {
	if s.key == nil {
		return s.sas
	}
	protocol := "https"
	if s.endpoint.Scheme == "http" {
		protocol = "https,http"
	}
	end := now.Add(passLife).Format("2006-01-02T15:04:05Z")
	text := strings.Join([]string{"r", "", end, "/blob/" + s.account + "/" + path, "", "", protocol, version, "b", "", "", "", "", "", "", ""}, "\n")
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(text))
	return url.Values{"sp": {"r"}, "se": {end}, "spr": {protocol}, "sv": {version}, "sr": {"b"},
		"sig": {base64.StdEncoding.EncodeToString(m.Sum(nil))}}.Encode()
}

// checkCopies requests the sizes of the blocks that the server copied, before the object appears.
func (w *writer) checkCopies(ctx context.Context) error {
	if len(w.copies) == 0 {
		return nil
	}
	u := w.st.address(w.key)
	u.RawQuery = "blocklisttype=uncommitted&comp=blocklist"
	resp, err := w.st.do(ctx, call{method: http.MethodGet, url: u})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var list struct {
		Blocks []struct {
			Name string
			Size int64
		} `xml:"UncommittedBlocks>Block"`
	}
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxBlockList)).Decode(&list); err != nil {
		return errors.New("invalid or incomplete list of blocks from the server")
	}
	left := len(w.copies)
	for _, b := range list.Blocks {
		n, ok := w.copies[b.Name]
		switch {
		case ok && b.Size != n:
			return fmt.Errorf("expected the server to copy %d bytes, found %d", n, b.Size)
		case ok:
			left--
		}
	}
	if left > 0 {
		return fmt.Errorf("server does not list %d of %d blocks that it has copied", left, len(w.copies))
	}
	return nil
}
