package command

import (
	"context"
	"fmt"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/doctor"

	"github.com/spf13/cobra"
)

// doctorCommand examines a configuration, and everything that a gateway with it needs. It fails
// when one finding says fail.
func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "doctor -c FILE [-json]",
		Short:       "check, and examine trackers, storages, Redis, peers, clocks, limits, disks and ports",
		Example:     "gateway doctor -c /etc/fdfs/mod_fastdfs.conf",
		Args:        arguments(0, 0),
		Annotations: exit1("an examination fails"),
	}
	path, asJSON := configFlag(cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *path == "" {
			return usageError("doctor: -c is missing")
		}
		count := map[doctor.Status]int{}
		bar := newProgress(cmd, -1, "examining")
		ctx, stop := interruptible()
		defer stop()
		err := examine(ctx, *path, func(f doctor.Finding) {
			count[f.Status]++
			if *asJSON {
				_ = printJSON(cmd, f) // a reader that has left wants no more
				return
			}
			bar.println(textOf(cmd, f))
		})
		bar.end()
		switch {
		case ctx.Err() != nil:
			err = errInterrupted
		case err == nil && count[doctor.Fail] > 0:
			err = errPrinted
		}
		if !*asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d ok, %d warnings, %d failures\n", *path,
				count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
		}
		return err
	}
	return cmd
}

// examine tells of the problems of a configuration first, and where it can be used, of the rest.
func examine(ctx context.Context, path string, tell func(doctor.Finding)) error {
	found := check(ctx, path)
	for _, p := range found.Problems {
		f := doctor.Finding{Area: "config", Subject: p.Place(), Status: doctor.Warn, Text: p.Text, Advice: p.Fix}
		if p.Severity == config.Error {
			f.Status = doctor.Fail
		}
		tell(f)
	}
	if len(found.Problems) == 0 {
		tell(doctor.Finding{Area: "config", Subject: path, Status: doctor.OK, Text: "no problems"})
	}
	cfg, _ := config.Load(path)
	if cfg == nil {
		return nil // told
	}
	return doctor.Examine(ctx, cfg, tell)
}

// textOf is a finding for people.
func textOf(cmd *cobra.Command, f doctor.Finding) string {
	with := map[doctor.Status]color{doctor.OK: green, doctor.Warn: yellow, doctor.Fail: red}[f.Status]
	text := fmt.Sprintf("%s %-8s%s: %s", paint(cmd, fmt.Sprintf("%-5s", f.Status), with), f.Area, f.Subject, f.Text)
	if f.Millis > 0 && f.Status == doctor.OK {
		text += fmt.Sprintf(", %.1f ms", f.Millis)
	}
	if f.Advice != "" {
		text += "\n               " + f.Advice
	}
	return text
}
