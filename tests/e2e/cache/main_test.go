// Package cache tests the cache of a gateway: its tiers, purges, stampedes, expiry.
package cache

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
