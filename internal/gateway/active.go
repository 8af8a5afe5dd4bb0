package gateway

import (
	"strings"

	"github.com/valyala/fasthttp"
)

// ActiveContent says how files of types are sent in which a browser runs scripts: any client that
// may upload can have made them.
type ActiveContent string

// The ways of sending them.
const (
	ActiveSandbox    ActiveContent = "sandbox"    // shown without scripts, forms and the origin's cookies (default)
	ActiveInline     ActiveContent = "inline"     // like any other file
	ActiveAttachment ActiveContent = "attachment" // saved, not shown
)

var (
	headerSecurityPolicy = []byte(fasthttp.HeaderContentSecurityPolicy)
	valueSandbox         = []byte("sandbox")
	valueAttachment      = []byte("attachment")
)

// isActive tells whether documents of the type can hold scripts: HTML, and all that is XML, SVG
// above all.
func isActive(contentType string) bool {
	essence, _, _ := strings.Cut(contentType, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	switch essence {
	case "text/html", "text/xml", "application/xml", "text/xsl", "multipart/related", "multipart/x-mixed-replace",
		"message/rfc822":
		return true
	}
	return strings.HasSuffix(essence, "+xml")
}

// setActive says how a browser treats an active file. A name that the client asked for has made it
// an attachment already.
func (r *request) setActive(named bool) {
	h := &r.ctx.Response.Header
	switch r.h.o.ActiveContent {
	case ActiveInline:
	case ActiveAttachment:
		if !named {
			h.SetCanonical(headerDisposition, valueAttachment)
		}
	default:
		h.SetCanonical(headerSecurityPolicy, valueSandbox)
	}
}
