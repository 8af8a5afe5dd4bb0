package gateway

import (
	"strings"

	"github.com/valyala/fasthttp"
)

// ActiveContent selects the treatment of files in which a browser runs scripts. Any client that may
// upload can have made such a file.
type ActiveContent string

// Values of ActiveContent.
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

// isActive reports whether documents of the type can hold scripts: HTML, XML such as SVG, and MIME
// messages, whose parts may be HTML.
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

// setActive sets the header of ActiveContent. A file with a requested file name is an attachment
// already.
func (r *request) setActive() {
	h := &r.ctx.Response.Header
	switch r.h.o.ActiveContent {
	case ActiveInline:
	case ActiveAttachment:
		if r.target.params.filename == nil {
			h.SetCanonical(headerDisposition, valueAttachment)
		}
	default:
		h.SetCanonical(headerSecurityPolicy, valueSandbox)
	}
}
