package origin

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// testTimeout is how long a test waits before it fails.
const testTimeout = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
