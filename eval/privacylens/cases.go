package privacylens

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Case is one case of PrivacyLens, in the field names of its release: a norm of privacy (the seed), a story in which it
// is at stake (the vignette), and what an agent has done so far (the trajectory). Its user asks for something that the
// agent can do without breaking the norm.
type Case struct {
	Name       string     `json:"name"`
	Seed       Seed       `json:"seed"`
	Vignette   Vignette   `json:"vignette"`
	Trajectory Trajectory `json:"trajectory"`
	Place      string     `json:"-"` // "main_data.json: row 41"
}

// Seed is the norm: the sender should not share such information about the subject with the recipient in this way.
type Seed struct {
	DataType              string          `json:"data_type"`
	DataSubject           string          `json:"data_subject"`
	DataSender            string          `json:"data_sender"`
	DataSenderName        string          `json:"data_sender_name"`
	DataRecipient         string          `json:"data_recipient"`
	TransmissionPrinciple string          `json:"transmission_principle"` // "send an email"
	Source                string          `json:"source"`                 // crowdsourcing, literature …
	SourceDetails         json.RawMessage `json:"source_details,omitempty"`
}

// Vignette is the story, with the names of its persons and its information.
type Vignette struct {
	Story         string `json:"story"`
	DataType      string `json:"data_type_concrete"`
	DataSubject   string `json:"data_subject_concrete"`
	DataSender    string `json:"data_sender_concrete"`
	DataRecipient string `json:"data_recipient_concrete"`
}

// Trajectory is the agent's task and its past.
type Trajectory struct {
	UserName    string   `json:"user_name"`
	UserEmail   string   `json:"user_email"`
	Instruction string   `json:"user_instruction"`
	Toolkits    []string `json:"toolkits"`
	Past        string   `json:"executable_trajectory"` // Action, Action Input, Observation, again and again
	FinalAction string   `json:"final_action"`          // the tool that the next action should use
	Items       []string `json:"sensitive_info_items"`  // sentences that the next action should not give away
}

// readCases reads cases from a .json, .jsonl or .parquet file, each also with .gz. A case that lacks what actions are asked
// for and judged by, or a second one of the same name, is an error that names the row; what probing alone needs is
// counted as a remark in the data.Report where it is missing. NaN, which a released file has in a field that nothing
// reads, is null.
func readCases(fsys fs.FS, path string) ([]Case, *data.Report, error) {
	places := map[string]string{} // by name
	in := data.PythonRows(fsys, path, "name", "seed", "vignette", "trajectory")
	return data.NewStream(path, in, func(r data.Row, report *data.Report) (Case, string, error) {
		c, err := caseOf(r.Text)
		if first, twice := places[c.Name]; err == nil && twice {
			err = fmt.Errorf("name %q is at %s already: want every name once", c.Name, first)
		}
		if err != nil {
			return c, "", err
		}
		c.Place, places[c.Name] = r.Source, r.Source
		for _, remark := range c.remarks() {
			report.Remark(remark, r.Source)
		}
		return c, "", nil
	}).Collect()
}

// caseOf decodes a case; a missing field is an error.
func caseOf(text []byte) (Case, error) {
	var c Case
	if err := data.Unmarshal(text, &c); err != nil {
		return c, err
	}
	for _, field := range []struct {
		name  string
		empty bool
	}{
		{"name", blank(c.Name)},
		{"trajectory.user_name", blank(c.Trajectory.UserName)},
		{"trajectory.user_instruction", blank(c.Trajectory.Instruction)},
		{"trajectory.toolkits", len(c.Trajectory.Toolkits) == 0},
		{"trajectory.executable_trajectory", blank(c.Trajectory.Past)},
		{"trajectory.final_action", blank(c.Trajectory.FinalAction)},
		{"trajectory.sensitive_info_items", len(c.Trajectory.Items) == 0},
	} {
		if field.empty {
			return c, fmt.Errorf("%s is missing or empty: want name, seed, vignette and trajectory {user_name, "+
				"user_instruction, toolkits, "+
				"executable_trajectory, final_action, sensitive_info_items}", field.name)
		}
	}
	return c, c.checkItems()
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// checkItems refuses empty and repeated items: verdicts name them.
func (c *Case) checkItems() error {
	seen := map[string]bool{}
	for i, item := range c.Trajectory.Items {
		if blank(item) {
			return fmt.Errorf("trajectory.sensitive_info_items[%d] is empty: want a sentence", i)
		}
		if seen[item] {
			return fmt.Errorf("trajectory.sensitive_info_items[%d] comes twice: %.60q", i, item)
		}
		seen[item] = true
	}
	return nil
}

// remarks are the fields that probing or the groups of a report lack.
func (c *Case) remarks() []string {
	var remarks []string
	s, v := &c.Seed, &c.Vignette
	for _, w := range []struct {
		what string
		is   bool
	}{
		{"no source", blank(s.Source)},
		{"no transmission principle", blank(s.TransmissionPrinciple)},
		{"the seed is not complete: it cannot be probed", blank(s.DataType) || blank(s.DataSubject) ||
			blank(s.DataSender) || blank(s.DataSenderName) || blank(s.DataRecipient)},
		{"the vignette is not complete: it cannot be probed", blank(v.Story) || blank(v.DataType) ||
			blank(v.DataSubject) || blank(v.DataSender) || blank(v.DataRecipient)},
	} {
		if w.is {
			remarks = append(remarks, w.what)
		}
	}
	return remarks
}
