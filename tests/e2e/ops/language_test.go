package ops

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestLanguage: check and doctor print Chinese in a Chinese locale or by -lang, with the same
// places and keys. JSON is always in English.
func TestLanguage(t *testing.T) {
	t.Parallel()
	conf := e2e.WriteConfig(t, storetest.New(t).Config("[gateway]", "listn = :80", "max_ranges = x"))
	const english, chinese = `:[0-9]+: error: \[gateway\] has no key "listn"; did you mean listen `,
		`:[0-9]+: 错误：\[gateway\] 没有配置项 "listn"；是否要写 listen（`
	for _, c := range []struct {
		environment, args, want string
	}{
		{"LANG=zh_CN.UTF-8", "check -c FILE", chinese},
		{"LANG=zh_CN", "check -c FILE", `max_ranges = "x"：不是范围内的数字；请写 1 到 1000 之间的数字`},
		{"LANG=zh_CN.UTF-8", "check -c FILE", `: 2 个错误，\d+ 个警告\n$`},
		{"LANG=zh_CN.UTF-8 LC_ALL=en_US.UTF-8", "check -c FILE", english},
		{"LC_MESSAGES=zh_CN.UTF-8 LANG=C", "check -c FILE", chinese},
		{"LANG=zh_CN.UTF-8", "check -c FILE -lang en", english},
		{"LANG=C", "check -lang=zh -c FILE", chinese},
		{"LANG=", "check -c FILE", english},
		{"LANG=zh_CN.UTF-8", "check -c FILE -json", `"text":"\[gateway\] has no key \\"listn\\""`},
		{"LANG=zh_CN.UTF-8", "doctor -c FILE", `(?m)^fail  config  .*:[0-9]+: ` +
			`\[gateway\] 没有配置项 "listn"\n +是否要写 listen`},
		{"LANG=zh_CN.UTF-8", "doctor -c FILE -json", `"area":"config".*"text":"\[gateway\] has no key`},
	} {
		cmd := exec.Command(e2e.Binary, strings.Fields(strings.ReplaceAll(c.args, "FILE", conf))...)
		cmd.Env = append(os.Environ(), "LC_ALL=")
		cmd.Env = append(cmd.Env, strings.Fields(c.environment)...)
		stdout, err := cmd.Output()
		require.Error(t, err, "the configuration has errors")
		require.Regexp(t, c.want, string(stdout), "%s %s", c.environment, c.args)
	}
}
