// Package logfile writes log lines to a file, so that no request waits for the disk.
//
//	w, err := logfile.Open("/var/log/gateway/access.log", time.Second)
//	fmt.Fprintln(w, "one line a call")
//	err = w.Use("/var/log/gateway/access.log") // after logrotate has moved it away
//
// A goroutine writes the lines from a bounded buffer. While a disk is full or a pipe has no reader,
// lines are lost and counted. After a line that was written in part, the next one begins on a new
// line.
package logfile

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// maxPending bounds the lines that wait to be written, in bytes.
const maxPending = 1 << 20

// eager is the size of the pending lines, in bytes, from which on they are written before the delay
// is over.
const eager = 64 << 10

// closeWait bounds the wait of Close for a blocked write.
const closeWait = 2 * time.Second

// Writer is a log. It is safe for concurrent use.
type Writer struct {
	delay time.Duration
	lost  atomic.Uint64
	wake  chan struct{} // ends the delay
	stop  chan struct{}
	done  chan struct{}

	mu      sync.Mutex // guards the fields below
	file    *os.File   // only run writes to it
	retired []*os.File // to be closed by run
	pending []byte     // whole lines

	spare  []byte // the buffer that the next flush exchanges for pending; only run uses it
	broken bool   // the last write ended within a line; only run uses it
}

// Open opens a log that appends to the file at path, and creates a missing one. "-" is standard
// output and "" standard error. Lines are buffered for the delay; 0 = each line is written at once.
func Open(path string, delay time.Duration) (*Writer, error) {
	w := &Writer{delay: delay, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if err := w.Use(path); err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// Use opens path as Open does, and writes further lines to it. After an error the file in use
// stays.
func (w *Writer) Use(path string) error {
	f, err := OpenFile(path)
	if err == nil {
		w.UseFile(f)
	}
	return err
}

// UseFile writes further lines to f, which the Writer closes.
func (w *Writer) UseFile(f *os.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		w.retired = append(w.retired, w.file)
	}
	w.file = f
	w.nudge()
}

// Reopen calls Use with the path in use.
func (w *Writer) Reopen() error {
	w.mu.Lock()
	file := w.file
	w.mu.Unlock()
	if isStandard(file) {
		return nil
	}
	return w.Use(file.Name())
}

func isStandard(file *os.File) bool { return file == os.Stdout || file == os.Stderr }

// CloseFile closes a file of OpenFile that no Writer uses, and leaves standard output and error
// open.
func CloseFile(file *os.File) error {
	if isStandard(file) {
		return nil
	}
	return file.Close()
}

// OpenFile opens a file as Open does. A FIFO that no program reads is an error: its open would wait
// for one.
func OpenFile(path string) (*os.File, error) {
	switch path {
	case "":
		return os.Stderr, nil
	case "-":
		return os.Stdout, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o640)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return nil, i18n.Errorf("cannot open log %s: it is a FIFO that no program reads", path)
	case err != nil:
		return nil, i18n.Errorf("cannot open log: %w", err)
	}
	return f, nil
}

// Write adds whole lines to the buffer. It never blocks and never fails: lines that do not fit are
// lost, and counted by Lost.
func (w *Writer) Write(lines []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending)+len(lines) > maxPending {
		w.lost.Add(uint64(bytes.Count(lines, newline)))
		return len(lines), nil
	}
	w.pending = append(w.pending, lines...)
	if w.delay == 0 || len(w.pending) >= eager {
		w.nudge()
	}
	return len(lines), nil
}

var newline = []byte{'\n'}

func (w *Writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // run is awake already
	}
}

// Lost returns the number of lost lines.
func (w *Writer) Lost() uint64 { return w.lost.Load() }

// Close writes the pending lines and closes the file. It waits for at most closeWait.
func (w *Writer) Close() error {
	close(w.stop)
	select {
	case <-w.done:
		return nil
	case <-time.After(closeWait):
		return i18n.Errorf("cannot end the log: its file or pipe accepts no data")
	}
}

// run is the only goroutine that writes to files.
func (w *Writer) run() {
	defer close(w.done)
	var tick <-chan time.Time
	if w.delay > 0 {
		ticker := time.NewTicker(w.delay)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-w.stop:
			_ = CloseFile(w.flush()) // all that could be written is written
			return
		case <-w.wake:
		case <-tick:
		}
		w.flush()
	}
}

// flush writes the pending lines, closes retired files, and returns the file in use.
func (w *Writer) flush() *os.File {
	w.mu.Lock()
	lines, file, retired := w.pending, w.file, w.retired
	w.pending, w.retired = w.spare[:0], nil
	w.mu.Unlock()
	w.writeTo(file, lines)
	w.spare = lines
	for _, f := range retired {
		_ = CloseFile(f) // all that could be written is written
	}
	return file
}

func (w *Writer) writeTo(file *os.File, lines []byte) {
	if len(lines) == 0 {
		return
	}
	if w.broken {
		if _, err := file.Write(newline); err != nil {
			w.lost.Add(uint64(bytes.Count(lines, newline)))
			return
		}
		w.broken = false
	}
	n, err := file.Write(lines)
	if err != nil {
		w.lost.Add(uint64(bytes.Count(lines[n:], newline)))
		w.broken = n > 0 && lines[n-1] != '\n'
	}
}
