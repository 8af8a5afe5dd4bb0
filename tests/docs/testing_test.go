package docs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTestingDocument: each rule of docs/testing.md names tests, and each of them exists.
func TestTestingDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	require.GreaterOrEqual(t,
		requireNamedTests(t, string(text), "Rules and the tests that see them broken", "rule", 3), 100)
}
