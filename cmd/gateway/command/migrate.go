package command

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/tools/migrate"

	"github.com/spf13/cobra"
)

// modulePath is the file that the module of nginx reads.
const modulePath = "/etc/fdfs/mod_fastdfs.conf"

// translation is the result of "gateway migrate", in the form of -json.
type translation struct {
	Nginx    string            `json:"nginx"`
	Module   string            `json:"module,omitempty"` // the mod_fastdfs.conf that the configuration includes
	File     string            `json:"file,omitempty"`   // file that was written
	Complete bool              `json:"complete"`         // nothing lacks a translation
	Config   string            `json:"config"`
	Findings []migrate.Finding `json:"findings"`
}

// migrateCommand translates a configuration of nginx.
func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "migrate -nginx NGINX_CONF [-c MOD_FASTDFS_CONF] [-o FILE] [-v] [-json] [-lang en|zh]",
		Short:   "translate the server blocks of nginx that serve FastDFS into a configuration of the gateway",
		Example: "gateway migrate -nginx /etc/nginx/nginx.conf -c /etc/fdfs/mod_fastdfs.conf -o gateway.conf",
		Annotations: exits("NGINX_CONF cannot be read or is wrong; nothing is written",
			"something has no translation; it is listed"),
	}
	nginx := cmd.Flags().String("nginx", "", "the `NGINX_CONF`: a whole nginx.conf, or a file of conf.d")
	module := cmd.Flags().StringP("config", "c", "",
		"the `MOD_FASTDFS_CONF` of the module, which the result includes; by default "+modulePath+" if it is there")
	out := cmd.Flags().StringP("output", "o", "", "write to `FILE`, not to standard output")
	all := cmd.Flags().BoolP("verbose", "v", false, "name the directives that need nothing as well")
	asJSON, lang := jsonFlag(cmd), languageFlag(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *nginx == "" {
			return usageError{i18n.Errorf("migrate: -nginx is missing")}
		}
		return sameFile(*out, *nginx, *module)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asJSON {
			*lang = i18n.English
		}
		made, err := translate(*nginx, *module, *all, *lang)
		var mistakes migrate.MistakesError
		switch {
		case errors.As(err, &mistakes):
			made.Findings = mistakes
		case err != nil:
			return err
		case *out != "" && made.Config != "":
			if err := os.WriteFile(*out, []byte(made.Config), 0o644); err != nil {
				return i18n.Errorf("cannot write the configuration: %w", err)
			}
			made.File = *out
		}
		return made.print(cmd, *asJSON, mistakes != nil, *lang)
	}
	return cmd
}

// sameFile returns an error if the output would replace an input.
func sameFile(out string, inputs ...string) error {
	info, err := os.Stat(out)
	if out == "" || err != nil {
		return nil
	}
	for _, name := range inputs {
		if other, err := os.Stat(name); err == nil && os.SameFile(info, other) {
			return usageError{i18n.Errorf("migrate: -o %s would replace a file that is read", out)}
		}
	}
	return nil
}

// translate reads the files and translates them. lang is the language of comments in the result.
func translate(nginx, module string, all bool, lang i18n.Language) (translation, error) {
	made := translation{Nginx: nginx, Findings: []migrate.Finding{}}
	options := migrate.Options{Readable: isReadable, Writable: canLog, HasAccount: hasAccount, Language: lang}
	if module == "" && isReadable(modulePath) {
		module = modulePath
	}
	if info, err := os.Stat(module); err == nil && !info.Mode().IsRegular() { // the open of a pipe would wait
		return made, i18n.Errorf("cannot use %s: it is no regular file", module)
	}
	if module != "" {
		cfg, problems := config.Load(module)
		if cfg == nil {
			return made, i18n.Errorf("cannot use %s: %w", module, config.JoinErrors(problems))
		}
		path, err := filepath.Abs(module)
		if err != nil {
			return made, i18n.Errorf("cannot find %s: %w", module, err)
		}
		made.Module, options.ModuleFile, options.Module = path, path, moduleOf(cfg)
	}
	path, err := filepath.Abs(nginx)
	if err != nil {
		return made, i18n.Errorf("cannot find %s: %w", nginx, err)
	}
	tree, err := migrate.Read(path)
	if err != nil {
		return made, i18n.Errorf("cannot translate %s: %w", nginx, err)
	}
	result := migrate.Translate(tree, options)
	if result.Config != "" {
		rejected, err := rejectedLines(result.Config)
		if err != nil {
			return made, err
		}
		result.Findings = append(result.Findings, rejected...)
	}
	made.Config, made.Complete = result.Config, result.Complete()
	if all {
		result.Findings = append(result.Findings, result.Nothing...)
	}
	made.Findings = append(made.Findings, result.Findings...)
	return made, nil
}

// rejectedLines loads a result as gateway check does, and returns its errors as findings, with the
// line of nginx from which the key comes.
func rejectedLines(text string) (found []migrate.Finding, err error) {
	f, err := os.CreateTemp("", "gateway-migrate-*.conf")
	if err != nil {
		return nil, i18n.Errorf("cannot check the result: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a file of the system's folder for such files
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, i18n.Errorf("cannot check the result: %w", err)
	}
	_, problems := config.Load(f.Name())
	lines := strings.Split(text, "\n")
	for _, p := range problems {
		if p.Severity != config.Error || p.File != f.Name() {
			continue
		}
		finding := migrate.Finding{Kind: migrate.Untranslated, File: "the result", Line: p.Line,
			Text: i18n.Sprintf("gateway check rejects it: %s", p.Text), Advice: p.Fix}
		if p.Line > 1 && p.Line <= len(lines) {
			finding.Directive = lines[p.Line-1]
			if m := nginxLine.FindStringSubmatch(lines[p.Line-2]); m != nil {
				finding.File, finding.Directive = m[1], m[3]
				finding.Line, _ = strconv.Atoi(m[2])
			}
		}
		found = append(found, finding)
	}
	return found, nil
}

// nginxLine matches the comment above a key, which names a line of nginx.
var nginxLine = regexp.MustCompile(`^# (.+):(\d+) (.*)$`)

// moduleOf returns the part of a mod_fastdfs.conf that the translation needs.
func moduleOf(cfg *config.Config) migrate.Module {
	m := migrate.Module{GroupInURL: cfg.URLHasGroupName, DefaultType: cfg.DefaultType,
		HasTrackers: len(cfg.TrackerServers) > 0}
	for _, g := range cfg.Groups {
		if g.Name != "" {
			m.Groups = append(m.Groups, g.Name)
		}
	}
	return m
}

func isReadable(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // the open of a pipe would wait for its writer
		return false
	}
	f, err := os.Open(path)
	return err == nil && f.Close() == nil
}

// canLog reports whether a path can be a log: its folder exists, and the path is free or a regular
// file.
func canLog(path string) bool {
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil || !folder.IsDir() {
		return false
	}
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

func hasAccount(name string) bool {
	_, err := user.Lookup(name)
	return err == nil
}

// print prints the configuration to standard output, and the findings to standard error.
func (m translation) print(cmd *cobra.Command, asJSON, wrong bool, lang i18n.Language) error {
	if asJSON {
		if err := printJSON(cmd, m); err != nil {
			return err
		}
	} else {
		for _, f := range m.Findings {
			fmt.Fprintln(cmd.ErrOrStderr(), f.In(lang))
		}
		if m.File == "" {
			fmt.Fprint(cmd.OutOrStdout(), m.Config)
		}
		fmt.Fprintln(cmd.ErrOrStderr(), m.summary(wrong).In(lang))
	}
	switch {
	case wrong:
		return errPrinted
	case !m.Complete:
		return errIncomplete
	}
	return nil
}

// summary returns the last line of the output.
func (m translation) summary(wrong bool) i18n.Text {
	lost := 0
	for _, f := range m.Findings {
		if f.Kind != migrate.Note && f.Kind != migrate.Nothing {
			lost++
		}
	}
	notes := status.Plural(len(m.Findings)-lost, "%s note", "%s notes")
	switch {
	case wrong:
		return i18n.Sprintf("%s: not translated: %s", m.Nginx, status.Plural(lost, "%s mistake", "%s mistakes"))
	case m.Config == "":
		return i18n.Sprintf("%s: not translated", m.Nginx)
	case lost == 0:
		return i18n.Sprintf("%s: all translated, %s", m.Nginx, notes)
	}
	return i18n.Sprintf("%s: translated; %s, %s", m.Nginx,
		status.Plural(lost, "%s line has no translation", "%s lines have no translation"), notes)
}
