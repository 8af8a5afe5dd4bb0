package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/internal/fdfs"

	"github.com/stretchr/testify/require"
)

func TestParseTypes(t *testing.T) {
	plain := "# list\nimage/jpeg jpg JPEG .jpe\ntext/plain\n\ntext/html\thtml  htm # pages\r\n" +
		"text/x;charset=utf-8 x;\nimage/jpeg jfif"
	want := map[string]string{"jpg": "image/jpeg", "jpeg": "image/jpeg", "jpe": "image/jpeg", "html": "text/html",
		"htm": "text/html", "x": "text/x;charset=utf-8", "jfif": "image/jpeg"}
	types, bad := parseTypes(plain)
	require.Empty(t, bad)
	require.Equal(t, want, types)

	want = map[string]string{"html": "text/html", "htm": "text/html", "jpg": "image/jpeg", "jpeg": "image/jpeg"}
	for _, nginx := range []string{
		"types { text/html html htm; image/jpeg jpg jpeg; }",
		"types{text/html html htm;image/jpeg jpg jpeg;}",
		"\xef\xbb\xbf# nginx\n\ntypes\n{\n  text/html   html htm; # pages ; }\n  image/jpeg\n    jpg\n    jpeg;\n}\n",
		"types {\r\n text/html html htm;\r\n}\r\nimage/jpeg jpg jpeg\r\n",
		"types { text/html html; }\ntypes { text/html htm; image/jpeg jpg jpeg; }",
	} {
		types, bad := parseTypes(nginx)
		require.Empty(t, bad, nginx)
		require.Equal(t, want, types, nginx)
	}

	types, _ = parseTypes("a/b x\nc/d X\n")
	require.Equal(t, map[string]string{"x": "c/d"}, types, "the last one counts")
}

func TestParseTypesBad(t *testing.T) {
	for text, line := range map[string]int{
		"jpg image/jpeg":                   1,
		"a/b c\ntypes {\n a/b d;\n":        3,
		"types { a/b c }":                  1,
		"a/b c\n}\n":                       2,
		"\nfoo { a/b c; }":                 2,
		"types { types { a/b c; } }":       1,
		"types {\n a/b c;\n html text;\n}": 3,
		"types x\n":                        1,
	} {
		_, bad := parseTypes(text)
		require.NotEmpty(t, bad, text)
		require.Equal(t, line, bad[0].line, text)
	}
}

func TestTypesProblem(t *testing.T) {
	dir := put(t, map[string]string{"m.conf": base + "#include c/http.conf\n",
		"c/http.conf": "http.mime_types_filename=t\n", "c/t": "a/b c\nnonsense\n"})
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.Equal(t, "a/b", c.Types["c"], "found beside the file that names it")
	require.Len(t, problems, 1)
	require.Equal(t, 1, found(problems, Warning, 2, filepath.Join(dir, "c/t")))

	c, problems = load(t, base+"http.mime_types_filename = .\n")
	require.Nil(t, c)
	require.Equal(t, 1, found(problems, Error, 3, "is a directory"))
}

func TestParseStorageIDs(t *testing.T) {
	ids, bad := parseStorageIDs("\xef\xbb\xbf# <id> <group> <ip>\n\n100001 group1 10.0.0.1\r\n" +
		"100002\tgroup1 10.0.0.2:23001 rw=read\n1 g 10.0.0.3,192.168.0.3 x=y rw=none\n")
	require.Empty(t, bad)
	require.Equal(t, []fdfs.StorageID{
		{ID: 100001, Group: "group1", Hosts: []string{"10.0.0.1"}},
		{ID: 100002, Group: "group1", Hosts: []string{"10.0.0.2"}, Port: 23001},
		{ID: 1, Group: "g", Hosts: []string{"10.0.0.3", "192.168.0.3"}},
	}, ids)
	for _, line := range []string{"1 g", "100 g other"} {
		ids, bad := parseStorageIDs("100 g first\n" + line)
		require.Len(t, ids, 1, line)
		require.Len(t, bad, 1, line)
		require.Equal(t, 2, bad[0].line)
	}
	var many strings.Builder
	for i := range fdfs.MaxStorageIDs + 10 {
		fmt.Fprintf(&many, "%d g h\n", i+1)
	}
	ids, bad = parseStorageIDs(many.String())
	require.Len(t, ids, fdfs.MaxStorageIDs)
	require.Len(t, bad, 1)
}

func TestStorageIDsProblem(t *testing.T) {
	dir := put(t, map[string]string{"m.conf": base + "use_storage_id=true\n", "storage_ids.conf": "1 g h\nx\n"})
	c, problems := Load(filepath.Join(dir, "m.conf"))
	require.Nil(t, c)
	require.Len(t, problems, 1)
	require.Equal(t, 1, found(problems, Error, 2, filepath.Join(dir, "storage_ids.conf")))
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
