package logfile

import (
	"bytes"
	"log"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := Limit(slog.New(slog.NewTextHandler(&out, nil)))
		for range 100 {
			log.With("host", "a").Error("again")
		}
		require.Equal(t, 20, strings.Count(out.String(), "\n"))
		time.Sleep(300 * time.Millisecond) // time for one more line
		out.Reset()
		log.Error("later")
		require.Contains(t, out.String(), "left_out_before=80")
		log.Error("at once")
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
	})
}

// TestWarner: each subject has at most one warning a minute.
func TestWarner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		w := NewWarner(slog.New(slog.NewTextHandler(&out, nil)))
		for range 3 {
			w.Warn("a", "fails")
			w.Warn("b", "fails", "why", 5)
		}
		require.Equal(t, 2, strings.Count(out.String(), "fails"))
		time.Sleep(warnEvery)
		w.Warn("a", "fails")
		require.Equal(t, 3, strings.Count(out.String(), "fails"))
		for i := range 2 * maxSubjects {
			w.Warn(strconv.Itoa(i), "fails")
			require.LessOrEqual(t, len(w.last), maxSubjects)
		}
	})
}

// TestLines: text that a library writes to a standard logger is cut, limited, and in one line.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		logger := log.New(Lines(Limit(slog.New(slog.NewTextHandler(&out, nil))), "a library reports"), "", 0)
		for range 100 {
			logger.Printf("Unsolicited response: %q\nlevel=ERROR", strings.Repeat("x", 120<<10))
		}
		require.Equal(t, 20, strings.Count(out.String(), "\n"))
		require.Less(t, out.Len(), 20*(maxLine+200))
		require.Contains(t, out.String(), `level=WARN msg="a library reports" text="Unsolicited response: `)
	})
}
