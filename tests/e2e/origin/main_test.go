// Package origin tests files of other hosts: storages and their failures, redirects, web servers as
// sources.
package origin

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
