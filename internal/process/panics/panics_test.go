package panics

import (
	"bytes"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPanicsAreContained(t *testing.T) {
	var log bytes.Buffer
	SetLog(slog.New(slog.NewTextHandler(&log, nil)))
	defer SetLog(nil)
	before := Total()
	func() {
		defer Contain("hearing a message")
		panic("first")
	}()
	err := func() (err error) {
		defer ToError(&err, "reading a response")
		var nothing []int
		_ = nothing[len(log.Bytes())]
		return nil
	}()
	require.ErrorIs(t, err, Err)
	require.EqualError(t, err, "internal error while reading a response")
	require.EqualValues(t, before+2, Total())
	require.Contains(t, log.String(), "BUG: panic while hearing a message")
	require.Contains(t, log.String(), "panic=first")
	require.Contains(t, log.String(), "index out of range")
	require.Contains(t, log.String(), "TestPanicsAreContained", "the stack")

	require.NoError(t, func() (err error) {
		defer Contain("x")
		defer ToError(&err, "x")
		return nil
	}())
	require.EqualValues(t, before+2, Total())

	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		defer Abort("responding", "path", "/x")
		panic("third")
	})
	require.EqualValues(t, before+3, Total())
	require.Contains(t, log.String(), "path=/x")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		defer Abort("responding")
		panic(http.ErrAbortHandler)
	})
	require.NotPanics(t, func() { defer Abort("responding") })
	require.EqualValues(t, before+3, Total(), "a response that is aborted on purpose is no bug")
}
