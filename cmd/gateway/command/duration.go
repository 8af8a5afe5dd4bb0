package command

import (
	"strings"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// duration is the value of a flag: 500ms, 10s, 1h, 1d, or plain seconds, like the keys of a
// configuration. It may be negative.
type duration time.Duration

// durationFlag adds a flag with a duration.
func durationFlag(cmd *cobra.Command, name string, byDefault time.Duration, usage string) *time.Duration {
	d := byDefault
	cmd.Flags().Var((*duration)(&d), name, usage)
	return &d
}

// String implements pflag.Value.
func (d *duration) String() string { return config.Written(time.Duration(*d)) }

// Type implements pflag.Value.
func (*duration) Type() string { return "duration" }

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	digits, negative := strings.CutPrefix(text, "-")
	parsed, ok := config.ParseDuration(digits)
	if !ok {
		return i18n.Errorf("write a duration such as 10s, 1h or 1d")
	}
	if *d = duration(parsed); negative {
		*d = -*d
	}
	return nil
}
