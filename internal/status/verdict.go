package status

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Problem is something that a person on call should know of.
type Problem struct {
	State State // Warn or Bad
	Text  string
}

// Verdict is the health of a gateway.
type Verdict struct {
	State    State // Good, Warn or Bad
	Title    string
	Sentence string    // why
	More     []Problem // besides the one of the sentence
}

// Shares of failed answers in a minute from which on they are a problem, and the rate below which a
// share says little.
const (
	manyFailed    = .01
	tooManyFailed = .10
	rareAnswers   = .1 // a second
)

// missingFor is how long a gateway that has left without a word is a problem: then it was taken
// away on purpose.
const missingFor = time.Hour

// Verdict tells how well the gateway does, and why.
func (s *Snapshot) Verdict() Verdict {
	problems := s.problems()
	if len(problems) == 0 {
		return Verdict{Good, "Healthy", s.wellSentence(), nil}
	}
	v := Verdict{problems[0].State, "Degraded", problems[0].Text, problems[1:]}
	switch {
	case s.NotReady != "":
		v.Title = "Not ready"
	case v.State == Bad:
		v.Title = "Failing"
	}
	return v
}

// problems gives all problems, the worst first.
func (s *Snapshot) problems() []Problem {
	var list []Problem
	add := func(state State, format string, args ...any) {
		list = append(list, Problem{state, fmt.Sprintf(format, args...)})
	}
	if s.NotReady != "" {
		add(Bad, "Requests cannot be answered: %s.", s.NotReady)
	}
	if m := s.Traffic.Minute; m.Requests >= rareAnswers && m.Failed >= manyFailed*m.Requests {
		state := Warn
		if m.Failed >= tooManyFailed*m.Requests {
			state = Bad
		}
		add(state, "%s of the answers of the last minute had a status of 500 or above.", percent(m.Failed/m.Requests))
	}
	list = append(list, s.serverProblems()...)
	for _, b := range s.Budgets {
		if b.State > Idle {
			add(b.State, "%s: %s.", b.Name, b.Text)
		}
	}
	list = append(list, s.fleetProblems()...)
	if s.Panics > 0 {
		add(Warn, "%s contained since the start: a bug in the program, see the log.", plural(s.Panics, "panic was",
			"panics were"))
	}
	slices.SortStableFunc(list, func(a, b Problem) int { return int(b.State) - int(a.State) })
	return list
}

// serverProblems are those of storages, by group, and of trackers.
func (s *Snapshot) serverProblems() (list []Problem) {
	for _, group := range groupsOf(s.Storages) {
		down, all := 0, 0
		var names []string
		for _, server := range s.Storages {
			if server.Group == group {
				all++
				if server.State > Idle {
					down++
					names = append(names, server.Address+" "+server.Text)
				}
			}
		}
		state := Warn
		if down == all {
			state = Bad
		}
		if down > 0 {
			list = append(list, Problem{state, fmt.Sprintf("%d of %s of %s: %s.", down, plural(int64(all), "storage",
				"storages"),
				group, few(names))})
		}
	}
	var names []string
	for _, t := range s.Trackers {
		if t.State > Idle {
			names = append(names, t.Address)
		}
	}
	if len(names) > 0 {
		list = append(list, Problem{Warn,
			fmt.Sprintf("%d of %s cannot be reached: %s. The lists of storages stay as they were.",
				len(names), plural(int64(len(s.Trackers)), "tracker", "trackers"), few(names))})
	}
	return list
}

func (s *Snapshot) fleetProblems() (list []Problem) {
	if s.Fleet == nil {
		return nil
	}
	if s.Fleet.RedisDown {
		list = append(list, Problem{Warn, "Redis (" + s.Fleet.Redis + ") cannot be reached: files are served, " +
			"but purges reach this gateway alone."})
	}
	for _, g := range s.Fleet.Gateways {
		switch {
		case !g.Live && s.At.Sub(g.Seen) < missingFor:
			list = append(list, Problem{Warn, fmt.Sprintf("Gateway %s has not been heard of for %s.", g.Name,
				age(s.At.Sub(g.Seen)))})
		case g.Live && !g.Self && g.About.State > Idle:
			list = append(list, Problem{Warn, fmt.Sprintf("Gateway %s is not well: %s", g.Name, g.About.Why)})
		}
	}
	return list
}

// wellSentence says what is served, and by what.
func (s *Snapshot) wellSentence() string {
	text := "Files of this host are served"
	if len(s.Trackers) > 0 {
		text = plural(int64(len(s.Trackers)), "tracker", "trackers")
		if len(s.Storages) > 0 {
			text += " and " + plural(int64(len(s.Storages)), "storage", "storages")
		}
		text += " without a failure"
	}
	if s.Fleet != nil && len(s.Fleet.Gateways) > 1 {
		text += fmt.Sprintf(", %d gateways in the fleet", len(s.Fleet.Gateways))
	}
	if !s.Traffic.Now.Begin.IsZero() {
		text += fmt.Sprintf(", %s requests a second", number(s.Traffic.Now.Requests))
	}
	return text + "."
}

// groupsOf lists the groups of servers in their order.
func groupsOf(servers []Server) (groups []string) {
	for _, s := range servers {
		if !slices.Contains(groups, s.Group) {
			groups = append(groups, s.Group)
		}
	}
	return groups
}

// few joins the first of many names.
func few(names []string) string {
	const limit = 3
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}
