package demo

import (
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/tools/demo/storewriter"
)

// files writes all files below dir, with the creation time, and returns the list of them.
func files(dir string, created time.Time) ([]File, error) {
	w := storewriter.Writer{Root: func(_ string, index int) string { return storePath(dir, index) }, Created: created}
	slot := i18n.Plain("in a slot of a trunk file")
	var list []File
	for _, f := range []struct {
		kind      fdfs.Kind
		storePath int
		ext       string
		content   []byte
		about     File
	}{
		{fdfs.KindNormal, 0, "jpg", asset("picture.jpg"),
			File{Title: i18n.Plain("picture"), ContentType: "image/jpeg",
				Note: i18n.Plain("a normal file")}},
		{fdfs.KindSlave, 0, "jpg", asset("thumbnail.jpg"),
			File{Title: i18n.Plain("thumbnail"), ContentType: "image/jpeg",
				Note: i18n.Plain("a slave file of the picture")}},
		{fdfs.KindNormal, 0, "webm", asset("film.webm"),
			File{Title: i18n.Plain("film"), ContentType: "video/webm",
				Note: i18n.Plain("seek in it: the player asks for ranges")}},
		{fdfs.KindNormal, 0, "flv", asset("film.flv"),
			File{Title: i18n.Plain("flv film"), ContentType: "video/x-flv",
				Note: i18n.Plain("for players that ask by ?start=100000")}},
		{fdfs.KindNormal, 1, "ogg", asset("sound.ogg"),
			File{Title: i18n.Plain("sound"), ContentType: "audio/ogg",
				Note: i18n.Plain("in the second store path")}},
		{fdfs.KindNormal, 0, "txt", longText(),
			File{Title: i18n.Plain("long text"), ContentType: "text/plain",
				Note: i18n.Plain("try ranges: curl -r 0-99, or -r 0-9,100-109")}},
		{fdfs.KindAppender, 1, "log", growingLog(created),
			File{Title: i18n.Plain("log"), ContentType: "text/plain",
				Note: i18n.Plain("an appender file: append to it and ask again")}},
		{fdfs.KindTrunk, 0, "txt", []byte("This text shares trunk file 000001 with its neighbours.\n"),
			File{Title: i18n.Plain("packed text"), ContentType: "text/plain", Note: slot}},
		{fdfs.KindTrunk, 0, "svg", asset("drawing.svg"),
			File{Title: i18n.Plain("packed drawing"), ContentType: "image/svg+xml", Note: slot}},
		{fdfs.KindTrunk, 0, "png", asset("icon.png"),
			File{Title: i18n.Plain("packed picture"), ContentType: "image/png", Note: slot}},
		{fdfs.KindTrunk, 0, "json", []byte(`{"packed": true, "trunk file": 1}` + "\n"),
			File{Title: i18n.Plain("packed data"), ContentType: "application/json", Note: slot}},
	} {
		id, err := put(&w, list, f.kind, f.storePath, f.ext, f.content)
		if err != nil {
			return nil, i18n.Errorf("cannot write demonstration store: %w", err)
		}
		f.about.ID, f.about.Size = id, int64(len(f.content))
		list = append(list, f.about)
	}
	return list, nil
}

// put writes one file; a slave belongs to the last file before it.
func put(w *storewriter.Writer, before []File, kind fdfs.Kind, storePath int, ext string, content []byte) (
	fdfs.FileID, error) {
	if kind == fdfs.KindSlave {
		return w.PutSlave(before[len(before)-1].ID, "_240x160", ext, content)
	}
	f := w.Fields(kind, ext, content)
	f.PathIndex = storePath
	if kind == fdfs.KindTrunk {
		f.High, f.Low = 1, 0 // the folders of the trunk file
		w.NextSlot(&f)
	}
	return w.Put(f, content)
}
