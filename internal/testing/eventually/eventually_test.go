package eventually

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stopped is a testing.TB that records its failure.
type stopped struct {
	testing.TB
	text string
}

func (s *stopped) Helper() {}

func (s *stopped) Name() string { return "stopped" }

func (s *stopped) Errorf(format string, args ...any) { s.text += fmt.Sprintf(format, args...) }

func (s *stopped) FailNow() { runtime.Goexit() }

func TestTrueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began, done := &stopped{}, time.Now(), make(chan struct{})
		returned := false
		go func() {
			defer close(done)
			True(s, func() bool { return false }, "%d files are open", 3)
			returned = true
		}()
		<-done
		require.False(t, returned, "the test goes on")
		require.Contains(t, s.text, "within "+Limit.String())
		require.Contains(t, s.text, "3 files are open")
		require.WithinDuration(t, began.Add(Limit), time.Now(), longest)
	})
}
