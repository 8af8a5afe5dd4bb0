package command

import (
	"context"
	"fmt"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/doctor"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// doctorCommand examines a configuration, its servers and this host. A finding with status fail is
// a failure.
func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "doctor [-c] FILE [-json] [-lang en|zh]",
		Short:       "check, and examine trackers, storages, Redis, peers, clocks, limits, disks and ports",
		Example:     "gateway doctor -c /etc/fdfs/mod_fastdfs.conf",
		Annotations: exit1("an examination fails"),
	}
	path, asJSON, lang := requiredConfigFlag(cmd, 0), jsonFlag(cmd), languageFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		count := map[doctor.Status]int{}
		shown := newProgress(cmd, 0, "examining")
		ctx, stop := interruptible()
		defer stop()
		err := examine(ctx, *path, func(f doctor.Finding) {
			count[f.Status]++
			if *asJSON {
				_ = printJSON(cmd, f) // an error means that the reader has exited
				return
			}
			shown.println(textOf(cmd, f, *lang))
		})
		shown.remove()
		switch {
		case ctx.Err() != nil:
			err = errInterrupted
		case err == nil && count[doctor.Fail] > 0:
			err = errPrinted
		}
		if !*asJSON {
			fmt.Fprintln(cmd.OutOrStdout(), i18n.Sprintf("%s: %d ok, %s, %s", *path, count[doctor.OK],
				status.Plural(count[doctor.Warn], "%s warning", "%s warnings"),
				status.Plural(count[doctor.Fail], "%s failure", "%s failures")).In(*lang))
		}
		return err
	}
	return cmd
}

// examine reports the problems of a configuration, and for a usable one the rest.
func examine(ctx context.Context, path string, report func(doctor.Finding)) error {
	found, cfg := check(ctx, path)
	for _, p := range found.Problems {
		f := doctor.Finding{Area: "config", Subject: p.Place(), Status: doctor.Warn, Text: p.Text, Advice: p.Fix}
		if p.Severity == config.Error {
			f.Status = doctor.Fail
		}
		report(f)
	}
	if len(found.Problems) == 0 {
		report(doctor.Finding{Area: "config", Subject: path, Status: doctor.OK,
			Text: i18n.Plain("no problems")})
	}
	if cfg == nil {
		return nil // the problems are reported
	}
	return doctor.Examine(ctx, cfg, report)
}

// textOf returns the line of a finding.
func textOf(cmd *cobra.Command, f doctor.Finding, lang i18n.Language) string {
	with := map[doctor.Status]color{doctor.OK: green, doctor.Warn: yellow, doctor.Fail: red}[f.Status]
	said := f.Text
	if f.Millis > 0 && f.Status == doctor.OK {
		said = i18n.Sprintf("%s, %.1f ms", said, f.Millis)
	}
	text := fmt.Sprintf("%s %-8s%s: %s", paint(cmd, fmt.Sprintf("%-5s", f.Status), with), f.Area,
		lang.Translate(f.Subject), said.In(lang))
	if !f.Advice.IsZero() {
		text += "\n               " + f.Advice.In(lang)
	}
	return text
}
