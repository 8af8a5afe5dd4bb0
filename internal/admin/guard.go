package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"fastdfs-gateway/internal/process/panics"
)

// Access restricts the use of the admin listener.
type Access struct {
	Hosts      []string // allowed Host fields besides IP addresses and localhost, in lower case
	Token      string   // of Bearer, or the password of Basic, except for /healthz and /readyz; empty = not required
	NoProfiles bool     // /debug/pprof/ is 404
}

// guard rejects requests that do not come from an operator:
//
//   - 421 if the Host field is a name that is not configured. A page whose host name was made to
//     point here (DNS rebinding) is same-origin for the browser, but its requests carry that name,
//     on any listener.
//   - 403 if the browser reports a page of another origin (Fetch Metadata), for every method:
//     /explain and profiles have a cost too. Another port of this host is another origin, which
//     serves uploaded pages. A link to /status is allowed: the page of another origin cannot read
//     the response.
//   - 401 without the token, if one is configured.
func (o *Options) guard(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection() // browsers that do not send Sec-Fetch-Site
	next = crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer panics.Abort("serving an operator", "path", req.URL.Path)
		access := o.Access()
		switch {
		case !access.allowsHost(req.Host):
			write(w, http.StatusMisdirectedRequest, "use an address, localhost, or a name of admin_hosts")
		case !ownPage(req):
			write(w, http.StatusForbidden, "pages of other origins may not ask")
		case !access.allowsToken(req):
			w.Header()["Www-Authenticate"] = challenges
			write(w, http.StatusUnauthorized, "the token of admin_token_file is wanted")
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// challenges are the challenge of RFC 6750, section 3, for programs, and the one of RFC 7617,
// section 2, which makes a browser prompt for the token.
var challenges = []string{"Bearer", `Basic realm="fastdfs-gateway: the token is the password", charset="UTF-8"`}

// allowsHost reports whether a Host field is allowed. Browsers always send one; HTTP/1.0 probes do
// not.
func (a *Access) allowsHost(field string) bool {
	host := field
	if name, _, err := net.SplitHostPort(field); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return slices.Contains(a.Hosts, host)
}

// ownPage reports whether a request comes from no page, from a page of the admin listener, or from
// a link to the status page.
func ownPage(req *http.Request) bool {
	if isStatusLink(req) {
		return true
	}
	for _, site := range req.Header.Values("Sec-Fetch-Site") {
		if site != "none" && site != "same-origin" {
			return false
		}
	}
	return true
}

// isStatusLink reports whether a browser opens the plain status page in a window. In a frame, or as
// an image or a script, the page would be part of another one.
func isStatusLink(req *http.Request) bool {
	return req.Method == http.MethodGet && req.URL.Path == "/status" && req.URL.RawQuery == "" &&
		req.Header.Get("Sec-Fetch-Mode") == "navigate" && req.Header.Get("Sec-Fetch-Dest") == "document"
}

// allowsToken reports whether a request has the token or needs none. It compares digests, so that
// the duration reveals neither content nor length.
func (a *Access) allowsToken(req *http.Request) bool {
	if a.Token == "" || isProbe(req) {
		return true
	}
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if _, password, ok := req.BasicAuth(); ok { // browsers send Basic, with any user name
		scheme, token = "Bearer", password
	}
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.Token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
