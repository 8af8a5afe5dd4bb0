package demo

import (
	"fmt"
	"html"
	"strings"

	"fastdfs-gateway/internal/fdfs"
)

// files writes all files; the page, which shows the others, comes first in the list.
func (w *writer) files() error {
	for _, step := range []func() error{w.pictures, w.texts, w.media, w.packed, w.page} {
		if err := step(); err != nil {
			return fmt.Errorf("cannot write demonstration store: %w", err)
		}
	}
	return nil
}

func (w *writer) pictures() error {
	large := landscape(960, 640)
	b, err := encodePNG(large)
	if err != nil {
		return err
	}
	id, err := w.plain(fdfs.KindNormal, 0, "png", b, File{
		Title: "picture", ContentType: "image/png", Note: "a normal file"})
	if err != nil {
		return err
	}
	small, err := encodePNG(shrink(large, 4))
	if err != nil {
		return err
	}
	thumbnail, err := fdfs.EncodeSlave(id, "_240x160", "png")
	if err != nil {
		return err
	}
	return w.store(thumbnail, small, File{
		Title: "thumbnail", ContentType: "image/png", Note: "a slave file of the picture"})
}

func (w *writer) texts() error {
	_, err := w.plain(fdfs.KindNormal, 0, "txt", longText(), File{
		Title: "text", ContentType: "text/plain", Note: "try ranges: curl -r 0-99, or -r 0-9,100-109"})
	if err != nil {
		return err
	}
	_, err = w.plain(fdfs.KindAppender, 1, "log", growingLog(w.time()), File{
		Title: "log", ContentType: "text/plain", Note: "an appender file, in the second store path: append to it and ask again"})
	return err
}

func (w *writer) media() error {
	_, err := w.plain(fdfs.KindNormal, 1, "wav", chord(), File{
		Title: "sound", ContentType: "audio/wav", Note: "plays in a browser; in the second store path"})
	if err != nil {
		return err
	}
	_, err = w.plain(fdfs.KindNormal, 0, "flv", film(), File{
		Title: "film", ContentType: "video/x-flv", Note: "noise with the frame of a flv film: try ?start=1000000, and ranges"})
	return err
}

func (w *writer) packed() error {
	icon, err := encodePNG(landscape(64, 64))
	if err != nil {
		return err
	}
	var last fdfs.FileID
	for _, f := range []struct {
		ext, title, typ string
		content         []byte
	}{
		{"txt", "packed text", "text/plain", []byte("This text shares trunk file 000001 with its neighbours.\n")},
		{"svg", "packed drawing", "image/svg+xml", []byte(drawing)},
		{"png", "packed picture", "image/png", icon},
		{"json", "packed data", "application/json", []byte(`{"packed": true, "trunk file": 1}` + "\n")},
	} {
		last, err = w.pack(f.ext, f.content, File{Title: f.title, ContentType: f.typ, Note: "in a slot of a trunk file"})
		if err != nil {
			return err
		}
	}
	return w.flush(last)
}

// page writes the page with all other files and moves it to the head of the list.
func (w *writer) page() error {
	var b strings.Builder
	b.WriteString(pageHead)
	for _, f := range w.list {
		link := "/" + f.ID.String()
		fmt.Fprintf(&b, "<article><h2><a href=%q>%s</a></h2><p>%s, %d bytes, %s</p>", link,
			html.EscapeString(f.Title), html.EscapeString(f.ContentType), f.Size, html.EscapeString(f.Note))
		switch {
		case strings.HasPrefix(f.ContentType, "image/"):
			fmt.Fprintf(&b, "<a href=%q><img src=%q alt=%q></a>", link, link, f.Title)
		case strings.HasPrefix(f.ContentType, "audio/"):
			fmt.Fprintf(&b, "<audio controls preload=none src=%q></audio>", link)
		}
		fmt.Fprintf(&b, "<p><code>%s</code> <a href=\"%s?filename=%s.%s\">download</a></p></article>\n",
			f.ID, link, strings.ReplaceAll(f.Title, " ", "-"), f.ID.Ext())
	}
	b.WriteString("</main>\n")
	_, err := w.plain(fdfs.KindNormal, 0, "html", []byte(b.String()), File{
		Title: "page", ContentType: "text/html", Note: "shows all the others; its links have no tokens"})
	if err != nil {
		return err
	}
	last := len(w.list) - 1
	w.list = append([]File{w.list[last]}, w.list[:last]...)
	return nil
}

const pageHead = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>FastDFS gateway: demonstration store</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#223}
main{display:grid;grid-template-columns:repeat(auto-fill,minmax(18rem,1fr));gap:1rem}
article{border:1px solid #dde;border-radius:.5rem;padding:1rem;overflow-wrap:anywhere}
h2{margin:0;font-size:1.1rem}img{max-width:100%;border-radius:.3rem}code{font-size:.75rem}audio{width:100%}
</style>
<h1>Demonstration store</h1>
<p>All of these files were made by the program itself.</p>
<main>
`

const drawing = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 80">
<rect width="120" height="80" fill="#fdf6e3"/>
<circle cx="88" cy="26" r="14" fill="#f5a623"/>
<path d="M0 70 L36 26 L58 54 L76 36 L120 70 V80 H0 Z" fill="#3d5a80"/>
<path d="M36 26 L28 36 L35 33 L40 38 L45 37 Z" fill="#fff"/>
</svg>
`
