// Package e2e looks at the explorer as people do: in a browser. It is a module of its own, so that
// what drives the browser is no dependency of who uses holdall.
package e2e

import (
	"net/http"
	"net/url"

	"github.com/holdall/holdall/app/explore"
	"github.com/holdall/holdall/app/serve"
)

// Mux puts an explorer and what serves the contents of its archives together, as
// "holdall serve" does.
func Mux(h *explore.Handler, archives []explore.Archive) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h)
	for _, a := range archives {
		below := "/f/" + a.Name
		inner := serve.Handler(a.Archive, serve.Options{})
		mux.HandleFunc("/f/"+url.PathEscape(a.Name)+"/", http.StripPrefix(below, inner).ServeHTTP)
	}
	return mux
}
