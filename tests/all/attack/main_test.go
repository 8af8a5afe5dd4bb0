package attack

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag = flag.Uint64("attack.seed", 1, "what the random bytes are made from")
	duration = flag.Duration("attack.for", 0, "how long each attack lasts; 0 = the short version")
	only     = flag.Int("attack.case", -1, "TestFraming: send this case alone and print what each server saw")
)

// binary is the program under test.
var binary = lab.Binary

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(lab.Main(m.Run))
}

// lasts returns the duration of an attack: short in make test-all, -attack.for in make attack.
func lasts(short time.Duration) time.Duration {
	if *duration > 0 {
		return *duration
	}
	return short
}

// target is a gateway under attack.
type target struct {
	*lab.Gateway
	access   string // its access log, JSON lines
	storages int    // number of storages behind it
}

// start starts the gateway with a configuration and further lines of [gateway]. It must run until
// the end of the test, and its log must show no bug.
func start(t *testing.T, config string, lines ...string) *target {
	t.Helper()
	dir := t.TempDir()
	access := filepath.Join(dir, "access.log")
	g, err := lab.StartGateway(lab.GatewayOptions{Binary: binary, Dir: dir, Config: config,
		Lines: append(lines, "access_log = "+access, "access_log_format = json")})
	require.NoError(t, err)
	t.Cleanup(func() {
		select {
		case <-g.Done:
			t.Errorf("the gateway has ended by itself")
		default:
		}
		g.Stop()
		for _, word := range []string{"BUG:", "panic:", "fatal error:", "goroutine ",
			"passed the guard but cannot be parsed"} {
			require.NotContains(t, g.Log(), word)
		}
		if t.Failed() {
			t.Logf("seed %d; end of the gateway's log:\n%s", *seedFlag, g.LogEnd())
		}
	})
	return &target{Gateway: g, access: access}
}
