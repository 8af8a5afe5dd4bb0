package config

import (
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/i18n"
)

// headersSection is the first word of the sections whose keys are names of HTTP headers. The other
// words select files: [headers jpg png], [headers group2/ group3/M00/ jpg].
const headersSection = "headers"

// HeaderSection is a section [headers ...].
type HeaderSection struct {
	Files  fileselect.Selector
	Fields []HeaderField
}

// HeaderField is one line of such a section.
type HeaderField struct {
	Name  string // canonical
	Value string // empty: the header is not sent
}

const allowCredentials = "Access-Control-Allow-Credentials"

// computedHeaders are the headers that the gateway computes. They describe the response or the
// connection: clients and caches would misread a response with a fixed value.
var computedHeaders = []string{"Content-Type", "X-Cache", "Content-Length", "Content-Range", "Accept-Ranges", "Etag",
	"Last-Modified", "Date", "Age", "Location", "Allow", "Retry-After", "Server", "Connection", "Keep-Alive",
	"Proxy-Connection", "Transfer-Encoding", "Te", "Trailer", "Upgrade"}

// isOwn reports whether a section belongs to the gateway, not to the module.
func isOwn(section string) bool {
	return slices.Contains(ownSections, section) || selects(section, headersSection) || selects(section, AccessName)
}

// applyHeaders reads the lines `<Name> = <value>` of all sections [headers ...].
func (l *loader) applyHeaders() {
	for _, s := range l.fileSections(headersSection, true) {
		headers := HeaderSection{Files: s.files}
		for _, e := range s.lines {
			if field, ok := l.headerField(e, s.files); ok {
				headers.Fields = append(headers.Fields, field)
			}
		}
		l.c.Headers = append(l.c.Headers, headers)
	}
}

// headerField reads one line; ok is false for a wrong line, and for one that is not sent as a fixed
// field.
func (l *loader) headerField(e entry, files fileselect.Selector) (field HeaderField, ok bool) {
	key := full(e.section, e.key)
	name := textproto.CanonicalMIMEHeaderKey(e.key)
	advice := i18n.Plain("remove the line")
	switch name {
	case "Content-Type":
		advice = i18n.Plain("set the media type of an extension in [types]")
	case "X-Cache":
		advice = i18n.Plain("set x_cache in [gateway]")
	}
	var known string
	misplaced, isKey := l.misplaced(e.key)
	switch {
	case isKey:
		l.errorf(e.at, key, misplaced, "%q is no header: its value would be sent to every client", clip(e.key))
	case headerName(&known).parse(e.key) != nil || e.key == "":
		l.errorf(e.at, key, "write a name such as X-Frame-Options", "%q is not the name of a header", clip(e.key))
	case slices.Contains(computedHeaders, name):
		l.errorf(e.at, key, advice, "%s is a header that the gateway computes", clip(e.key))
	case hasControl(e.value):
		l.errorf(e.at, key, "remove them", "%s holds control characters and cannot be sent as a header", clip(e.key))
	case name == allowCredentials:
		l.credentials(e, files)
	default:
		if r := checkCacheControl(e.value); name == "Cache-Control" && r != nil {
			l.addValue(e, i18n.Plain(shown(e.value)), r)
		}
		l.keep(e)
		return HeaderField{name, e.value}, true
	}
	return field, false
}

// misplaced returns a fix for a name in [headers] that is the name of a key, is near to one, or has
// a dot.
func (l *loader) misplaced(name string) (fix i18n.Text, ok bool) {
	name = strings.ToLower(name)
	if home, ok := l.homeOf(name); ok {
		return home, true
	}
	if !strings.ContainsAny(name, "._") {
		return fix, false
	}
	for full, s := range l.c.settings() {
		if _, ok := Nearest(name, []string{s.key}); ok {
			return i18n.Sprintf("did you mean %s (%s)?", full, i18n.Plain(s.doc)), true
		}
	}
	return i18n.Plain("write a name such as X-Frame-Options"), strings.Contains(name, ".")
}

// credentials reads Access-Control-Allow-Credentials, which responses to preflight requests and
// errors need as well.
func (l *loader) credentials(e entry, files fileselect.Selector) {
	key := full(e.section, e.key)
	origins := l.c.Gateway.CORSOrigins
	switch {
	case !files.IsEmpty():
		l.errorf(e.at, key, "write it in [headers]", "%s is for all files or none", allowCredentials)
	case e.value != "true" && e.value != "":
		l.errorf(e.at, key, "write true, or remove the line", "%s has no other value than true", allowCredentials)
	case e.value != "" && (len(origins) == 0 || slices.Contains(origins, "*")):
		l.errorf(e.at, key, "set cors_origin in [gateway] to a list of origins, such as https://www.example.com",
			"%s needs the origins that are allowed to use it: browsers accept it with none, and with * neither",
			allowCredentials)
	default:
		l.keep(e)
		l.c.Gateway.CORSCredentials = e.value != ""
	}
}

// origins parses *, or a comma list of origins (RFC 6454 section 6.1), and stores them in lower
// case.
func origins(p *[]string) field {
	const fix = "write *, or origins such as https://www.example.com with commas between them"
	list := commaList(p, func(part string) (string, *parseError) {
		u, err := url.Parse(part)
		switch {
		case part == "*", part == "null":
		case err != nil || u.Scheme == "" || u.Host == "" || !strings.EqualFold(part, u.Scheme+"://"+u.Host):
			return "", invalid(fix, "holds %s, which is no origin", shown(part))
		}
		return strings.ToLower(part), nil
	})
	return list.then(func(string) *parseError {
		if len(*p) > 1 && slices.Contains(*p, "*") {
			return invalid(fix, "holds * beside other origins")
		}
		return nil
	})
}

// reservedParameters are the query parameters that have another meaning.
var reservedParameters = []string{"token", "ts", "start", "end", "redirect"}

// parameters parses a comma list of names of query parameters.
func parameters(p *[]string) field {
	return commaList(p, func(part string) (string, *parseError) {
		var name string
		if part == "" || token(&name, "-._~", "", "").parse(part) != nil {
			return "", invalid("write names such as filename with commas between them",
				"holds %s, which is no name of a parameter", shown(part))
		}
		if slices.Contains(reservedParameters, part) {
			return "", invalid("choose another name", "holds %s, which has another meaning", part)
		}
		return part, nil
	})
}

// Directives of Cache-Control in responses (RFC 9111 section 5.2.2, RFC 5861, RFC 8246), without
// and with a number of seconds.
var (
	plainDirectives = []string{"public", "private", "no-cache", "no-store", "no-transform", "must-revalidate",
		"proxy-revalidate", "must-understand", "immutable"}
	timedDirectives = []string{"max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"}
)

// cacheControl parses a value of Cache-Control. It is sent as it is: a cache ignores what it does
// not know.
func cacheControl(p *string) field { return header(p).then(checkCacheControl) }

// checkCacheControl returns a Warning for a directive that no cache knows.
func checkCacheControl(v string) *parseError {
	for _, directive := range splitList(v) {
		name, argument, _ := strings.Cut(directive, "=")
		name = strings.ToLower(strings.Trim(name, blanks))
		_, err := strconv.ParseUint(strings.Trim(argument, `"`), 10, 31)
		if !slices.Contains(plainDirectives, name) && !(slices.Contains(timedDirectives, name) && err == nil) {
			return questionable("write directives such as public, max-age=2592000", "holds %s, which no cache knows",
				shown(directive))
		}
	}
	return nil
}
