package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// A gateway that is told to stop as soon as it has started may not have come to serve its listeners yet: it ends all the same.
func TestStopBeforeServing(t *testing.T) {
	s := storetest.New(t)
	conf := filepath.Join(s.Dir, "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(conf, []byte(s.Config("[gateway]", "listen = 127.0.0.1:0", "admin_listen = 127.0.0.1:0", "landlock = false")), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "mime.types"), []byte(storetest.Types), 0o600))
	i, err := Start(conf, Options{Version: "test"})
	require.NoError(t, err)
	ln, err := listen("127.0.0.1:0", filesSocketMode)
	require.NoError(t, err)
	i.listeners = append(i.listeners, ln)
	served := make(chan error, 1)
	i.running.Go(func() {
		<-i.stopLoop // late
		served <- i.server.Serve(ln)
	})
	stopped := make(chan error, 1)
	go func() { stopped <- i.Stop() }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
		require.NoError(t, <-served)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}
