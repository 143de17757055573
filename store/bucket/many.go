package bucket

import (
	"context"
	"encoding/xml"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdall/holdall/store"
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
	var is struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []struct{ Key string }
		Error   []struct{ Key, Code string }
	}
	if err == nil {
		_, err = st.do(ctx, call{method: http.MethodPost, query: url.Values{"delete": {""}}, header: http.Header{"Content-Type": {"application/xml"}}, body: body, md5: true, into: &is})
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
			errs[i] = st.fail("remove", infos[i].Name, st.signed.refused(refusal{status: http.StatusBadRequest, code: x.Code}, nil))
		}
	}
	return errs, nil
}

// odd reports whether a letter of a key may not survive in XML.
func odd(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' || r == '\uFFFE' || r == '\uFFFF' }
