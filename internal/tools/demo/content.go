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

// asset returns the content of an embedded file.
func asset(name string) []byte {
	b, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// longText returns text of more than two segments of the cache; each line has its offset.
func longText() []byte {
	b := asset("long-head.txt")
	for i := range 180_000 {
		b = fmt.Appendf(b, "line %06d begins at byte %08d of this file .\n", i, len(b))
	}
	return b
}

// growingLog returns a log to which an application might have appended.
func growingLog(start time.Time) []byte {
	var b []byte
	for i := range 200 {
		at := start.Add(time.Duration(i) * time.Second).UTC().Format(time.RFC3339)
		b = fmt.Appendf(b, "%s level=info msg=\"job done\" job=%d took=%dms\n", at, i, 20+i*37%400)
	}
	return b
}
