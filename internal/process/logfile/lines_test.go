package logfile

import (
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

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
