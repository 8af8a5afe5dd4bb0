// Package help is the form of "gateway help -json": cmd/gateway prints it, and packaging/mkdist
// makes manual pages and completions of shells from it.
package help

// Command is one command of the program.
type Command struct {
	Name    string `json:"name"`
	Usage   string `json:"usage"` // the whole line
	About   string `json:"about"`
	Example string `json:"example"`
	Fails   string `json:"exit_1"` // the meaning of exit code 1
	Flags   []Flag `json:"flags"`
}

// Flag is a flag of a command.
type Flag struct {
	Name    string `json:"name"`  // without the hyphen
	Value   string `json:"value"` // kind of its value: FILE, string, duration; empty: the flag has none
	About   string `json:"about"`
	Default string `json:"default,omitempty"`
}
