package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/storetest"
)

// TestStorageRows: the page lists each storage once, under the address of its requests: that of
// address_map, with or without a port, and with the default port if no list contains one.
func TestStorageRows(t *testing.T) {
	dir := t.TempDir()
	ids, conf := filepath.Join(dir, "storage_ids.conf"), filepath.Join(dir, "mod_fastdfs.conf")
	require.NoError(t, os.WriteFile(ids, []byte("100001 group1 10.0.0.1\n100002 group1 10.0.0.2\n"+
		"100003 group1 10.0.0.3\n"), 0o600))
	require.NoError(t, os.WriteFile(conf, []byte("store_path_count = 0\nurl_have_group_name = true\n"+
		"tracker_server = 127.0.0.1:1\nuse_storage_id = true\n"+
		"storage_ids_filename = "+ids+"\n[gateway]\n[address_map]\n10.0.0.2 = 127.0.0.2\n10.0.0.3 = 127.0.0.3:1\n"),
		0o600))
	cfg, problems := config.Load(conf)
	require.NotNil(t, cfg, problems)
	r, err := OpenUpstreams(cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(r.Close)
	r.Await()
	server, known := r.Sources.ByID(100003)
	require.True(t, known)
	id := storetest.New(t).Normal("txt", []byte("hello")).ID
	_, err = r.storages.Stat(t.Context(), client.FetchRequest{ID: id}, []client.Server{server})
	require.Error(t, err)
	var addresses []string
	for _, row := range storageRows(&components{cfg: cfg, upstreams: r}) {
		addresses = append(addresses, row.Address)
		require.Equal(t, "group1", row.Group)
	}
	require.Equal(t, []string{"10.0.0.1:23000", "127.0.0.2:23000", "127.0.0.3:1"}, addresses)
}
