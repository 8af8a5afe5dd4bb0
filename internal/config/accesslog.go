package config

import (
	"errors"
	"strings"

	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/httpserver/logtemplate"
	"fastdfs-gateway/internal/i18n"
)

// accessLog parses a path, "-", or nginx's word off.
func accessLog(p *string) field {
	return path(p).then(func(v string) *parseError {
		if strings.EqualFold(v, "off") {
			*p = ""
		}
		if strings.ContainsAny(v, blanks) {
			return questionable("write access_log = FILE, and the format as access_log_format",
				"names a file with a blank in its name")
		}
		return nil
	})
}

// logFormat parses combined, json, or a template of package logtemplate.
func logFormat(p *string) field {
	const fix = "write combined, json, or a template such as $remote_addr [$time_local] \"$request\" $status"
	words := choice(p, "combined", "json")
	return field{parse: func(v string) *parseError {
		if !strings.Contains(v, "$") {
			r := words.parse(v)
			if r != nil {
				r.fix = i18n.Plain(fix)
			}
			return r
		}
		_, err := logtemplate.Parse(v)
		var unknown *logtemplate.UnknownError
		switch {
		case errors.As(err, &unknown):
			if near, ok := Nearest(unknown.Name, logtemplate.Names()); ok {
				return invalid(i18n.Sprintf("did you mean $%s?", near),
					"holds $%s, which is no variable", clip(unknown.Name))
			}
			return invalid("remove it; docs/responses.md has the list of variables",
				"holds $%s, which is no variable", clip(unknown.Name))
		case err != nil:
			return invalid(fix, "cannot be used: %v", err)
		}
		*p = v
		return nil
	}}
}

// selectors parses a comma list of selectors of files.
func selectors(p *[]fileselect.Selector) field {
	return commaList(p, func(part string) (fileselect.Selector, *parseError) {
		s, err := fileselect.Parse(part)
		if err == nil && s.IsEmpty() {
			err = i18n.Errorf("a selector is empty")
		}
		if err != nil {
			return s, invalid("write selectors such as jpg png, group2/ or group3/M00/ gif, with commas between them",
				"cannot be used: %v", err)
		}
		return s, nil
	})
}
