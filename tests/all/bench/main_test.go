package main

import (
	"fmt"
	"os"
	"testing"

	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// binary is the built program.
var binary = lab.Binary

func TestMain(m *testing.M) {
	os.Exit(lab.Main(func() int {
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}))
}

// newTestWorld makes a world whose gateways are the built one.
func newTestWorld(t *testing.T) (*world, *settings) {
	t.Helper()
	w, err := newWorld(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.close()) })
	return w, &settings{gateway: binary, connections: 8, rounds: 1}
}
