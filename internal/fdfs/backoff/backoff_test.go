package backoff

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var policy = Policy{First: 2 * time.Second, Max: 30 * time.Second}

func TestDelay(t *testing.T) {
	for n, nominal := range map[int]time.Duration{
		1: 2 * time.Second, 2: 4 * time.Second, 3: 8 * time.Second, 4: 16 * time.Second, 5: 30 * time.Second,
		1 << 30: 30 * time.Second,
	} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := policy.Delay(n)
			require.LessOrEqual(t, d, nominal)
			require.GreaterOrEqual(t, d, nominal*3/4)
			seen[d] = true
		}
		require.Greater(t, len(seen), 50, "delays are random")
	}
}

func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s State
		require.False(t, s.InBackoff(time.Now()))
		require.False(t, s.Probe(time.Now()), "nothing to probe")
		last := time.Duration(0)
		for range 5 {
			s.Fail(policy, time.Now())
			until := s.Until()
			time.Sleep(last / 2)
			s.Fail(policy, time.Now())
			require.Equal(t, until, s.Until(), "failures during a back-off are one incident")
			require.Greater(t, time.Until(until)+last/2, last, "each back-off is longer")
			last = time.Until(until) + last/2
			require.False(t, s.Probe(time.Now()))
			time.Sleep(time.Until(until))
			require.False(t, s.InBackoff(time.Now()))
			require.True(t, s.Probe(time.Now()))
			require.False(t, s.Probe(time.Now()), "one probe at a time")
		}
		s.Abandon()
		require.True(t, s.Probe(time.Now()))

		s.Revive(time.Now())
		require.Zero(t, s.Until())
		time.Sleep(2 * policy.Max)
		s.Fail(policy, time.Now())
		require.Greater(t, time.Until(s.Until()), policy.Max/2, "it was usable for a moment only")
		s.Revive(time.Now())
		time.Sleep(2*policy.Max + 1)
		s.Fail(policy, time.Now())
		require.LessOrEqual(t, time.Until(s.Until()), policy.First)

		s.Reset()
		require.Zero(t, s)
	})
}
