package admin

import (
	"encoding/json"
	"html/template"
	"net/http"
)

// statusPage shows the same as /status.json to people: a table of names and values, made anew every
// five seconds.
var statusTemplate = template.Must(template.New("status").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5"><title>fastdfs-gateway</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;width:100%;margin-bottom:2em}th,td{text-align:left;padding:.2em .8em;border-bottom:1px solid #ddd;vertical-align:top}
th{width:40%;font-weight:normal;color:#555}h2{font-size:1.1em}pre{margin:0;white-space:pre-wrap}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}th{color:#aaa}th,td{border-color:#333}}</style></head>
<body><h1>fastdfs-gateway</h1>
{{range $section, $values := .}}<h2>{{$section}}</h2><table>
{{range $name, $value := $values}}<tr><th>{{$name}}</th><td><pre>{{$value}}</pre></td></tr>
{{end}}</table>{{end}}</body></html>
`))

func (a *Cache) statusPage(w http.ResponseWriter, req *http.Request) {
	sections, err := sectionsOf(a.Status(req.Context()))
	if err != nil {
		write(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_ = statusTemplate.Execute(w, sections) // a client that left needs no answer
}

// sectionsOf turns a status of objects into what the page shows.
func sectionsOf(status any) (map[string]map[string]string, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	var raw map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	sections := make(map[string]map[string]string, len(raw))
	for section, values := range raw {
		sections[section] = make(map[string]string, len(values))
		for name, value := range values {
			addRows(sections[section], name, value)
		}
	}
	return sections, nil
}

// addRows adds a value, or those of an object under its name.
func addRows(rows map[string]string, name string, value json.RawMessage) {
	var object map[string]json.RawMessage
	var text string
	switch {
	case json.Unmarshal(value, &text) == nil && text != "":
		rows[name] = text
	case json.Unmarshal(value, &object) == nil && len(object) > 0:
		for inner, value := range object {
			addRows(rows, name+" "+inner, value)
		}
	case string(value) == "null", string(value) == `""`, string(value) == "{}":
		rows[name] = "none"
	default:
		rows[name] = string(value)
	}
}
