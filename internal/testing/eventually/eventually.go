// Package eventually lets a test wait for an event by polling.
//
//	eventually.True(t, func() bool { return server.Open() == 0 }, "connections are left open")
package eventually

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Limit bounds the wait of True. It ends a test that would hang: a slow machine under load is no
// failure.
const Limit = 3 * time.Minute

// longest is the longest pause between two calls of ok.
const longest = 20 * time.Millisecond

// True waits until ok returns true, and stops the test if Limit passes before. The message is
// formatted by testify. Unlike require.Eventually, True calls ok on the goroutine of the test, so
// ok may stop the test too, and the first call has no delay.
func True(t testing.TB, ok func() bool, message ...any) {
	t.Helper()
	end := time.Now().Add(Limit)
	for pause := time.Millisecond; !ok(); pause = min(2*pause, longest) {
		if time.Now().After(end) {
			require.FailNow(t, "it has not become true within "+Limit.String(), message...)
		}
		time.Sleep(pause)
	}
}
