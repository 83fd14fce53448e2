package confaide

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/posttrain/posttrain/data"
)

// Tiers are the benchmark's tiers, in order.
var Tiers = []string{"1", "2a", "2b", "3", "4"}

// Set is what was read of the benchmark.
type Set struct {
	Statements map[string][]Statement // by tier: 1, 2a, 2b
	Scenarios  []Scenario             // tier 3
	Meetings   []Meeting              // tier 4
}

// Statement is a question for a rating, with the mean rating that people gave.
type Statement struct {
	Text  string // to the letter: tiers 1 and 2 have the two characters \n where a line break is meant
	Human float64
}

// Scenario is a story in which Questioner speaks with Questionee, who keeps a secret about a third person.
type Scenario struct {
	About, Questionee, Questioner string // names
	Secret                        string // in a few words: "Falsify work results"
	Story                         string // without the question that ends it
	Control                       string // may the questionee share the secret? The right answer is no
}

// Meeting is a transcript with something that somebody in it must not learn, and something that all must.
type Meeting struct {
	Private, Public string // as the transcript words them
	Text            string
}

// readSet reads the files of some tiers from a folder, by the names that the benchmark has given them.
func readSet(fsys fs.FS, dir string, tiers []string) (*Set, *data.Report, error) {
	set, report := &Set{Statements: map[string][]Statement{}}, &data.Report{Path: dir}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, tier := range tiers {
		var err error
		switch tier {
		case "1", "2a", "2b":
			labels := at("tier_" + tier[:1] + "_labels.txt")
			set.Statements[tier], err = readStatements(fsys, at("tier_"+tier+".txt"), labels, scales[tier[:1]])
			report.Read += len(set.Statements[tier])
		case "3":
			set.Scenarios, err = readScenarios(fsys, at("tier_3.txt"), at("tier_3_control.txt"), report)
			report.Read += len(set.Scenarios)
		case "4":
			set.Meetings, err = readMeetings(fsys, at("tier_4.txt"))
			report.Read += len(set.Meetings)
		default:
			err = fmt.Errorf("tier %q: want %s", tier, strings.Join(Tiers, ", "))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	report.Kept = report.Read
	return set, report, nil
}

// scales are the lowest and the highest rating, by the first digit of the tier.
var scales = map[string][2]float64{"1": {1, 4}, "2": {-100, 100}}

// readStatements reads a statement a line, and their labels from another file.
func readStatements(fsys fs.FS, path, labelPath string, scale [2]float64) ([]Statement, error) {
	texts, err := readEntries(fsys, path, "a statement")
	if err != nil {
		return nil, err
	}
	labels, err := readLabels(fsys, labelPath, scale)
	if err != nil {
		return nil, err
	}
	if err := sameNumber(labelPath, "label", len(labels), path, "statement", len(texts)); err != nil {
		return nil, err
	}
	all := make([]Statement, len(texts))
	for i, text := range texts {
		all[i] = Statement{text, labels[i]}
	}
	return all, nil
}

func readLabels(fsys fs.FS, path string, scale [2]float64) (labels []float64, err error) {
	lines, err := readEntries(fsys, path, "a label")
	for i, line := range lines {
		x, fault := strconv.ParseFloat(line, 64)
		if fault != nil || math.IsNaN(x) || x < scale[0] || x > scale[1] {
			return nil, fmt.Errorf("%s:%d: label %q: want a number from %v to %v", path, i+1, data.OneLine(line, 30),
				scale[0], scale[1])
		}
		labels = append(labels, x)
	}
	return labels, err
}

// sameNumber wants one line of the file at path, with what, for each of the others in another file.
func sameNumber(path, what string, n int, other, others string, want int) error {
	switch {
	case n < want:
		return fmt.Errorf("%s:%d: the file ends here, but %s has %d %ss: want one %s for each", path, n, other, want,
			others, what)
	case n > want:
		return fmt.Errorf("%s:%d: one %s too many, for %s has %d %ss: want one for each", path, want+1, what, other,
			want, others)
	}
	return nil
}

// readScenarios reads stories between lines that begin with <BEGIN> and <END>, and a control question for each.
func readScenarios(fsys fs.FS, path, controlPath string, report *data.Report) ([]Scenario, error) {
	stories, err := readBlocks(fsys, path)
	if err != nil {
		return nil, err
	}
	controls, err := readEntries(fsys, controlPath, "a control question")
	if err != nil {
		return nil, err
	}
	err = sameNumber(controlPath, "control question", len(controls), path, "scenario", len(stories))
	if err != nil {
		return nil, err
	}
	all := make([]Scenario, len(stories))
	for i, b := range stories {
		if all[i], err = scenarioOf(b); err != nil {
			return nil, err
		}
		all[i].Control = controls[i]
		for _, remark := range all[i].remarks() {
			report.Remark(remark, b.begin)
		}
	}
	return all, nil
}

func (s *Scenario) remarks() (found []string) {
	if !strings.Contains(s.Story, s.About) {
		found = append(found, "the story does not name whom the secret is about")
	}
	if !strings.Contains(s.Control, s.Questionee) {
		found = append(found, "the control question does not name who keeps the secret")
	}
	return found
}

func scenarioOf(b block) (s Scenario, err error) {
	if len(strings.Split(unbracket(b.head), ",")) != 4 {
		return s, fmt.Errorf("%s: %s: want <BEGIN><topic,relation,relation,reason>", b.begin, data.OneLine(b.head, 60))
	}
	names, ok := strings.CutPrefix(b.foot, b.head)
	if !ok {
		return s, fmt.Errorf("%s: %s: want <END> with what follows <BEGIN> at %s", b.end, data.OneLine(b.foot, 60),
			b.begin)
	}
	for _, p := range []struct {
		name string
		to   *string
	}{{"about", &s.About}, {"questionee", &s.Questionee}, {"questioner", &s.Questioner}, {"topic", &s.Secret}} {
		if *p.to, err = named(unbracket(names), p.name); err != nil {
			return s, fmt.Errorf("%s: %w", b.end, err)
		}
	}
	if values := []string{s.About, s.Questionee, s.Questioner, s.Secret}; !distinct(values) {
		return s, fmt.Errorf("%s: two of %s are the same: want three persons and a topic", b.end,
			data.OneLine(strings.Join(values, ", "), 80))
	}
	s.Story = storyOf(b.text)
	if strings.Trim(s.Story, ". ") == "" {
		return s, fmt.Errorf("%s: there is no story: want sentences that end in a full stop, and a question", b.begin)
	}
	return s, nil
}

// named finds a value such as Jane in "About: Jane,Questionee: Ethan,…".
func named(list, name string) (value string, err error) {
	for _, entry := range strings.Split(list, ",") {
		key, text, ok := strings.Cut(entry, ": ")
		if !ok || !strings.EqualFold(strings.TrimSpace(key), name) {
			continue
		}
		if value != "" {
			return "", fmt.Errorf("%s is there twice: want it once", name)
		}
		value = strings.Trim(strings.TrimSpace(text), ".")
	}
	if value == "" {
		return "", fmt.Errorf("%s has no %s: want <About: NAME,Questionee: NAME,Questioner: NAME,Topic: WORDS>",
			data.OneLine(list, 80), name)
	}
	return value, nil
}

func distinct(values []string) bool {
	sorted := slices.Sorted(slices.Values(values))
	return len(slices.Compact(sorted)) == len(values)
}

// storyOf puts a story on one line, and drops its last sentence, the question, as the benchmark does: a sentence ends
// in a full stop and a blank.
func storyOf(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "  ", " ")
	sentences := strings.Split(text, ". ")
	return strings.ReplaceAll(strings.Join(sentences[:len(sentences)-1], ". "), "  ", " ") + "."
}

// readMeetings reads transcripts between lines that begin with <BEGIN> and <END>.
func readMeetings(fsys fs.FS, path string) ([]Meeting, error) {
	blocks, err := readBlocks(fsys, path)
	if err != nil {
		return nil, err
	}
	all := make([]Meeting, len(blocks))
	for i, b := range blocks {
		m := &all[i]
		if m.Private, m.Public, err = pairOf(b.begin, b.head); err != nil {
			return nil, err
		}
		private, public, err := pairOf(b.end, b.foot)
		if err != nil {
			return nil, err
		}
		if private != m.Private || public != m.Public {
			return nil, fmt.Errorf("%s: %s: want what %s has", b.end, data.OneLine(b.foot, 60), b.begin)
		}
		m.Text = strings.ReplaceAll(strings.ReplaceAll(b.text, "\n\n\n", "\n"), "\n\n", "\n")
		if strings.TrimSpace(m.Text) == "" {
			return nil, fmt.Errorf("%s: there is no transcript: want its lines before <END>", b.begin)
		}
	}
	return all, nil
}

// pairOf reads <private,public>.
func pairOf(place, text string) (private, public string, err error) {
	private, public, _ = strings.Cut(unbracket(text), ",")
	private, public = strings.TrimSpace(private), strings.TrimSpace(public)
	if private == "" || public == "" || strings.Contains(public, ",") {
		return "", "", fmt.Errorf("%s: %q: want <private information, public information>", place,
			data.OneLine(text, 60))
	}
	return private, public, nil
}

func unbracket(s string) string { return strings.TrimPrefix(strings.TrimSuffix(s, ">"), "<") }
