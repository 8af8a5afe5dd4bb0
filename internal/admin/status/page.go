package status

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"fmt"
	"html/template"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Page is a snapshot, and the input and the result of the forms of the page.
type Page struct {
	Snapshot
	Language    i18n.Language // empty = English
	Asked       string        // URL or file id to explain; empty = none
	Explanation string
	Purge       string // file id to purge; empty = none
	Confirm     bool   // ask whether to purge it
	Purged      *Result
}

// Result is the result of a purge.
type Result struct {
	State State
	Title i18n.Text
	Text  i18n.Text
}

//go:embed page.html
var pageText string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// Policy is the Content-Security-Policy of the page. It allows the page's own style and script, and
// nothing from other origins.
var Policy = "default-src 'none'; style-src '" + hashOf(pageCSS) + "'; script-src '" + hashOf(pageJS) +
	"'; img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// hashOf returns the source expression for an inline style or script (CSP Level 3 section 2.3.1).
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// maxLocks is the number of locks that the page shows.
const maxLocks = 50

// view is the input of the template: a page, and values that are computed once from it.
type view struct {
	Page
	Name              string // of the gateway in headings
	Verdict           Verdict
	Plots             []Plot
	Written, Defaults []Setting
	MoreLocks         int
	CSS               template.CSS
	JS                template.JS
}

// IconColor is the color of the icon, in hexadecimal digits.
func (v view) IconColor() string {
	return map[State]string{Good: "2da160", Warn: "e09f2c", Bad: "d93f34"}[v.Verdict.State]
}

func viewOf(p Page) view {
	v := view{Page: p, Name: p.Listen, Verdict: p.Verdict(), Plots: p.Traffic.Plots(p.At, p.Language),
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS)} // both are embedded
	if p.Fleet != nil {
		for _, g := range p.Fleet.Gateways {
			if g.Self {
				v.Name = g.Name
			}
		}
	}
	for _, s := range p.Settings {
		if s.Default {
			v.Defaults = append(v.Defaults, s)
		} else {
			v.Written = append(v.Written, s)
		}
	}
	if v.MoreLocks = max(len(p.Locks)-maxLocks, 0); v.MoreLocks > 0 {
		v.Locks = p.Locks[:maxLocks]
	}
	return v
}

// Render returns the page in HTML. The response must have Policy.
func Render(p Page) ([]byte, error) { return render("page", p) }

// RenderLive returns the part of the page that changes.
func RenderLive(s Snapshot, l i18n.Language) ([]byte, error) {
	return render("live", Page{Snapshot: s, Language: l})
}

func render(name string, p Page) ([]byte, error) {
	p.Language = cmp.Or(p.Language, i18n.English)
	var b bytes.Buffer
	if err := templates[p.Language]().ExecuteTemplate(&b, name, viewOf(p)); err != nil {
		return nil, fmt.Errorf("cannot write the status page: %w", err)
	}
	return b.Bytes(), nil
}

// width returns the width of the used part of a bar, from 0 to 100.
func width(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) }

// pillOf is a state with the text that describes it.
type pillOf struct{ Class, Text string }

// serverRow is a row of the table of servers.
type serverRow struct {
	Server
	Kind string
	At   time.Time
}

// templates are the page by language, parsed at their first use.
var templates = map[i18n.Language]func() *template.Template{
	i18n.English: sync.OnceValue(func() *template.Template { return newTemplate(i18n.English) }),
	i18n.Chinese: sync.OnceValue(func() *template.Template { return newTemplate(i18n.Chinese) }),
}

// newTemplate parses the page. In the template, t translates a format with its arguments, in
// translates a Text, and doc translates the meaning of a key.
func newTemplate(l i18n.Language) *template.Template {
	return template.Must(template.New("status").Funcs(template.FuncMap{
		"t":      func(format string, args ...any) string { return i18n.Sprintf(format, args...).In(l) },
		"in":     func(text i18n.Text) string { return text.In(l) },
		"why":    func(a Announcement) string { return a.In(l) },
		"doc":    l.Translate,
		"age":    func(d time.Duration) string { return Age(d).In(l) },
		"number": number, "percent": percent, "seconds": seconds, "width": width, "count": count,
		"bytes":   Bytes,
		"clock":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"rfc3339": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"isError": func(l slog.Level) bool { return l >= slog.LevelError },
		"meter":   func(used, limit int64) Budget { return Budget{Used: used, Max: limit} },
		"row":     func(s Server, kind string, at time.Time) serverRow { return serverRow{s, kind, at} },
		"group":   groupName,
		"pill": func(state any, text string) pillOf {
			if s, ok := state.(State); ok {
				return pillOf{s.String(), text}
			}
			return pillOf{state.(string), text}
		},
		"stateText": func(s State) string {
			return [...]i18n.Text{i18n.Plain("healthy"), i18n.Plain("idle"), i18n.Plain("degraded"),
				i18n.Plain("failing")}[min(s, Bad)].In(l)
		},
	}).Parse(pageText))
}
