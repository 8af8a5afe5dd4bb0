package gateway

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLimitLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := LimitLog(slog.New(slog.NewTextHandler(&out, nil)))
		for range 100 {
			log.With("host", "a").Error("again")
		}
		require.Equal(t, 20, strings.Count(out.String(), "\n"))
		time.Sleep(300 * time.Millisecond) // room for another one
		out.Reset()
		log.Error("later")
		require.Contains(t, out.String(), "left_out_before=80")
		log.Error("at once")
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
	})
}
