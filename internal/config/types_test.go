package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuiltInTypes: each line of the table is a media type and its extensions, each of them once.
func TestBuiltInTypes(t *testing.T) {
	types := clean(t, base).Types
	require.Equal(t, []string{"image/jpeg", "text/javascript"}, []string{types["jpg"], types["js"]})
	require.NotContains(t, types, "log", "as in nginx")
	seen := map[string]bool{}
	for line := range strings.Lines(builtInTypes) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		require.True(t, isMediaType(words[0]), line)
		require.Greater(t, len(words), 1, line)
		for _, ext := range words[1:] {
			require.Equal(t, strings.ToLower(ext), ext)
			require.False(t, seen[ext], "%s stands twice", ext)
			seen[ext] = true
		}
	}
}

// betterThanNginx are the extensions under "Not as in nginx".
var betterThanNginx = []string{"js", "bmp", "rar", "mml", "deb"}

// TestBuiltInTypesBesideNginx: the built-in types contain those of an installed nginx, except
// betterThanNginx.
func TestBuiltInTypesBesideNginx(t *testing.T) {
	data, err := os.ReadFile("/etc/nginx/mime.types")
	if err != nil {
		t.Skipf("nginx is not installed: %v", err)
	}
	nginx, bad := parseTypes(string(data))
	require.Empty(t, bad)
	types := clean(t, base).Types
	for _, ext := range betterThanNginx {
		require.Contains(t, types, ext)
		delete(nginx, ext)
	}
	for ext, want := range nginx {
		require.Equal(t, want, types[ext], ext)
	}
}

// TestTypesOrder: [types] takes precedence over the file, and the file over the built-in table. All
// other extensions get the default type.
func TestTypesOrder(t *testing.T) {
	text := base + "http.mime_types_filename=t\nhttp.default_content_type=a/default\n[types]\nwebp = image/own\n" +
		".LOG = text/plain; charset=gbk\n" +
		"md = text/x-web-markdown\n"
	dir := put(t, map[string]string{"m.conf": text, "t": "a/file webp png\n"})
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.Empty(t, problems)
	require.Equal(t, "image/own", c.Types["webp"])
	require.Equal(t, "text/plain; charset=gbk", c.Types["log"])
	require.Equal(t, "text/x-web-markdown", c.Types["md"], "no charset unless one is set")
	require.Equal(t, "a/file", c.Types["png"])
	require.Equal(t, "image/gif", c.Types["gif"])
	require.Equal(t, "a/default", c.DefaultType)
	require.Equal(t, "image/webp", clean(t, base).Types["webp"],
		"one configuration does not change the table of another")
}

// TestCharset: text types without a charset get the configured one, whatever their source.
func TestCharset(t *testing.T) {
	c := clean(t, base+"http.default_content_type=text/plain\n[gateway]\ncharset = utf-8\n[types]\n"+
		"log = text/plain; charset=gbk\nx = TEXT/x\njs = application/javascript\n")
	for ext, want := range map[string]string{
		"txt": "text/plain; charset=utf-8", "html": "text/html; charset=utf-8",
		"js": "application/javascript; charset=utf-8", "x": "TEXT/x; charset=utf-8",
		"log": "text/plain; charset=gbk", "json": "application/json", "svg": "image/svg+xml", "jpg": "image/jpeg",
	} {
		require.Equal(t, want, c.Types[ext], ext)
	}
	require.Equal(t, "text/plain; charset=utf-8", c.DefaultType)
}
