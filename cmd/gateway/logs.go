package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"fastdfs-gateway/internal/config"
)

// logFile is where the log goes: a file that can be opened anew after logrotate has moved it away, or standard error.
type logFile struct {
	level slog.LevelVar

	mu   sync.Mutex // guards file
	file *os.File
}

// Write implements io.Writer.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Write(p)
}

// use sends the log to path from now on, opening it anew; empty is standard error, "-" standard output.
func (l *logFile) use(path string) error {
	file := os.Stderr
	switch path {
	case "":
	case "-":
		file = os.Stdout
	default:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return fmt.Errorf("cannot open the log: %w", err)
		}
		file = f
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	l.file = file
	if old != nil && old != os.Stderr && old != os.Stdout {
		return old.Close()
	}
	return nil
}

// close closes the log file and leaves standard error in its place.
func (l *logFile) close() error { return l.use("") }

// logger returns a logger that writes to l and obeys its level.
func (l *logFile) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: &l.level}))
}

// logProblems writes what is wrong with a configuration, each problem at its own level.
func logProblems(log *slog.Logger, problems []config.Problem) {
	for _, p := range problems {
		level := slog.LevelWarn
		if p.Severity == config.Error {
			level = slog.LevelError
		}
		log.Log(context.Background(), level, p.String())
	}
}
