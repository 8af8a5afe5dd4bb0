// Package http tests the responses for files of this host: headers, ranges, tokens, trunk slots,
// connections.
package http

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
