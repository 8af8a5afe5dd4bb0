package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
