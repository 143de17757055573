package bucket

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/internal/far"
)

var errUnanswered = errors.New("server did not say whether it was removed")

// removeMany deletes objects by one request, which has their versions. If the bucket keeps versions, these become
// older ones. Keys that cannot be written in XML fail.
func (st *Store) removeMany(ctx context.Context, infos []store.Info) (errs []error, err error) {
	type object struct{ Key, ETag string }
	var ask struct {
		XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ Delete"`
		Object  []object
	}
	errs = make([]error, len(infos))
	at := map[string]int{}
	for i, info := range infos {
		key, err := st.key(info.Name)
		if _, twice := at[key]; err == nil && (twice || info.Version == "" || strings.ContainsFunc(key, odd)) {
			err = fs.ErrInvalid
		}
		if errs[i] = st.fail("remove", info.Name, err); err == nil {
			errs[i] = st.fail("remove", info.Name, errUnanswered)
			at[key] = i
			ask.Object = append(ask.Object, object{key, info.Version})
		}
	}
	if len(ask.Object) == 0 {
		return errs, nil
	}
	body, err := xml.Marshal(ask)
	if err == nil {
		err = st.settle(ctx) // the body is not sent again elsewhere
	}
	var doc []byte
	var said refusal
	if err == nil {
		plain, strong := md5.Sum(body), sha256.Sum256(body)
		doc, said, err = st.call(ctx, http.MethodPost, st.where.base(st.bucket), "delete", http.Header{
			"Content-Type": {"application/xml"}, "Content-Md5": {base64.StdEncoding.EncodeToString(plain[:])}, "X-Amz-Content-Sha256": {hex.EncodeToString(strong[:])},
		}, body)
	}
	var is struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []struct{ Key string }
		Error   []struct{ Key, Code string }
	}
	if err == nil && said.status != 0 {
		err = st.signed.meaning(said)
	} else if err == nil {
		err = xml.Unmarshal(doc, &is)
	}
	if err != nil {
		return errs, st.fail("remove", infos[0].Name, err)
	}
	for _, x := range is.Deleted {
		if i, ok := at[x.Key]; ok {
			errs[i] = nil
		}
	}
	for _, x := range is.Error {
		if i, ok := at[x.Key]; ok {
			err := st.signed.meaning(refusal{status: http.StatusBadRequest, code: x.Code})
			if (refusal{code: x.Code}).busy() {
				err = &far.Passing{Err: fmt.Errorf("server busy: %w", err)}
			}
			errs[i] = st.fail("remove", infos[i].Name, err)
		}
	}
	return errs, nil
}

// odd reports whether a letter of a key may not survive in XML.
func odd(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' || r == '\uFFFE' || r == '\uFFFF' }
