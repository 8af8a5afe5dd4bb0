package demo

import (
	"fmt"

	"fastdfs-gateway/internal/fdfs"
)

// files writes all files.
func (w *writer) files() error {
	for _, step := range []func() error{w.pictures, w.media, w.texts, w.packed} {
		if err := step(); err != nil {
			return fmt.Errorf("cannot write demonstration store: %w", err)
		}
	}
	return nil
}

func (w *writer) pictures() error {
	id, err := w.plain(fdfs.KindNormal, 0, "jpg", asset("picture.jpg"), File{
		Title: "picture", ContentType: "image/jpeg", Note: "a normal file"})
	if err != nil {
		return err
	}
	thumbnail, err := w.PutSlave(id, "_240x160", "jpg", asset("thumbnail.jpg"))
	w.add(thumbnail, asset("thumbnail.jpg"), File{
		Title: "thumbnail", ContentType: "image/jpeg", Note: "a slave file of the picture"})
	return err
}

func (w *writer) media() error {
	for _, f := range []struct {
		ext, path string
		about     File
	}{
		{"webm", "film.webm", File{Title: "film", ContentType: "video/webm",
			Note: "seek in it: the player asks for ranges"}},
		{"flv", "film.flv", File{Title: "flv film", ContentType: "video/x-flv",
			Note: "for players that ask by ?start=100000"}},
		{"ogg", "sound.ogg", File{Title: "sound", ContentType: "audio/ogg", Note: "in the second store path"}},
	} {
		index := 0
		if f.ext == "ogg" {
			index = 1
		}
		if _, err := w.plain(fdfs.KindNormal, index, f.ext, asset(f.path), f.about); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) texts() error {
	_, err := w.plain(fdfs.KindNormal, 0, "txt", longText(), File{
		Title: "long text", ContentType: "text/plain", Note: "try ranges: curl -r 0-99, or -r 0-9,100-109"})
	if err != nil {
		return err
	}
	_, err = w.plain(fdfs.KindAppender, 1, "log", growingLog(w.Created), File{
		Title: "log", ContentType: "text/plain", Note: "an appender file: append to it and ask again"})
	return err
}

func (w *writer) packed() error {
	for _, f := range []struct {
		ext, title, typ string
		content         []byte
	}{
		{"txt", "packed text", "text/plain", []byte("This text shares trunk file 000001 with its neighbours.\n")},
		{"svg", "packed drawing", "image/svg+xml", []byte(drawing)},
		{"png", "packed picture", "image/png", asset("icon.png")},
		{"json", "packed data", "application/json", []byte(`{"packed": true, "trunk file": 1}` + "\n")},
	} {
		err := w.pack(f.ext, f.content, File{Title: f.title, ContentType: f.typ, Note: "in a slot of a trunk file"})
		if err != nil {
			return err
		}
	}
	return nil
}
