// Package fleet tests gateways that share a Redis: failures of each part, owners, purges, commands.
package fleet

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
