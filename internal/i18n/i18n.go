// Package i18n contains the texts that the program prints for people, and their translations.
//
//	text := i18n.Sprintf("there is no folder %q for the log", dir)
//	fmt.Println(text)                  // English
//	fmt.Println(text.In(i18n.Chinese)) // by the catalog zh.json
//
// The catalog has the translation of a format under the English format. A sentence without an entry
// is printed in English. tests/translation finds all formats in the source, and reports formats
// without an entry and entries without a format.
package i18n

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Text is a sentence that can be translated. It keeps the English format and its arguments. The
// zero value is the empty text.
type Text struct {
	english string
	format  string
	args    []any
}

// Sprintf returns a Text. In translates it with those of its arguments that are Texts or errors.
func Sprintf(format string, args ...any) Text {
	return Text{english: fmt.Sprintf(format, args...), format: format, args: args}
}

// Plain returns the Text of a sentence without arguments.
func Plain(sentence string) Text { return Text{english: sentence, format: sentence} }

// Of returns a Text unchanged, and the Text of a string. It is for parameters that accept either.
func Of(text any) Text {
	if t, ok := text.(Text); ok {
		return t
	}
	return Plain(text.(string))
}

// String returns the text in English.
func (t Text) String() string { return t.english }

// IsZero reports whether the text is empty.
func (t Text) IsZero() bool { return t.english == "" }

// MarshalText returns the text in English: output for programs does not depend on the language.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.english), nil }

// In returns the text in a language.
func (t Text) In(l Language) string {
	if l == English {
		return t.english
	}
	format := l.Translate(t.format)
	if len(t.args) == 0 && format == t.format {
		return t.english
	}
	args := slices.Clone(t.args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case interface{ In(Language) string }:
			args[i] = arg.In(l)
		case error:
			args[i] = errorIn(arg, l)
		}
	}
	return fmt.Sprintf(strings.ReplaceAll(format, "%w", "%v"), args...)
}

// textError is an error with a Text.
type textError struct {
	error // of fmt.Errorf
	text  Text
}

// Errorf returns an error like that of fmt.Errorf, with a text that ErrorText can translate.
func Errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &textError{error: err, text: Text{english: err.Error(), format: format, args: args}}
}

// Unwrap returns the error of fmt.Errorf.
func (e *textError) Unwrap() error { return e.error }

// In returns the text of the error in a language.
func (e *textError) In(l Language) string { return e.text.In(l) }

// ErrorText returns the text of an error.
func ErrorText(err error) Text { return Sprintf("%v", err) }

// errorIn returns the text of an error in a language. An error that neither Errorf has made nor the
// catalog has is translated in two parts: the cause at the end, which is the error that it wraps or
// the text behind the last colon, and the text in front.
func errorIn(err error, l Language) string {
	if e, ok := err.(interface{ In(Language) string }); ok {
		return e.In(l)
	}
	text := err.Error()
	if whole := l.Translate(text); whole != text {
		return whole
	}
	inner := errors.Unwrap(err)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list := joined.Unwrap()
		if errors.Join(list...).Error() == text {
			var lines []string
			for _, e := range list {
				lines = append(lines, errorIn(e, l))
			}
			return strings.Join(lines, "\n")
		}
		inner = list[len(list)-1]
	}
	if inner == nil || !strings.HasSuffix(text, inner.Error()) {
		_, cause, ok := strings.Cut(text[max(strings.LastIndex(text, ": "), 0):], ": ")
		if !ok {
			return text
		}
		inner = errors.New(cause)
	}
	cause := errorIn(inner, l)
	before, colon := strings.CutSuffix(strings.TrimSuffix(text, inner.Error()), ": ")
	if !colon {
		return before + cause
	}
	place := errorIn(errors.New(before), l)
	if place == before && cause == inner.Error() {
		return text
	}
	return place + l.Translate(": ") + cause
}
