package attack

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"fastdfs-gateway/tests/lab"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag = flag.Uint64("attack.seed", 1, "what the random bytes are made from")
	duration = flag.Duration("attack.for", 0, "how long each attack lasts; 0 = the short version")
	only     = flag.Int("attack.case", -1, "TestFraming: send this case alone and print what each server saw")
)

// binary is the program under test.
var binary = os.Getenv("GATEWAY_BINARY")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(lab.WithGateway(&binary, m.Run))
}

// lasts is how long an attack lasts: short in make test, -attack.for in make attack.
func lasts(short time.Duration) time.Duration {
	if *duration > 0 {
		return *duration
	}
	return short
}

// target is a gateway under attack.
type target struct {
	*lab.Process
	admin    string // host:port of the admin listener
	access   string // its access log, JSON lines
	storages int    // that it fetches files from
}

// start runs the gateway on a configuration that has a [gateway] section at its end, without
// addresses. It must end well, and its log must name no bug.
func start(t *testing.T, config string, lines ...string) *target {
	t.Helper()
	dir := t.TempDir()
	port, adminPort := lab.Port(), lab.Port()
	g := &target{admin: lab.Address(adminPort), access: filepath.Join(dir, "access.log")}
	config += "\n[gateway]\nlisten = " + lab.Address(port) + "\nadmin_listen = " + g.admin + "\naccess_log = " +
		g.access + "\naccess_log_format = json\n"
	for _, line := range lines {
		config += line + "\n"
	}
	conf := filepath.Join(dir, "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(conf, []byte(config), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mime.types"), []byte(storetest.Types), 0o600))
	p, err := lab.Start(lab.Address(port), filepath.Join(dir, "log"), lab.Responds("http://"+g.admin+"/healthz"),
		binary, "serve", "-c", conf)
	require.NoError(t, err)
	g.Process = p
	t.Cleanup(func() {
		select {
		case <-p.Done:
			t.Errorf("the gateway has ended by itself")
		default:
		}
		p.Stop()
		for _, word := range []string{"BUG:", "panic:", "fatal error:", "goroutine ",
			"passed the guard but cannot be parsed"} {
			require.NotContains(t, p.Log(), word)
		}
		if t.Failed() {
			t.Logf("seed %s; end of the gateway's log:\n%s", strconv.FormatUint(*seedFlag, 10), p.LogEnd())
		}
	})
	return g
}
