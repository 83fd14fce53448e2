package gate

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The part of JUnit's XML that build servers read.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Name    string     `xml:"name,attr"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
		Out     string        `xml:"system-out"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

// JUnit writes a test case for each check: a failure where it fails, skipped where it is undecided, unless that counts
// as a failure.
func (r *Report) JUnit(w io.Writer, model, policy string, undecidedFails bool) error {
	s := junitSuite{Name: policy, Tests: len(r.Checks), Properties: []junitProperty{{"model", model},
		{"verdict", string(r.Verdict)}, {"error", fmt.Sprint(r.Error)}}}
	for i := range r.Checks {
		c := &r.Checks[i]
		k := junitCase{Class: policy + "." + c.Norm, Name: string(c.Channel), Out: c.String()}
		switch m := (&junitMessage{c.String()}); {
		case c.Verdict == Fail, c.Verdict == Undecided && undecidedFails:
			s.Failures++
			k.Failure = m
		case c.Verdict == Undecided:
			s.Skipped++
			k.Skipped = m
		}
		s.Cases = append(s.Cases, k)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Name: "posttrain eval gate", Suite: s}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// String is the check in one line.
func (c *Check) String() string {
	l := c.Leakage
	text := fmt.Sprintf("%s: leakage %s, limit %s: %s", c.Verdict, l, percent(l.Limit), l.Verdict)
	if u := c.Utility; u != nil {
		text += fmt.Sprintf("; utility %s, floor %s: %s", u, percent(u.Limit), u.Verdict)
	}
	return text
}
