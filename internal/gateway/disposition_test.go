package gateway

import (
	"mime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestDisposition(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"plain", "report 1.pdf", `attachment; filename="report 1.pdf"`},
		{"empty", "", "attachment"},
		{"chinese", "文件.jpg", `attachment; filename="__.jpg"; filename*=UTF-8''%E6%96%87%E4%BB%B6.jpg`},
		{"quote", `a"b.jpg`, `attachment; filename="a_b.jpg"; filename*=UTF-8''a%22b.jpg`},
		{"percent", "100%41.txt", `attachment; filename="100_41.txt"; filename*=UTF-8''100%2541.txt`},
		{"semicolon and apostrophe", "a;b'c", `attachment; filename="a;b'c"`},
		{"backslash and slash", `..\..\etc/passwd`, `attachment; filename=".._.._etc_passwd"`},
		{"header injection", "a\r\nSet-Cookie: x=1\r\n\r\n<html>", `attachment; filename="aSet-Cookie: x=1<html>"`},
		{"NUL and TAB and DEL", "a\x00b\tc\x7f", `attachment; filename="abc"`},
		{"C1 control", "a\u0085b", `attachment; filename="ab"`},
		{"right-to-left override", "a\u202egpj.exe", `attachment; filename="agpj.exe"`},
		{"dot dot", "..", "attachment"},
		{"no UTF-8", "a\xffb\xc3", `attachment; filename="a_b_"`},
		{"blanks around", "  a  ", `attachment; filename="a"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, string(appendDisposition(nil, []byte(tt.file))))
		})
	}
	for name, want := range map[string]string{
		strings.Repeat("文", 171) + ".pdf":    strings.Repeat("文", 83) + ".pdf",
		strings.Repeat("a", 252) + ".tar.gz": strings.Repeat("a", 252) + ".gz",
		strings.Repeat("ä", 5000):            strings.Repeat("ä", 127),
		"a." + strings.Repeat("x", 400):      "a." + strings.Repeat("x", 253),
		strings.Repeat("b", 251) + ".pdf":    strings.Repeat("b", 251) + ".pdf",
	} {
		require.Equal(t, want, string(cleanFilename(nil, []byte(name))))
	}
}

// FuzzDisposition: the header is printable ASCII, and the standard library reads the cleaned name
// from it.
func FuzzDisposition(f *testing.F) {
	for _, s := range []string{"a.jpg", "ä\"%41\\/", "\r\nx: y", "\xff", "; filename=x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		value := string(appendDisposition([]byte{}, name))
		for i := range len(value) {
			require.True(t, value[i] >= ' ' && value[i] <= '~', "byte %#x", value[i])
		}
		kind, params, err := mime.ParseMediaType(value)
		require.NoError(t, err, value)
		require.Equal(t, "attachment", kind)
		require.True(t, utf8.ValidString(params["filename"]))
		require.Equal(t, string(cleanFilename(nil, name)), params["filename"])
		require.LessOrEqual(t, len(params["filename"]), maxFilename)
	})
}
