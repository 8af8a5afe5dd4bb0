// Package ops tests the operation of a gateway: commands, reload, upgrade, logs, metrics, the admin
// listener.
package ops

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
