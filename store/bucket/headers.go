package bucket

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/holdall/holdall/store/internal/far"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/web"
)

// headersOf returns what the service stores with the object, from a response.
func (st *Store) headersOf(h http.Header) map[string]string {
	meta := "x-amz-meta-"
	if st.where.google != nil {
		meta = "x-goog-meta-"
	}
	all := far.Headers(h, meta)
	encoding := all["content-encoding"]
	if st.where.google != nil {
		delete(all, "expires") // it is that of the response
		if stored := h.Get("X-Goog-Stored-Content-Encoding"); stored != "" {
			encoding = stored
		}
	}
	// Some servers store headers that were meant for themselves.
	var own []string
	for coding := range strings.SplitSeq(encoding, ",") {
		if coding = strings.TrimSpace(coding); coding != "" && coding != "aws-chunked" && coding != "identity" {
			own = append(own, coding)
		}
	}
	if all["content-encoding"] = strings.Join(own, ", "); len(own) == 0 {
		delete(all, "content-encoding")
	}
	return all
}

// headers returns the headers that came with a read. If nothing was read, it requests the header
// of the object. If the object has tags, it requests these, too.
func (o *object) headers(ctx context.Context) (map[string]string, error) {
	known := o.Object.Can().Headers
	all, err := known(ctx)
	if all == nil && err == nil {
		resp, herr := o.head(ctx, "", nil)
		if herr == nil {
			o.headed.Store(true)
			herr = o.Named(web.Heard(o.Object.Object, resp.Header))
		}
		if herr != nil {
			return nil, herr
		}
		all, err = known(ctx)
	}
	if err != nil || !slices.Contains(o.Object.Can().Unkept(), tagged) || o.st.where.google != nil {
		return all, o.Named(err)
	}
	tags, err := o.askTags(ctx)
	if tags == "" || err != nil {
		return all, err
	}
	o.tagsKnown.Store(true)
	all = maps.Clone(all)
	all[storekit.TagsHeader] = tags
	return all, nil
}

// tagged is what responses show of tags, which only another request tells.
const tagged = "tags"

// unkept is what the service keeps with the object and archives do not.
func (o *object) unkept() []string {
	all := o.Object.Can().Unkept()
	if o.tagsKnown.Load() {
		all = slices.DeleteFunc(slices.Clone(all), func(what string) bool { return what == tagged })
	}
	return all
}
