package status

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		l := NewLog()
		log := slog.New(l.Handler(slog.NewTextHandler(&written, &slog.HandlerOptions{Level: slog.LevelError})))
		log.Info("nothing to remember")
		log.With("storage", "10.0.0.1:23000").WithGroup("g").Warn("storage is dead", "error", fmt.Errorf("no route"),
			"left_out_before", 3)
		time.Sleep(time.Second)
		for range 3 {
			log.Error("disk failed", slog.Group("disk", "path", "/cache"))
		}
		got := l.Entries()
		require.Len(t, got, 2)
		require.Equal(t, "disk failed", got[0].Text)
		require.Equal(t, "disk.path=/cache", got[0].Detail)
		require.Equal(t, slog.LevelError, got[0].Level)
		require.Equal(t, 3, got[0].Count)
		require.Equal(t, "storage is dead", got[1].Text)
		require.Equal(t, "storage=10.0.0.1:23000 g.error=no route", got[1].Detail)
		require.Equal(t, time.Second, got[0].Last.Sub(got[1].Last))
		require.Equal(t, 3, strings.Count(written.String(), "\n"), "the level of the log counts for what is written")
	})
}

// TestLogIsBounded: new entries replace the oldest ones, and long texts are cut.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog()
		log := slog.New(l.Handler(slog.DiscardHandler))
		for i := range 3 * maxEntries {
			log.Warn(fmt.Sprintf("message %d", i), "long", strings.Repeat("ä", maxText))
			time.Sleep(time.Millisecond)
		}
		got := l.Entries()
		require.Len(t, got, maxEntries)
		require.Equal(t, fmt.Sprintf("message %d", 3*maxEntries-1), got[0].Text)
		require.LessOrEqual(t, len(got[0].Detail), maxText)
		require.True(t, strings.HasSuffix(got[0].Detail, "ä…"), "cut at a rune")
	})
}

// TestLogIsGrouped: many equal warnings about different files, which one client can cause, do not
// replace the other entries.
func TestLogIsGrouped(t *testing.T) {
	l := NewLog()
	log := slog.New(l.Handler(slog.DiscardHandler))
	log.Error("the disk has failed", "path", "/cache")
	for i := range 3 * maxEntries {
		log.Warn("cannot serve a file", "target", fmt.Sprintf("/group1/%d", i))
	}
	got := l.Entries()
	require.Len(t, got, 2)
	require.Equal(t, 3*maxEntries, got[0].Count)
	require.Equal(t, fmt.Sprintf("target=/group1/%d", 3*maxEntries-1), got[0].Detail, "of the last one")
	require.Equal(t, "the disk has failed", got[1].Text)
}

func TestLogMasksSecrets(t *testing.T) {
	l := NewLog()
	l.SetSecrets([]string{"", "hush", "hush hush"})
	log := slog.New(l.Handler(slog.DiscardHandler))
	for text, want := range map[string]string{
		"cannot use hush":                           "cannot use ***",
		"cannot use hush hush":                      "cannot use ***",
		"GET /a.jpg?token=0123abc&ts=1 failed":      "GET /a.jpg?token=***&ts=1 failed",
		"GET /a.jpg?TOKEN=0123abc":                  "GET /a.jpg?TOKEN=***",
		`secret: "a b", then`:                       "secret: ***, then",
		"redis://me:pass@10.0.0.1:6379 is away":     "redis://me:***@10.0.0.1:6379 is away",
		"dial https://10.0.0.1:8887/entry: refused": "dial https://10.0.0.1:8887/entry: refused",
		"Authorization: Bearer abc.def":             "Authorization: Bearer ***",
		"the token of admin_token_file is wanted":   "the token of admin_token_file is wanted",
	} {
		log.Warn(text)
		log.Warn("attribute", "err", text)
		got := l.Entries()
		require.Contains(t, []string{got[0].Text, got[1].Text}, want)
		require.Contains(t, []string{got[0].Detail, got[1].Detail}, "err="+want)
	}
	for _, e := range l.Entries() {
		require.NotContains(t, e.Text+e.Detail, "hush")
	}
}
