package demo

import (
	"bytes"
	_ "embed" // for the page
	"fmt"
	"html/template"
	"strings"

	"fastdfs-gateway/internal/admin/status"
)

// Links are shown on the index page beside the files.
type Links struct {
	Status   string // URL of the status page; empty = none
	Rejected string // URL of a file whose token is missing
	Token    string // URL of the same file with a good token
}

//go:embed index.html
var indexText string

var indexTemplate = template.Must(template.New("index").Funcs(template.FuncMap{
	"is":   func(f File, kind string) bool { return strings.HasPrefix(f.ContentType, kind+"/") },
	"size": status.Bytes,
	"presets": func() []template.URL { // of [image] in the configuration
		return []template.URL{"p=square", "p=wide", "w=160"}
	},
	"name": func(f File) string { return strings.ReplaceAll(f.Title.String(), " ", "-") + "." + f.ID.Ext() },
}).Parse(indexText))

// Index returns a page in HTML that shows the files of the store. It needs no scripts.
func (s Store) Index(l Links) ([]byte, error) {
	var b bytes.Buffer
	err := indexTemplate.Execute(&b, struct {
		Links
		Files []File
	}{l, s.Files})
	if err != nil {
		return nil, fmt.Errorf("cannot write the index page: %w", err)
	}
	return b.Bytes(), nil
}
