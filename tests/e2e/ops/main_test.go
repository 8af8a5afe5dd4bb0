// Package ops tests the operation of a gateway: commands, reload, upgrade, logs, metrics, the admin
// listener, privileges.
package ops

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"fastdfs-gateway/internal/process/sandbox"
	"fastdfs-gateway/tests/e2e"
)

// keptTo names the folders that a process of keepTo may use, with colons between them.
const keptTo = "GATEWAY_TEST_KEPT_TO"

// TestMain runs the tests or, in a process of its own, a program that is kept to some folders.
func TestMain(m *testing.M) {
	if folders := os.Getenv(keptTo); folders != "" {
		fmt.Println(keepTo(strings.Split(folders, ":"), os.Args[1:]))
		os.Exit(1)
	}
	e2e.Main(m)
}

// keepTo runs a program in place of this one, as another sandbox than that of the gateway would:
// the other folders are there, and cannot be read.
func keepTo(folders, program []string) error {
	const execute = 1 // LANDLOCK_ACCESS_FS_EXECUTE
	var rules []sandbox.Rule
	for _, folder := range append(folders, "/proc", "/sys", "/etc", "/usr", "/dev") {
		rules = append(rules, sandbox.Rule{Path: folder, Access: sandbox.Write | execute})
	}
	if err := sandbox.NoNewPrivileges(); err != nil {
		return err
	}
	if _, err := sandbox.Restrict(rules, ""); err != nil {
		return err
	}
	return syscall.Exec(program[0], program, os.Environ())
}
