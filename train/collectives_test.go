package train

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/testkit"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/model"
)

// compileChild is set in the child process of TestDataParallelSharesGradientsAlone.
const compileChild = "POSTTRAIN_TEST_COLLECTIVES"

// TestDataParallelSharesGradientsAlone: in the gradient's program as XLA compiles it for 4 devices, these exchange the
// gradients, all at once, and beside them nothing larger than a number for each answer: no hidden states.
func TestDataParallelSharesGradientsAlone(t *testing.T) {
	if os.Getenv(compileChild) != "" {
		compileGradient(t)
		return
	}
	backendtest.Mesh(t, backend.Mesh{Data: 4}) // or the test is skipped
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), compileChild+"=1", "XLA_FLAGS="+os.Getenv("XLA_FLAGS")+" --xla_dump_to="+dir+
		" --xla_dump_hlo_as_text --xla_dump_hlo_module_re=gradient.*")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	programs, err := filepath.Glob(filepath.Join(dir, "*after_optimizations.txt"))
	if err != nil || len(programs) != 1 {
		t.Fatalf("%v: programs %v, want one", err, programs)
	}
	text := expect.Read(t, programs[0])
	var want []string // shapes of the gradients
	for _, p := range cutModel(t).Params {
		want = append(want, fmt.Sprint(p.Shape))
	}
	slices.Sort(want)
	want = slices.Compact(want)
	large, small := 0, map[string]int{}
	for _, c := range collectives(text) {
		switch most := slices.MaxFunc(c.shapes, bySize); {
		case c.operation == "all-reduce" && slices.Equal(c.names(), want): // of tables more than once: input and head
			large++
		case c.operation != "all-reduce" || size(most) > collectiveAnswers:
			t.Errorf("the devices exchange %s of %v", c.operation, c.shapes)
		default:
			small[fmt.Sprint(c.shapes)]++
		}
	}
	if large != 1 {
		t.Errorf("%d exchanges of all gradients, want 1", large)
	}
	t.Logf("one all-reduce of all gradients; small ones: %v", small)
}

// collectiveAnswers is the number of answers in the batch of compileGradient, which has 8 × 32 tokens.
const collectiveAnswers = 16

// compileGradient compiles and runs the gradient's program, the head in chunks.
func compileGradient(t *testing.T) {
	groups := testkit.Groups(3, collectiveAnswers/2, 2)
	l, err := NewLearner(backendtest.Mesh(t, backend.Mesh{Data: 4}), cutModel(t), model.GraphOptions{HeadChunk: 16})
	expect.OK(t, err)
	defer l.Close()
	p := batch.Pack(groups, batch.Layout{Share: true, Blocks: l.Blocks()})
	method := mappo()
	if _, _, err := l.Accumulate(p, method, method.Inputs(pairsOf(groups), p), 1); err != nil {
		t.Fatal(err)
	}
}

// collective is an exchange between devices in a compiled program.
type collective struct {
	operation string
	shapes    [][]int
}

var (
	exchange = regexp.MustCompile(`(?m)^.* = (.*) ` +
		`(all-reduce|all-gather|all-to-all|reduce-scatter|collective-[a-z]+)(-start)?\(`)
	arrayType = regexp.MustCompile(`[a-z]+\d+\[([\d,]*)\]`)
)

// collectives lists the exchanges between devices in XLA's text of a program.
func collectives(text string) (all []collective) {
	for _, line := range exchange.FindAllStringSubmatch(text, -1) {
		c := collective{operation: line[2]}
		for _, a := range arrayType.FindAllStringSubmatch(line[1], -1) {
			shape := []int{}
			for _, d := range strings.FieldsFunc(a[1], func(r rune) bool { return r == ',' }) {
				n, _ := strconv.Atoi(d)
				shape = append(shape, n)
			}
			c.shapes = append(c.shapes, shape)
		}
		all = append(all, c)
	}
	return all
}

// names are the different shapes as texts, in order.
func (c collective) names() (names []string) {
	for _, s := range c.shapes {
		names = append(names, fmt.Sprint(s))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func bySize(a, b []int) int { return size(a) - size(b) }
