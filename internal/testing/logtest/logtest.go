// Package logtest collects the lines of a log for a test.
//
//	var log logtest.Buffer
//	f := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
//	require.Equal(t, 1, log.Count("redis serves again"))
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer records the bytes that are written to it. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the recorded bytes.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns the number of times that a text was written.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }
