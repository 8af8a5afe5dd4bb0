package command

import (
	"io"
	"runtime"

	"fastdfs-gateway/internal/process/early"

	"github.com/spf13/cobra"
)

// build identifies the program, in the form of -json.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func versionCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version [-json]",
		Short:   "print the version",
		Example: "gateway version",
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		b := build{version, runtime.Version(), runtime.GOOS, runtime.GOARCH}
		if *asJSON {
			return printJSON(cmd, b)
		}
		_, err := io.WriteString(cmd.OutOrStdout(), early.VersionText(version))
		return err
	}
	return cmd
}
