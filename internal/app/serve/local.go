package serve

import (
	"net"
	"net/http"
	"strings"
)

// LocalOnly refuses requests that use a foreign host name for this machine.
// Otherwise a page of another site, whose owner points its name to this
// machine, could read what is served to this machine only.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			http.Error(w, "403: only served as localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether hostport is a name of this machine for itself, with
// any port.
func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
