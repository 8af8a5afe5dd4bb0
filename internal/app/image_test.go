package app

import (
	"runtime"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
)

// TestMakersHaveProcessors: Go has further processors while variants are made, and not longer: they
// slow all requests down.
func TestMakersHaveProcessors(t *testing.T) {
	usual := processors()
	first := beginMaking(2)
	require.Equal(t, usual+2, runtime.GOMAXPROCS(0))
	second := beginMaking(2)
	first()
	require.Equal(t, usual+2, runtime.GOMAXPROCS(0))
	second()
	eventually.True(t, func() bool { return runtime.GOMAXPROCS(0) == usual })
}
