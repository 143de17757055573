package bucket

import (
	"context"
	"net/http"
	"strings"

	"github.com/holdall/holdall/store/internal/far"
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
// of the object.
func (o *object) headers(ctx context.Context) (map[string]string, error) {
	known := o.Object.Can().Headers
	if all, err := known(ctx); all != nil || err != nil {
		return all, o.Named(err)
	}
	resp, err := o.head(ctx, "", "")
	if err == nil {
		o.headed.Store(true)
		err = o.Named(web.Heard(o.Object.Object, resp.Header))
	}
	if err != nil {
		return nil, err
	}
	all, err := known(ctx)
	return all, o.Named(err)
}
