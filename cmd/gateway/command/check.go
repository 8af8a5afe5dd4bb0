package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/doctor"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// checkup is the result of "gateway check", in the form of -json.
type checkup struct {
	File     string           `json:"file"`
	Usable   bool             `json:"usable"` // no problem is an error
	Errors   int              `json:"errors"`
	Warnings int              `json:"warnings"`
	Problems []config.Problem `json:"problems"`
	URLs     []string         `json:"urls"` // paths of files, with HH/LL/NAME for a part of the id
	// Advertise is the URL that advertise = auto means; empty = auto is not set, or the URL is
	// unknown.
	Advertise string `json:"advertise,omitempty"`

	places i18n.Text // empty = not usable
}

// checkCommand prints the problems of a configuration on this host. An error among them is a
// failure.
func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "check [-c] FILE [-json] [-lang en|zh]",
		Short:       "read a configuration and print each problem with file:line",
		Example:     "gateway check -c /etc/fdfs/mod_fastdfs.conf",
		Annotations: exit1("the configuration has errors"),
	}
	path, asJSON, lang := requiredConfigFlag(cmd, 0), jsonFlag(cmd), languageFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var found checkup
		err := withProgress(cmd, "looking at the host", func(ctx context.Context) { found, _ = check(ctx, *path) })
		if err != nil {
			return err
		}
		if *asJSON {
			err = printJSON(cmd, found)
		} else {
			found.print(cmd, *lang)
		}
		if found.Errors > 0 {
			err = errPrinted
		}
		return err
	}
	return cmd
}

// check examines a configuration on this host; cfg is nil if it cannot be used.
func check(ctx context.Context, path string) (found checkup, cfg *config.Config) {
	found = checkup{File: path, Problems: []config.Problem{}, URLs: []string{}}
	cfg, problems := doctor.Check(ctx, path)
	if cfg != nil {
		advertise, unknown := doctor.Advertised(ctx, cfg)
		problems = slices.Concat(problems, unknown, reloadProblems(ctx, cfg))
		found.Advertise = advertise
		found.URLs = cfg.URLForms()
		found.places = cfg.Places()
	}
	for _, p := range problems {
		if p.Severity == config.Error {
			found.Errors++
		}
	}
	found.Problems = append(found.Problems, problems...)
	found.Warnings, found.Usable = len(problems)-found.Errors, found.Errors == 0
	return found, cfg
}

// trialTimeout bounds the request to a running gateway.
const trialTimeout = 3 * time.Second

// reloadProblems returns the problems that a reload would have, by a request to the gateway that
// runs with this configuration. Only that gateway knows the files that Landlock lets it read.
func reloadProblems(ctx context.Context, cfg *config.Config) []config.Problem {
	address, err := adminAddress(cfg)
	if err != nil {
		return nil
	}
	client, err := newAdminClient(address, cfg.Gateway.AdminTokenFile, trialTimeout)
	if err != nil {
		return nil // doctor.Check has reported a problem of admin_token_file
	}
	body, err := client.text(ctx, http.MethodGet, "/reload", nil)
	if err != nil {
		return nil // no gateway runs, or one without GET /reload
	}
	var trial admin.Trial
	file, err := filepath.Abs(cfg.File)
	if json.Unmarshal([]byte(body), &trial) != nil || err != nil || trial.File != file {
		return nil // another gateway
	}
	p := config.Problem{File: cfg.File, Severity: config.Warning}
	switch {
	case trial.Rejected != "":
		p.Text = i18n.Sprintf("the running gateway would reject a reload: %s", trial.Rejected)
		p.Fix = i18n.Plain("correct that, or restart the gateway")
	case len(trial.Restart) > 0:
		p.Text = i18n.Sprintf("the running gateway would not apply these keys by a reload: %s",
			strings.Join(trial.Restart, ", "))
		p.Fix = i18n.Plain("restart it, or upgrade it (SIGUSR2)")
	default:
		return nil
	}
	return []config.Problem{p}
}

// print prints one problem per line, the URLs, and a summary.
func (f checkup) print(cmd *cobra.Command, lang i18n.Language) {
	for _, p := range f.Problems {
		word, with := lang.Translate(string(p.Severity)), yellow
		if p.Severity == config.Error {
			with = red
		}
		line := p.Message().In(lang)
		fmt.Fprintln(cmd.OutOrStdout(), strings.Replace(line, " "+word, " "+paint(cmd, word, with), 1))
	}
	if !f.places.IsZero() {
		fmt.Fprintln(cmd.OutOrStdout(), i18n.Sprintf("%s: %s", f.File, f.places).In(lang))
	}
	for _, form := range f.URLs {
		fmt.Fprintln(cmd.OutOrStdout(), i18n.Sprintf("%s: files are served under URLs like %s", f.File, form).In(lang))
	}
	if f.Advertise != "" {
		fmt.Fprintln(cmd.OutOrStdout(), i18n.Sprintf("%s: other gateways reach this one at %s (advertise = auto)",
			f.File, f.Advertise).In(lang))
	}
	summary := i18n.Sprintf("%s: no problems", f.File)
	warnings := status.Plural(f.Warnings, "%s warning", "%s warnings")
	switch {
	case !f.Usable:
		summary = i18n.Sprintf("%s: %s, %s", f.File, status.Plural(f.Errors, "%s error", "%s errors"), warnings)
	case f.Warnings > 0:
		summary = i18n.Sprintf("%s: usable, %s", f.File, warnings)
	}
	fmt.Fprintln(cmd.OutOrStdout(), summary.In(lang))
}

// loadConfig returns a usable configuration. Problems of an unusable one are printed; warnings are
// left to "check" and the log.
func loadConfig(cmd *cobra.Command, path string) (*config.Config, error) {
	cfg, problems := config.Load(path)
	if cfg == nil {
		for _, p := range problems {
			fmt.Fprintln(cmd.ErrOrStderr(), p.Message().In(languageOf(cmd)))
		}
		return nil, i18n.Errorf("cannot use %s", path)
	}
	return cfg, nil
}
