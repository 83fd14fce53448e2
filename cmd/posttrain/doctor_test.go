package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/doctor"
)

// TestDoctor: exit code 0 for a healthy run, 1 for a squeezed one and for a folder without a log.
func TestDoctor(t *testing.T) {
	t.Chdir(t.TempDir())
	const first = `{"step":0,"epoch":0,"eval_logps/chosen":-10,"eval_logps/rejected":-12}` + "\n"
	const last = `{"step":9,"epoch":1,"eval_logps/chosen":%v,"eval_logps/rejected":-15}` + "\n"
	for dir, log := range map[string]string{"good": first + fmt.Sprintf(last, -10.5), "bad": first + fmt.Sprintf(last,
		-13)} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/metrics.jsonl", log)
	}
	if err := os.Mkdir("empty", 0o777); err != nil {
		t.Fatal(err)
	}
	if o := must(t, "doctor", "good"); !strings.Contains(o.out, "Found: 0. Looked for: squeezing.\n") {
		t.Error(o.out)
	}
	o := cli(t, "doctor", "--json", "bad")
	var r doctor.Report
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || o.code != exitFailed || len(r.Findings) != 1 ||
		r.Findings[0].Evidence[0].To != -13 || r.Findings[0].Evidence[0].ToStep != 9 ||
		o.err != "posttrain: bad/metrics.jsonl: found squeezing\n" {
		t.Errorf("%v %+v", err, o)
	}
	o = cli(t, "doctor", "empty")
	if o.code != exitFailed || !strings.HasPrefix(o.err, "posttrain: empty: there is no log of a run in it: want ") {
		t.Errorf("%+v", o)
	}
	if o = cli(t, "doctor"); o.code != exitUsage {
		t.Errorf("%+v", o)
	}
}
