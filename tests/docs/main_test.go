package docs

import (
	"os"
	"testing"

	"fastdfs-gateway/tests/lab"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("LC_ALL", "C"); err != nil { // the tests expect English
		panic("BUG: " + err.Error())
	}
	os.Exit(m.Run())
}

// needGateway skips a test if no program is built.
func needGateway(t *testing.T) {
	t.Helper()
	if err := lab.Built(); err != nil {
		t.Skip("SKIPPED:", err)
	}
}
