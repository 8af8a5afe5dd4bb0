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
		defer ToError(&err, "reading an answer")
		var nothing []int
		_ = nothing[len(log.Bytes())]
		return nil
	}()
	require.ErrorIs(t, err, Err)
	require.EqualError(t, err, "internal error while reading an answer")
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
		defer Abort("answering", "path", "/x")
		panic("third")
	})
	require.EqualValues(t, before+3, Total())
	require.Contains(t, log.String(), "path=/x")
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		defer Abort("answering")
		panic(http.ErrAbortHandler)
	})
	require.NotPanics(t, func() { defer Abort("answering") })
	require.EqualValues(t, before+3, Total(), "an answer that is cut on purpose is no bug")
}
