package demo

import (
	"bytes"
	_ "embed" // for the page
	"fmt"
	"html/template"
	"strings"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/i18n"
)

// Links are shown on the index page beside the files.
type Links struct {
	Status   string // URL of the status page; empty = none
	Rejected string // URL of a file whose token is missing
	Token    string // URL of the same file with a good token
}

//go:embed index.html
var indexText string

// indexFuncs returns the functions of the page in a language.
func indexFuncs(l i18n.Language) template.FuncMap {
	return template.FuncMap{
		"tag":  l.Tag,
		"t":    func(sentence string) string { return i18n.Plain(sentence).In(l) },
		"in":   func(text i18n.Text) string { return text.In(l) },
		"is":   func(f File, kind string) bool { return strings.HasPrefix(f.ContentType, kind+"/") },
		"size": status.Bytes,
		"presets": func() []template.URL { // of [image] in the configuration
			return []template.URL{"p=square", "p=wide", "w=160"}
		},
		"name": func(f File) string { return strings.ReplaceAll(f.Title.String(), " ", "-") + "." + f.ID.Ext() },
	}
}

// Index returns a page in HTML that shows the files of the store. It needs no scripts.
func (s Store) Index(l Links, lang i18n.Language) ([]byte, error) {
	page, err := template.New("index").Funcs(indexFuncs(lang)).Parse(indexText)
	if err != nil {
		return nil, fmt.Errorf("cannot read the index page: %w", err)
	}
	var b bytes.Buffer
	err = page.Execute(&b, struct {
		Links
		Files []File
	}{l, s.Files})
	if err != nil {
		return nil, fmt.Errorf("cannot write the index page: %w", err)
	}
	return b.Bytes(), nil
}
