package main

import (
	"context"
	"fmt"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
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
	count := map[app.Status]int{}
	bar := c.progress(-1, "examining")
	ctx, stop := interruptible()
	defer stop()
	err := examine(ctx, *path, func(f app.Finding) {
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
	case err == nil && count[app.Fail] > 0:
		err = errShown
	}
	if !*asJSON {
		fmt.Fprintf(c.stdout, "%s: %d ok, %d warnings, %d failures\n", *path,
			count[app.OK], count[app.Warn], count[app.Fail])
	}
	return err
}

// examine tells of the problems of a configuration first, and where it can be used, of the rest.
func examine(ctx context.Context, path string, tell func(app.Finding)) error {
	found := check(ctx, path)
	for _, p := range found.Problems {
		f := app.Finding{Area: "config", Subject: p.Place(), Status: app.Warn, Text: p.Text, Advice: p.Fix}
		if p.Severity == config.Error {
			f.Status = app.Fail
		}
		tell(f)
	}
	if len(found.Problems) == 0 {
		tell(app.Finding{Area: "config", Subject: path, Status: app.OK, Text: "no problems"})
	}
	cfg, _ := config.Load(path)
	if cfg == nil {
		return nil // told
	}
	return app.Doctor(ctx, cfg, tell)
}

// textOf is a finding for people.
func (c *call) textOf(f app.Finding) string {
	with := map[app.Status]color{app.OK: green, app.Warn: yellow, app.Fail: red}[f.Status]
	text := fmt.Sprintf("%s %-8s%s: %s", c.paint(fmt.Sprintf("%-5s", f.Status), with), f.Area, f.Subject, f.Text)
	if f.Millis > 0 && f.Status == app.OK {
		text += fmt.Sprintf(", %.1f ms", f.Millis)
	}
	if f.Advice != "" {
		text += "\n               " + f.Advice
	}
	return text
}
