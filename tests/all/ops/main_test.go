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

// keptTo is the environment variable with the folders that keepTo leaves accessible, separated by
// colons.
const keptTo = "GATEWAY_TEST_KEPT_TO"

// TestMain runs the tests or, in a process with the variable keptTo, another program with access to
// these folders only.
func TestMain(m *testing.M) {
	if folders := os.Getenv(keptTo); folders != "" {
		fmt.Println(keepTo(strings.Split(folders, ":"), os.Args[1:]))
		os.Exit(1)
	}
	e2e.Main(m)
}

// keepTo replaces this process by a program in a sandbox that is not the gateway's: folders other
// than these and those of the system exist, but cannot be read.
func keepTo(folders, program []string) error {
	const execute = 1 // LANDLOCK_ACCESS_FS_EXECUTE
	var rules []sandbox.Rule
	for _, folder := range append(folders, "/proc", "/sys", "/etc", "/usr", "/dev") {
		rules = append(rules, sandbox.Rule{Path: folder, Access: sandbox.Write | execute})
	}
	if err := sandbox.NoNewPrivileges(); err != nil {
		return err
	}
	if err := new(sandbox.Privileges).Restrict(rules, ""); err != nil {
		return err
	}
	return syscall.Exec(program[0], program, os.Environ())
}
