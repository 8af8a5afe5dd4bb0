package main

import (
	"context"
	"fmt"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/doctor"
)

// runDoctor examines a configuration, and everything that a gateway with it needs. It fails when
// one finding says fail.
func runDoctor(c *call) error {
	path, asJSON := c.configFlag(), c.jsonFlag()
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *path == "" {
		return usageError("doctor: -c is missing")
	}
	count := map[doctor.Status]int{}
	bar := c.progress(-1, "examining")
	ctx, stop := interruptible()
	defer stop()
	err := examine(ctx, *path, func(f doctor.Finding) {
		count[f.Status]++
		if *asJSON {
			_ = c.printJSON(f) // a reader that has left wants no more
			return
		}
		bar.println(c.textOf(f))
	})
	bar.end()
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case err == nil && count[doctor.Fail] > 0:
		err = errShown
	}
	if !*asJSON {
		fmt.Fprintf(c.stdout, "%s: %d ok, %d warnings, %d failures\n", *path,
			count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
	}
	return err
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
func (c *call) textOf(f doctor.Finding) string {
	with := map[doctor.Status]color{doctor.OK: green, doctor.Warn: yellow, doctor.Fail: red}[f.Status]
	text := fmt.Sprintf("%s %-8s%s: %s", c.paint(fmt.Sprintf("%-5s", f.Status), with), f.Area, f.Subject, f.Text)
	if f.Millis > 0 && f.Status == doctor.OK {
		text += fmt.Sprintf(", %.1f ms", f.Millis)
	}
	if f.Advice != "" {
		text += "\n               " + f.Advice
	}
	return text
}
