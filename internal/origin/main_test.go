package origin

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long a test waits before it calls something stuck.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
