package ask_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"

	"github.com/gomlx/compute"

	"github.com/posttrain/posttrain/ask"
	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/data/ci"
	"github.com/posttrain/posttrain/internal/backend"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/model"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/tokenizer"
)

// The embedded model answers a scenario greedily, up to a stop text; model.Load and tokenizer.Load open a folder
// instead.
func Example() {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	folder, err := fs.Sub(embedded.Files, embedded.Model)
	must(err)
	m, err := model.LoadFS(folder, "the embedded model")
	must(err)
	tokens, err := tokenizer.LoadFS(folder, "the embedded model")
	must(err)
	engine, err := backend.Open("go")
	must(err)
	defer engine.Close()
	weights, err := rollout.Upload(engine, m, model.GraphOptions{})
	must(err)
	defer backend.FinalizeAll(weights...)
	live := func() []compute.Buffer { return weights } // a trainer's buffers would always be up to date
	sampler := rollout.NewCached(engine, m.Config, live, rollout.Options{Decoder: tokens})
	defer sampler.Close()

	local := &ask.Local{Sampler: sampler, Encoder: &batch.Encoder{Tokenizer: tokens}}
	answers, err := local.Answer(context.Background(), []ask.Question{{
		Prompt:   data.Text{Messages: ci.Prompt(ci.Synthesize(1, 1)[0], ci.PromptCompact, 0)},
		Sampling: rollout.Sampling{MaxNew: 128, Stop: []string{"</answer>"}},
	}})
	must(err)
	for _, a := range answers[0] {
		fmt.Printf("%s\nends by %s\n", a.Text, a.Reason)
	}
	// Output:
	// <think> AK-861 fits; Quinwell Motors does not fit; Kefan Kellund fits.</think>
	// <answer> Hello, I want to report a lost card: my account is AK-861, my name is Kefan Kellund.
	// ends by stop
}
