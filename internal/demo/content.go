package demo

import (
	"embed"
	"fmt"
	"time"
)

// The picture was drawn by an earlier version of this package, the film pans over it with a clock
// in its corner, and the sound is a chord.
//
//go:embed assets
var assets embed.FS

// asset is the content of an embedded file.
func asset(name string) []byte {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// longText is text of more than two segments of the cache; each line tells where it begins.
func longText() []byte {
	b := []byte(textHead)
	for i := range 180_000 {
		b = fmt.Appendf(b, "line %06d begins at byte %08d of this file .\n", i, len(b))
	}
	return b
}

const textHead = `A file id names a file and tells its properties:

    group1/M00/00/0C/wKgABF5xyzmAAAAAAAAAAAAAAAA123.jpg

group1 is the group, M00 the first store path of its storage servers, 00/0C two
folders. The name holds the server that took the upload, the time, the size and
the CRC32 of the content. So a gateway knows the length and the age of most files
before it opens them, and that they never change.

The lines below are all of the same length.

`

// growingLog is a log that an application might have appended to.
func growingLog(start time.Time) []byte {
	var b []byte
	for i := range 200 {
		at := start.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339)
		b = fmt.Appendf(b, "%s level=info msg=\"job done\" job=%d took=%dms\n", at, i, 20+i*37%400)
	}
	return b
}

const drawing = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 80">
<rect width="120" height="80" fill="#fdf6e3"/>
<circle cx="88" cy="26" r="14" fill="#f5a623"/>
<path d="M0 70 L36 26 L58 54 L76 36 L120 70 V80 H0 Z" fill="#3d5a80"/>
<path d="M36 26 L28 36 L35 33 L40 38 L45 37 Z" fill="#fff"/>
</svg>
`
