package migrate

import (
	"regexp"
	"slices"
	"strings"

	"fastdfs-gateway/internal/httpserver/logtemplate"
)

// combined is the format of nginx with that name.
const combined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" ` +
	`"$http_user_agent"`

// translateLogs writes the access log of the servers, and the kinds of files without one.
func (t *translator) translateLogs() {
	for _, s := range t.servers {
		t.done(named(s.d.block, "access_log")...)
	}
	t.done(named(t.http, "access_log", "log_format")...)
	values, from := t.perCell(false, func(s *server, o outcome) attribute {
		logs := inForce(s.chain(o.loc), "access_log")
		t.done(logs...)
		switch {
		case len(logs) == 0:
			return attribute{}
		case logs[0].arg(0) == "off" || logs[0].arg(0) == "/dev/null":
			return attribute{"off", logs}
		}
		return attribute{strings.Join(logs[0].args, " "), logs}
	})
	value, ok := t.universe.commonest(values, func(c cell) bool { return values[c] != "off" && values[c] != "" })
	if !ok {
		return
	}
	t.accessLog(from[value], inForce(t.servers[0].chain(nil), "access_log"))
	var except []string
	for _, c := range t.universe.spread(values) {
		switch {
		case c.value == "off" && !c.forAll():
			except = append(except, strings.TrimSpace(c.name("")))
		case c.value != value:
			for _, d := range from[c.value] {
				t.say(d, "one log has the lines of all files", "")
			}
		}
	}
	if len(except) > 0 {
		t.out.set("gateway", "access_log_except", strings.Join(except, ", "), from["off"]...)
	}
}

// accessLog writes the first log of a list; others are findings.
func (t *translator) accessLog(logs, main []*directive) {
	d := logs[0]
	for _, other := range logs[1:] {
		if !slices.Contains(main, other) || len(main) > 1 {
			t.say(other, "there is one access log", "")
		}
	}
	path := d.arg(0)
	switch {
	case strings.HasPrefix(path, "syslog:"), strings.Contains(path, "$"):
		t.say(d, "the access log is a file or standard output", "set access_log = - and let the journal collect it")
		path = "-"
	case !strings.HasPrefix(path, "/"):
		t.say(d, "the folder of nginx is not known here, so the log goes to standard output",
			"set access_log to a path")
		path = "-"
	case !t.Writable(path):
		t.say(d, "this host has no folder for the log, so it goes to standard output", "set access_log = "+path)
		path = "-"
	}
	t.out.set("gateway", "access_log", path, d)
	for _, a := range d.args[1:] {
		if variable, ok := strings.CutPrefix(a, "if="); ok {
			t.say(d, "the condition if="+variable+" is not translated: all requests are logged",
				"leave out files by access_log_except, and health checks by health_path")
			if m := t.mapOf(variable); m != nil {
				t.say(m, "it decides which requests are logged; all are", "")
				t.doneAll(m)
			}
		}
	}
	if format := d.arg(1); format != "" && !strings.Contains(format, "=") {
		t.logFormat(format)
	}
}

// braced is a variable in braces that needs none.
var braced = regexp.MustCompile(`\$\{([a-z0-9_]+)\}([^A-Za-z0-9_]|$)`)

// logFormat writes the template of a format.
func (t *translator) logFormat(name string) {
	i := slices.IndexFunc(t.http, func(d *directive) bool { return d.name == "log_format" && d.arg(0) == name })
	if i < 0 {
		return // combined
	}
	d := t.http[i]
	parts := slices.DeleteFunc(slices.Clone(d.args[1:]), func(a string) bool { return strings.HasPrefix(a, "escape=") })
	template := braced.ReplaceAllString(strings.Join(parts, ""), "$$$1$2")
	if tabs := strings.ReplaceAll(template, `\t`, " "); tabs != template {
		t.note(d, "the fields are separated by blanks, not by tabs", "")
		template = tabs
	}
	if template == combined {
		t.out.set("gateway", "access_log_format", "combined", d)
		return
	}
	if _, err := logtemplate.Parse(template); err != nil {
		kind := "combined"
		if strings.HasPrefix(template, "{") {
			kind = "json"
		}
		t.say(d, "the lines are those of "+kind+": "+err.Error(), "")
		template = kind
	}
	t.out.set("gateway", "access_log_format", template, d)
}
