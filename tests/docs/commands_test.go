package docs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	const text = "# A\n\n    make run   # a remark\n    a picture\n    [gateway]\n    gateway\n\nmake no command\n\n" +
		"```sh\nany thing # remark\n# remark\n\nlong \\\n  line\nx#y\n```\n" +
		"## B\n```ini\nmake = 1\n    make x\n```\n```sh\nlast\n```\n"
	require.Equal(t, []Command{{3, "A", "make run"}, {6, "A", "gateway"}, {11, "A", "any thing"},
		{15, "A", "long line"}, {16, "A", "x#y"}, {24, "B", "last"}}, Commands(text))
}

func TestHow(t *testing.T) {
	t.Parallel()
	require.Equal(t, Here, How("docs/cli.md", "gateway version"))
	require.Equal(t, syntax, How("docs/cli.md", "gateway version [-json]"))
	require.Equal(t, InMachine, How("docs/install.md", "gateway ready"))
	require.Equal(t, "runs this test", How("README.md", "make test"))
}
