package early

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartProgramRejected: a message with too few sockets, or without a number, starts nothing.
func TestStartProgramRejected(t *testing.T) {
	s := &starter{program: "/no/such/program", args: []string{"gateway"}}
	for _, what := range []string{"", "x listen", "-1 listen", "0 ", "1 listen"} {
		_, err := s.startProgram(what, nil)
		require.Contains(t, err, "among 0 descriptors", "%q", what)
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "12": 12, "999999999": 999999999, "": -1, "-1": -1, "1x": -1,
		"1234567890": -1} {
		require.Equal(t, want, number(text), text)
		if want >= 0 {
			require.Equal(t, text, decimal(want))
		}
	}
	before, after := cut("a b c", ' ')
	require.Equal(t, "a, b c", before+", "+after)
	before, after = cut("a", ' ')
	require.Equal(t, "a, ", before+", "+after)
}
