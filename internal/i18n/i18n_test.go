package i18n

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	inner := Sprintf("URLs with the group (%s)", "f:1")
	for _, c := range []struct {
		text             Text
		english, chinese string
	}{
		{Text{}, "", ""},
		{Plain("renew it"), "renew it", "更新证书"},
		{Plain("no such sentence"), "no such sentence", "no such sentence"},
		{Sprintf("[%s] has no key %q", "cache", "x"), `[cache] has no key "x"`, `[cache] 没有配置项 "x"`},
		{Sprintf("%s: %s: %s", "f", Plain("error"), inner), "f: error: URLs with the group (f:1)",
			"f: 错误：URL 带组名（f:1）"},
		{Sprintf("not translated: %s", Plain("renew it")), "not translated: renew it", "not translated: 更新证书"},
		{Sprintf("cannot read %q: %v", "f", fs.ErrPermission), `cannot read "f": permission denied`,
			`无法读取 "f"：没有权限`},
		{ErrorText(Errorf("its web server: %w", Errorf("stopping"))), "its web server: stopping", "其 web 服务器：正在停止"},
		{ErrorText(errors.Join(Errorf("stopping"))), "stopping", "正在停止"},
		{ErrorText(errors.New("not in the catalog")), "not in the catalog", "not in the catalog"},
		{ErrorText(&fs.PathError{Op: "open", Path: "/a: b", Err: syscall.EACCES}), "open /a: b: permission denied",
			"open /a: b：没有权限"},
		{ErrorText(fmt.Errorf("see x: %w", fmt.Errorf("f: %w", Errorf("stopping")))), "see x: f: stopping",
			"see x：f：正在停止"},
		{ErrorText(errors.Join(io.EOF, fmt.Errorf("%w: %w", io.EOF, fs.ErrPermission))), "EOF\nEOF: permission denied",
			"连接被对方关闭\n连接被对方关闭：没有权限"},
		{ErrorText(errors.Join(Errorf("%s: %s", "f:1", Plain("error")), Errorf("stopping"))), "f:1: error\nstopping",
			"f:1: 错误\n正在停止"},
		{ErrorText(fmt.Errorf("permission denied: %w", errors.New("f"))), "permission denied: f", "没有权限：f"},
		{ErrorText(&net.DNSError{Err: "no such host", Name: "h"}), "lookup h: no such host", "lookup h：没有该主机"},
		{ErrorText(fmt.Errorf("%w; see f: 1", fs.ErrPermission)), "permission denied; see f: 1",
			"permission denied; see f: 1"},
		{Of("renew it"), "renew it", "更新证书"},
		{Of(inner), "URLs with the group (f:1)", "URL 带组名（f:1）"},
	} {
		require.Equal(t, c.english, c.text.String())
		require.Equal(t, c.english, c.text.In(English))
		require.Equal(t, c.chinese, c.text.In(Chinese))
		data, err := json.Marshal(c.text)
		require.NoError(t, err)
		var read string
		require.NoError(t, json.Unmarshal(data, &read))
		require.Equal(t, c.english, read, "JSON is in English")
	}
	require.ErrorIs(t, Errorf("its web server: %w", fs.ErrExist), fs.ErrExist)
}

// TestCatalogHasNoDuplicates: a sentence has one translation.
func TestCatalogHasNoDuplicates(t *testing.T) {
	require.Equal(t, len(Chinese.Catalog()), bytes.Count(zhCatalog, []byte("\": \"")))
}

func TestFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		all, messages, lang string
		want                Language
	}{
		{"", "", "", English},
		{"", "", "zh_CN.UTF-8", Chinese},
		{"", "", "zh_CN", Chinese},
		{"", "", "zh_CN.GBK", Chinese},
		{"", "", "zh", Chinese},
		{"", "", "zhx_CN", English},
		{"", "", "de_DE.UTF-8", English},
		{"", "C.UTF-8", "zh_CN.UTF-8", English},
		{"", "zh_CN.UTF-8", "en_US.UTF-8", Chinese},
		{"C", "zh_CN.UTF-8", "zh_CN.UTF-8", English},
		{"POSIX", "", "zh_CN.UTF-8", English},
		{"zh_CN.UTF-8", "C", "C", Chinese},
	} {
		environment := map[string]string{"LC_ALL": c.all, "LC_MESSAGES": c.messages, "LANG": c.lang}
		require.Equal(t, c.want, FromEnvironment(func(name string) string { return environment[name] }), "%+v", c)
	}
}

func TestFromAcceptLanguage(t *testing.T) {
	for field, want := range map[string]Language{
		"": English, "zh": Chinese, "zh-CN,zh;q=0.9,en;q=0.8": Chinese, "en-US,en;q=0.9,zh-CN;q=0.8": English,
		"zh-TW": Chinese, "ZH-hans-CN": Chinese, "de, zh;q=0.5": Chinese, "de": English, "*": English,
		"zh;q=0, en;q=0.1": English, "zh;q=0": English, "en;q=0.2, zh ; q=0.3": Chinese, "zh;q=x": English,
		"zh;q=7": English, "zh;q=NaN": English, ",,;;q=": English, "de;q=1,zh;q=0.001": Chinese,
	} {
		require.Equal(t, want, FromAcceptLanguage(field), field)
	}
}
