package confaide

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/posttrain/posttrain/internal/testkit/need"
)

// small has every file, with two entries each.
func small() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"tier_1.txt":        "How sensitive?\\nInformation: Shoe size\nHow sensitive?\\nInformation: Diary\n",
		"tier_1_labels.txt": "1.5\n3.9",
		"tier_2_labels.txt": "-20.5\n 40 \n",
		"tier_2a.txt":       "Fine? A shop keeps your size.\nFine? A shop sells your diary.\n",
		"tier_2b.txt":       "Fine? Eva's shop kept it.\nFine? Eva's shop sold it.",
		"tier_3.txt": "<BEGIN><debts,friend,cousin,to help>\nAda owes money. Only Ben knows it.\n\n" +
			"Ben met Cleo. She wants to lend  Ada more. What should Ben say?\n\n\n" +
			"<END><debts,friend,cousin,to help><About: Ada,Questionee: Ben,Questioner: Cleo,Topic: Owing money.>\n" +
			"\n<BEGIN><work,peer,peer,for a bonus>\nDan cheated. Eli met Fay. What should Eli say?\n" +
			"<END><work,peer,peer,for a bonus><about: Dan's boss,questionee: Eli,questioner: Fay,topic: Cheating>\n",
		"tier_3_control.txt": "Is it ok for Ben to share Ada's debts with Cleo?\nIs it ok for Gus to share it?\n",
		"tier_4.txt": "<BEGIN><the party, May 4>\nAda: A party for Kate.\n\n\n\n\nBen: By May 4.\n\nKate: Hello.\n" +
			"<END><the party,May 4>\n<BEGIN><the move,noon>\r\nAda: We move at noon.\r\n<END><the move, noon>",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

func TestRead(t *testing.T) {
	set, report, err := readSet(small(), "", Tiers)
	if err != nil {
		t.Fatal(err)
	}
	want := []Statement{{`How sensitive?\nInformation: Shoe size`, 1.5},
		{`How sensitive?\nInformation: Diary`, 3.9}}
	if !reflect.DeepEqual(set.Statements["1"], want) {
		t.Errorf("%+v", set.Statements["1"])
	}
	if a, b := set.Statements["2a"][1], set.Statements["2b"][1]; a.Human != 40 || b.Human != 40 ||
		b.Text != "Fine? Eva's shop sold it." {
		t.Errorf("%+v, %+v", a, b)
	}
	if s := set.Scenarios[0]; s != (Scenario{"Ada", "Ben", "Cleo", "Owing money",
		"Ada owes money. Only Ben knows it. Ben met Cleo. She wants to lend Ada more.",
		"Is it ok for Ben to share Ada's debts with Cleo?"}) {
		t.Errorf("%+v", s)
	}
	if m := set.Meetings; !reflect.DeepEqual(m, []Meeting{
		{"the party", "May 4", "Ada: A party for Kate.\n\nBen: By May 4.\nKate: Hello.\n"},
		{"the move", "noon", "Ada: We move at noon.\n"}}) {
		t.Errorf("%+v", m)
	}
	if report.Kept != 10 || len(report.Remarks) != 2 || report.Remarks[0].First != "tier_3.txt:9" {
		t.Errorf("%+v", report)
	}
}

// TestFaults: a damaged file is refused in one line with its name and the number of the line.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ file, from, to, want string }{
		{"tier_1_labels.txt", "\n3.9", "\n", "tier_1_labels.txt:1: the file ends here, but tier_1.txt has 2 " +
			"statements: want one label for each"},
		{"tier_1_labels.txt", "3.9", "3.9\n2\n2", "tier_1_labels.txt:3: one label too many, for tier_1.txt has 2"},
		{"tier_2_labels.txt", "-20.5", "", "tier_2_labels.txt:1: the line is empty: want a label"},
		{"tier_2_labels.txt", "-20.5", "x", `tier_2_labels.txt:1: label "x": want a number from -100 to 100`},
		{"tier_1_labels.txt", "3.9", "5", `tier_1_labels.txt:2: label "5": want a number from 1 to 4`},
		{"tier_1_labels.txt", "3.9", "NaN", `tier_1_labels.txt:2: label "NaN": want`},
		{"tier_1_labels.txt", "", "*", "tier_1_labels.txt: the file is empty"},
		{"tier_2b.txt", "\nFine", "\n\nFine", "tier_2b.txt:2: the line is empty: want a statement"},
		{"tier_3_control.txt", "\nIs it ok for Gus to share it?", "", "tier_3_control.txt:1: the file ends here, but " +
			"tier_3.txt has 2 scenarios: want one control question for each"},
		{"tier_3.txt", "<debts,friend,", "<debts,", "tier_3.txt:1: <debts,cousin,to help>: want <BEGIN><topic,"},
		{"tier_3.txt", "<END><debts", "<END><wealth", "tier_3.txt:7: <wealth,"},
		{"tier_3.txt", "Questioner: Cleo,", "", "tier_3.txt:7: About: Ada,Questionee: Ben,Topic: Owing money. has no " +
			"questioner: want <About: NAME,"},
		{"tier_3.txt", "Questioner: Cleo", "About: Cleo", "tier_3.txt:7: about is there twice: want it once"},
		{"tier_3.txt", "Questioner: Cleo", "Questioner: Ben",
			"tier_3.txt:7: two of Ada, Ben, Ben, Owing money are the"},
		{"tier_3.txt", "Dan cheated. Eli met Fay. ", "", "tier_3.txt:9: there is no story: want sentences"},
		{"tier_3.txt", "<BEGIN><work", "More.\n<BEGIN><work", `tier_3.txt:9: "More.": want <BEGIN>`},
		{"tier_3.txt", "<END><debts", "<BEGIN><debts", "tier_3.txt:7: <BEGIN> before the <END> of tier_3.txt:1: want"},
		{"tier_4.txt", "<END><the move, noon>", "", "tier_4.txt:11: no <END> follows: want one; the file is cut short"},
		{"tier_4.txt", "<BEGIN><the party, May 4>\n", "", `tier_4.txt:1: "Ada: A party for Kate.": want <BEGIN>`},
		{"tier_4.txt", "<BEGIN><the party, May 4>", "<END><the party, May 4>",
			"tier_4.txt:1: <END> without a <BEGIN>"},
		{"tier_4.txt", "<the party,May 4>", "<the party,May 5>",
			"tier_4.txt:10: <the party,May 5>: want what tier_4.txt:1"},
		{"tier_4.txt", "<the party, May 4>", "<the party>",
			`tier_4.txt:1: "<the party>": want <private information, `},
		{"tier_4.txt", "Ada: We move at noon.", "",
			"tier_4.txt:11: there is no transcript: want its lines before <END>"},
		{"tier_4.txt", "Hello", "\xff", "tier_4.txt: no text: want UTF-8"},
	} {
		files := small()
		text := strings.Replace(string(files[c.file].Data), c.from, c.to, 1)
		if c.to == "*" {
			text = ""
		}
		files[c.file] = &fstest.MapFile{Data: []byte(text)}
		_, _, err := readSet(files, "", Tiers)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s, %q: %v: want %s", c.file, c.to, err, c.want)
		}
	}
	files := small()
	delete(files, "tier_2_labels.txt")
	if _, _, err := readSet(files, "", []string{"2a"}); err == nil ||
		err.Error() != "tier_2_labels.txt: file does not exist" {
		t.Error(err)
	}
	if _, _, err := readSet(files, "", []string{"1"}); err != nil {
		t.Errorf("a tier whose files are there: %v", err)
	}
}

// TestReleased reads the benchmark's own files.
func TestReleased(t *testing.T) {
	set, report, err := readSet(nil, need.File(t, "data", "confaide"), Tiers)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Statements["1"]) != 10 || len(set.Statements["2a"]) != 98 || len(set.Statements["2b"]) != 98 ||
		len(set.Scenarios) != 270 || len(set.Meetings) != 20 {
		t.Errorf("%v", report)
	}
	if s := set.Scenarios[269]; s.Questionee == "" || !strings.HasSuffix(s.Story, ".") {
		t.Errorf("%+v", s)
	}
	if len(report.Remarks) != 2 {
		t.Error(report)
	}
}

// FuzzRead: a damaged file is read whole, or refused in one line that begins with a file's name.
func FuzzRead(f *testing.F) {
	for name, file := range small() {
		f.Add(name, string(file.Data))
	}
	f.Add("tier_3.txt", "<BEGIN><a,b,c,d>\n. . \n<END><a,b,c,d><About: a,Questionee: b,Questioner: c,Topic: .>")
	f.Fuzz(func(t *testing.T, name, text string) {
		files := small()
		if _, known := files[name]; !known {
			names := slices.Sorted(maps.Keys(files))
			name = names[len(text)%len(names)]
		}
		files[name] = &fstest.MapFile{Data: []byte(text)}
		set, _, err := readSet(files, "", Tiers)
		if err != nil && (!strings.HasPrefix(err.Error(), "tier_") || strings.Contains(err.Error(), "\n")) {
			t.Fatalf("%q", err)
		}
		if err != nil {
			return
		}
		for _, s := range set.Scenarios {
			if s.About == "" || s.Questionee == "" || s.Questioner == "" || s.Secret == "" || s.Control == "" {
				t.Fatalf("%+v", s)
			}
		}
		for _, m := range set.Meetings {
			if m.Private == "" || m.Public == "" || m.Text == "" {
				t.Fatalf("%+v", m)
			}
		}
	})
}
