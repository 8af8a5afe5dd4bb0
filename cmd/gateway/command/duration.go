package command

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// duration is the value of a flag: 500ms, 10s, 1h, or plain seconds, like the keys of a
// configuration.
type duration time.Duration

// durationFlag adds a flag with a duration.
func durationFlag(cmd *cobra.Command, name string, byDefault time.Duration, usage string) *time.Duration {
	d := byDefault
	cmd.Flags().Var((*duration)(&d), name, usage)
	return &d
}

// String implements pflag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (*duration) Type() string { return "duration" }

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		*d = duration(time.Duration(n) * time.Second)
		return nil
	}
	parsed, err := time.ParseDuration(text)
	*d = duration(parsed)
	return err
}
