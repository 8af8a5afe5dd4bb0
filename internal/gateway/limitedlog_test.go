package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimitLog(t *testing.T) {
	var out bytes.Buffer
	log := LimitLog(slog.New(slog.NewTextHandler(&out, nil)))
	for range 100 {
		log.With("host", "a").Error("again")
	}
	lines := strings.Count(out.String(), "\n")
	require.GreaterOrEqual(t, lines, 20)
	require.Less(t, lines, 40)
	time.Sleep(300 * time.Millisecond) // room for another one
	out.Reset()
	log.Error("later")
	require.Contains(t, out.String(), "left_out_before=")
}
