package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRPM: the RPM can be installed, upgraded and removed in a separate root. Nothing there has
// booted, so the scripts run as in the build of an image.
func TestRPM(t *testing.T) {
	t.Parallel()
	base, err := debian()
	require.NoError(t, err)
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, name := range []string{"root", "upper", "work"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	options := "lowerdir=" + base + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	output(t, "mount", "-t", "overlay", "overlay", "-o", options, root)
	t.Cleanup(func() { output(t, "umount", root) })
	conf := filepath.Join(root, "etc/fastdfs-gateway/gateway.conf")
	rpm := func(args ...string) string { return output(t, "rpm", append([]string{"--root", root}, args...)...) }
	// The root is a Debian: the database of rpm does not know its /usr/sbin/useradd.
	rpm("-i", "--nodeps", filepath.Join(dist(t, old), "fastdfs-gateway-"+old+"-1.x86_64.rpm"))
	in := func(args ...string) string { return output(t, "chroot", append([]string{root}, args...)...) }
	require.Contains(t, in("gateway", "version"), "v"+old)
	require.Equal(t, "640 root fastdfs-gateway\n", in("stat", "-c", "%a %U %G", "/etc/fastdfs-gateway/gateway.conf"))
	require.Equal(t, "700 fastdfs-gateway\n", in("stat", "-c", "%a %U", "/var/cache/fastdfs-gateway"))
	require.Equal(t, "fastdfs-gateway-"+old+"-1.x86_64\n", rpm("-q", "fastdfs-gateway"))
	require.Empty(t, rpm("-V", "--nodeps", "fastdfs-gateway"), "what is installed is what is in the package")

	require.NoError(t, os.WriteFile(conf, []byte("# changed by the operator\n"), 0o640))
	rpm("-U", "--nodeps", filepath.Join(dist(t, newer), "fastdfs-gateway-"+newer+"-1.x86_64.rpm"))
	require.Contains(t, in("gateway", "version"), "v"+newer)
	text, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.Equal(t, "# changed by the operator\n", string(text))

	in("systemctl", "enable", "fastdfs-gateway")
	rpm("-e", "fastdfs-gateway")
	for _, name := range []string{"usr/bin/gateway", "usr/lib/systemd/system/fastdfs-gateway.service",
		"etc/systemd/system/multi-user.target.wants/fastdfs-gateway.service", "usr/share/doc/fastdfs-gateway"} {
		_, err := os.Lstat(filepath.Join(root, name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	text, err = os.ReadFile(conf + ".rpmsave")
	require.NoError(t, err, "a changed configuration is kept")
	require.Equal(t, "# changed by the operator\n", string(text))
	require.Error(t, exec.Command("rpm", "--root", root, "-q", "fastdfs-gateway").Run())
}
