package plan

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posttrain/posttrain/internal/backend/backendtest"
	"github.com/posttrain/posttrain/internal/config"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/testkit/expect"
	"github.com/posttrain/posttrain/recipe"
	"github.com/posttrain/posttrain/recipe/preference"
	"github.com/posttrain/posttrain/recipe/rl"
	"github.com/posttrain/posttrain/recipe/sft"
)

func bytesOf(p *Plan, name string) int {
	for _, i := range p.Memory.Items {
		if i.Name == name {
			return i.Bytes
		}
	}
	return 0
}

// make plans the run of a text on the go engine.
func makeOf(t *testing.T, spec config.Command, text string) (*Plan, error) {
	t.Helper()
	path := expect.File(t, "config.yaml", "command: "+spec.Name()+"\nbackend: go\n"+text)
	o, err := spec.Read(config.Input{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return Make(t.Context(), o.(recipe.Planned), nil, "")
}

// TestPlanByHand: bytes for each of the embedded model's parameters, and what its run has of steps and batches.
func TestPlanByHand(t *testing.T) {
	p, err := makeOf(t, preference.Spec, "model: embedded\ndata: {train: embedded, eval_fraction: 0.2}\n"+
		"train: {epochs: 2, batch_size: 16, micro_batch_size: 8, warmup_steps: 0}\n")
	if err != nil {
		t.Fatal(err)
	}
	if p.Examples != 400 || p.Steps != 50 {
		t.Errorf("%d examples, %d steps: want 400 and 50", p.Examples, p.Steps)
	}
	n := p.Parameters
	for name, want := range map[string]int{"weights": 4 * n, "moments": 8 * n, "gradients": 8 * n} {
		if got := bytesOf(p, name); got != want {
			t.Errorf("%s: %d bytes of %d parameters, want %d", name, got, n, want)
		}
	}
	sum := 0
	for _, i := range p.Memory.Items {
		sum += i.Bytes
	}
	if sum != p.Memory.Peak || n != p.Trained {
		t.Errorf("peak %d of items that add up to %d; %d of %d parameters trained", p.Memory.Peak, sum, p.Trained, n)
	}
}

// TestPlanOfKTO: of 1,000 answers, 3 steps of 4 train, each after 4 mismatched ones were measured; the reference
// measures each answer and its mismatched one, four of each at a time at most, two at least.
func TestPlanOfKTO(t *testing.T) {
	p, err := makeOf(t, preference.Spec, "model: embedded\ndata: {train: embedded, eval_fraction: 0}\n"+
		"loss: {type: kto, prior: none}\n"+
		"train: {max_steps: 3, batch_size: 4, micro_batch_size: 4, warmup_steps: 0, share_prefix: \"off\"}\n")
	if err != nil {
		t.Fatal(err)
	}
	batches := map[bool]float64{}
	for _, s := range p.Shapes {
		batches[s.Trains] += s.Batches
	}
	if measured := batches[false]; p.Examples != 1000 || p.Unit != "answers" || batches[true] != 3 ||
		measured < 3+1000/4 || measured > 3+1000/2 {
		t.Errorf("%d %s, batches %v: want 1000 answers, 3 and 253 to 503 batches", p.Examples, p.Unit, batches)
	}
}

// TestRefusal: what does not fit into the memory is refused in one line with its size.
func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		p    Plan
		want string
	}{
		{Plan{Memory: Memory{Peak: 2e9, Available: 3e9}}, ""},
		{Plan{Memory: Memory{Items: []Item{{"a", 1e9}, {"b", 2e9}, {"c", 1e8}}, Peak: 31e8, Available: 3e9}},
			"takes 3.10 GB at its peak, of which 2.00 GB for b and 1.00 GB for a, and there are 3.00 GB"},
	} {
		err := c.p.Err()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestPlanOfCIRL: a step has 2 prompts with 4 answers each, of 16 tokens at most; the reference stays loaded.
func TestPlanOfCIRL(t *testing.T) {
	p, err := makeOf(t, rl.CISpec, "model: embedded\ndata: {train: embedded, scenarios: 40}\n"+
		"sampling: {max_new_tokens: 16}\ngrpo: {prompts_per_step: 2, group_size: 4}\ntrain: {max_steps: 3}\n"+
		"validation: {every: 0}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := bytesOf(p, "reference"), 4*p.Parameters; got != want {
		t.Errorf("reference %d bytes, want %d", got, want)
	}
	s := p.Sampling
	if s == nil || s.Requests != 8 || s.New != 16 || s.Rows < 8 {
		t.Fatalf("sampling %+v, want 8 completions of 16 tokens at once", s)
	}
	// 3 steps of 8, two validations of 4 items (0.09 of 40), two tests of 4
	if s.Answers < 3*8+2*3+2*3 || s.Answers > 3*8+2*4+2*4 {
		t.Errorf("%v answers", s.Answers)
	}
	if p.Time.Sampling <= 0 || p.Time.Likely <= p.Time.Sampling {
		t.Errorf("%+v", p.Time)
	}
}

// TestPlanCopies: a checkpoint is a copy of weights and moments beside all that steps take, and that the go engine
// keeps after the last one.
func TestPlanCopies(t *testing.T) {
	for _, every := range []string{"2", "0"} {
		p, err := makeOf(t, sft.Spec, "model: embedded\ndata: {train: embedded}\ntrain: {max_steps: 5, batch_size: 8, "+
			"checkpoint_minutes: 0, checkpoint_every: "+every+"}\n")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := bytesOf(p, "copy for a checkpoint, beyond what steps leave"), 12*p.Parameters; got != want {
			t.Errorf("checkpoint_every %s: %d bytes, want %d", every, got, want)
		}
	}
}

// TestPlanOfADevice: on a device with memory of its own, what the process holds does not count.
func TestPlanOfADevice(t *testing.T) {
	o, err := sft.Spec.Parse("", []byte("command: sft\nbackend: go\nmodel: embedded\ndata: {train: embedded}\n"+
		"train: {max_steps: 5, checkpoint_minutes: 0, checkpoint_every: 2}\n"), config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := makeIn(t.Context(), o, nil, room{available: 1 << 40, apart: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"program, engine, tokenizer and data",
		"copy for a checkpoint, beyond what steps leave"} {
		if n := bytesOf(p, name); n != 0 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
	if p.Memory.Available != 1<<40 || bytesOf(p, "weights") != 4*p.Parameters {
		t.Errorf("%+v", p.Memory)
	}
}

// TestPlanOfSeveralDevices: GPUs have their share each; the devices of a CPU have all shares in one memory.
func TestPlanOfSeveralDevices(t *testing.T) {
	backendtest.XLA(t)
	for _, c := range []struct {
		shard                     string
		apart                     bool
		moments, devices, weights int // moments and weights in halves of the model's
	}{
		{"moments", true, 1, 2, 3}, {"none", true, 2, 2, 2}, {"none", false, 4, 1, 4},
	} {
		o, err := sft.Spec.Parse("", []byte("command: sft\nbackend: xla:cpu\nengine: {devices: 2, shard: "+c.shard+"}\n"+
			"model: embedded\ndata: {train: embedded}\ntrain: {max_steps: 5}\n"), config.Input{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := makeIn(t.Context(), o, nil, room{available: 1 << 40, apart: c.apart}, "")
		if err != nil {
			t.Fatal(err)
		}
		near := func(name string, want int) {
			if got := bytesOf(p, name); math.Abs(float64(got)/float64(want)-1) > 0.05 { // norms are whole everywhere
				t.Errorf("%+v: %s: %d bytes, want about %d", c, name, got, want)
			}
		}
		near("moments", 8*p.Parameters*c.moments/2)
		near("weights", 4*p.Parameters*c.weights/2)
		if p.Memory.Devices != c.devices ||
			strings.Contains(p.String(), "memory of each of 2 devices") != (c.devices == 2) {
			t.Errorf("%+v:\n%s", c, p)
		}
	}
}

// TestPlanFlops: a forward pass has two operations for each weight of a product and token; what attention adds is small
// at these lengths, and the backward pass has twice as many, less the first layer's.
func TestPlanFlops(t *testing.T) {
	p, err := makeOf(t, sft.Spec, "model: embedded\ndata: {train: embedded, eval_fraction: 0.2}\n"+
		"train: {epochs: 1, batch_size: 16, micro_batch_size: 8}\n")
	if err != nil {
		t.Fatal(err)
	}
	forward := map[[3]int]float64{}
	for _, s := range p.Shapes {
		if !s.Trains {
			forward[[3]int{s.Rows, s.Len, s.Slots}] = s.Flops
		}
	}
	compared := 0
	for _, s := range p.Shapes {
		f := forward[[3]int{s.Rows, s.Len, s.Slots}]
		if !s.Trains || f == 0 {
			continue
		}
		compared++
		if ratio := s.Flops / f; ratio < 2.7 || ratio > 3.5 {
			t.Errorf("%+v has %.2f times the operations of a forward pass, want about 3", s, ratio)
		}
	}
	if compared == 0 {
		t.Error("no shape is both trained on and measured")
	}
}

// sevenB is the shape of Qwen2.5-7B with the embedded tokenizer's ids.
const sevenB = `{"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_act":"silu","hidden_size":3584,
"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,
"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"tie_word_embeddings":false,
"torch_dtype":"bfloat16","bos_token_id":1,"eos_token_id":2}`

// TestPlanOfSevenBillion plans from config.json and tokenizer alone; there are no weights. By hand: 7,615,616,512
// parameters, of 20 bytes each where all are trained.
func TestPlanOfSevenBillion(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := embedded.Files.ReadFile(embedded.Model + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		expect.Write(t, filepath.Join(dir, name), text)
	}
	expect.Write(t, filepath.Join(dir, "config.json"), sevenB)
	const data = "data: {train: embedded}\ntrain: {max_steps: 2, batch_size: 2}\n"
	p, err := makeOf(t, preference.Spec, "model: "+dir+"\n"+data)
	if err != nil {
		t.Fatal(err)
	}
	if p.Parameters != 7_615_616_512 || bytesOf(p, "moments") != 8*7_615_616_512 {
		t.Errorf("%d parameters with %d bytes of moments", p.Parameters, bytesOf(p, "moments"))
	}
	p, err = makeOf(t, preference.Spec, "model: "+dir+"\nlora: {rank: 16}\n"+data)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil && !strings.Contains(err.Error(), "frozen weights") {
		t.Errorf("refused with %q", err)
	}
	if frozen := bytesOf(p, "frozen weights"); frozen != 4*7_615_616_512 || p.Trained > 50e6 {
		t.Errorf("an adapter of %d parameters on %d bytes", p.Trained, frozen)
	}
	r, err := makeOf(t, preference.Spec, "model: "+dir+"\nreference: "+dir+"\nlora: {rank: 16}\n"+data)
	if err != nil {
		t.Fatal(err)
	}
	if both := 2 * 4 * 7_615_616_512; r.Memory.Peak < max(both, p.Memory.Peak) {
		t.Errorf("with a reference of its own %d bytes, want %d for both and %d without", r.Memory.Peak, both,
			p.Memory.Peak)
	}
	_, err = makeOf(t, preference.Spec, "model: embedded\nreference: "+dir+"\n"+data)
	expect.Error(t, err, "its vocabulary has 152064 tokens")
	if text := p.String(); !strings.Contains(text, "7.62B") && !strings.Contains(text, "7.66B") {
		t.Errorf("the number of parameters is not in\n%s", text)
	}
}

// TestDeviceErr: whether a run fits a device that is not there is what its compiler says, not the formula.
func TestDeviceErr(t *testing.T) {
	p := &Plan{Memory: Memory{Peak: 90e9, Available: 80e9}, Device: &Device{Name: "H100", Peak: 70e9, Rows: 12}}
	if err := p.Err(); err != nil {
		t.Error(err)
	}
	p.Memory.Peak, p.Device.Peak = 70e9, 90e9
	expect.Error(t, p.Err(), "the run does not fit into the memory of H100: by its compiler it takes 90.00 GB at its peak, and "+
		"there are 80.00 GB: want 12 rows at a time or fewer")
}
