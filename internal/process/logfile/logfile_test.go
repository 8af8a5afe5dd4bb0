package logfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitBudget bounds the wait for an event that normally happens at once, on a machine under load.
const waitBudget = 30 * time.Second

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func TestLinesArrive(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, time.Hour} {
		path := filepath.Join(t.TempDir(), "log")
		w, err := Open(path, delay)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 100 {
					fmt.Fprintf(w, "line %d %d\n", i, j)
				}
			})
		}
		wg.Wait()
		if delay < time.Hour {
			eventually.True(t, func() bool { return strings.Count(content(t, path), "\n") == 800 })
		}
		require.NoError(t, w.Close())
		require.Equal(t, 800, strings.Count(content(t, path), "\n"), "Close writes what is waiting")
		require.Zero(t, w.Lost())
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w, err := Open(path, 0)
	require.NoError(t, err)
	fmt.Fprintln(w, "one")
	eventually.True(t, func() bool { return content(t, path) == "one\n" })
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, w.Reopen())
	fmt.Fprintln(w, "two")
	require.Error(t, w.Use(filepath.Join(path, "no", "folder")))
	fmt.Fprintln(w, "three")
	require.NoError(t, w.Close())
	require.Equal(t, "one\n", content(t, path+".1"))
	require.Equal(t, "two\nthree\n", content(t, path))

	standard, err := Open("-", 0)
	require.NoError(t, err)
	require.NoError(t, standard.Reopen())
	require.NoError(t, standard.Close())
	_, err = os.Stdout.Stat()
	require.NoError(t, err, "it stays open")
}

// TestFullDisk: a full device loses lines, and the log continues when space is free again.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w, err := Open("/dev/full", 0)
	require.NoError(t, err)
	fmt.Fprint(w, "lost 1\nlost 2\n")
	eventually.True(t, func() bool { return w.Lost() == 2 })
	require.NoError(t, w.Use(path))
	fmt.Fprintln(w, "kept")
	require.NoError(t, w.Close())
	require.Equal(t, "kept\n", content(t, path))
}

func TestFIFOWithoutReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := Open(path, 0)
	require.ErrorContains(t, err, "it is a FIFO that no program reads")
}

// TestStuckPipe: if a pipe has no reader, writers do not wait, memory is bounded, and Close returns
// after a while.
func TestStuckPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	require.NoError(t, err)
	w, err := Open(path, time.Millisecond)
	require.NoError(t, err)
	line := strings.Repeat("x", 9999) + "\n"
	began := time.Now()
	for range 1000 {
		fmt.Fprint(w, line)
	}
	require.Less(t, time.Since(began), waitBudget, "it would have been for ever")
	require.Positive(t, w.Lost())
	w.mu.Lock()
	require.LessOrEqual(t, len(w.pending), maxPending)
	w.mu.Unlock()
	require.Error(t, w.Close())
	require.NoError(t, unix.SetNonblock(fd, true))
	buf := make([]byte, 1<<20)
	eventually.True(t, func() bool { // reads, so that the writer ends
		_, _ = unix.Read(fd, buf)
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	})
	require.NoError(t, unix.Close(fd))
}

// TestHalfALine: after a write that ended within a line, the next write begins a new line.
func TestHalfALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.WriteString("half a li")
	require.NoError(t, err)
	w := &Writer{broken: true}
	w.writeTo(f, []byte("next\n"))
	require.NoError(t, f.Close())
	require.Equal(t, "half a li\nnext\n", content(t, path))
	w.writeTo(f, []byte("to a closed file\n"))
	require.EqualValues(t, 1, w.Lost())
}
