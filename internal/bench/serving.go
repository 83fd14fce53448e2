package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/posttrain/posttrain/data"
	"github.com/posttrain/posttrain/internal/batch"
	"github.com/posttrain/posttrain/internal/embedded"
	"github.com/posttrain/posttrain/internal/serve"
	"github.com/posttrain/posttrain/rollout"
	"github.com/posttrain/posttrain/rollout/local"
)

// servingGoals are targets: the median time to the first token in seconds, and the rate over that of generate.
const (
	firstTokenGoal = 2.0
	servingGoal    = 0.7
)

// serving measures the endpoint under many clients against the sampler alone.
type serving struct {
	model, backend           string
	clients, each, rows, new int
	words                    int // of a message
}

func newServing() *cobra.Command {
	o := &serving{model: embedded.Name, backend: "auto"}
	cmd := newCommand("serving", "The endpoint under many clients, against the sampler at the same batch",
		"  go run ./bench serving --model DIR --clients 64", o.run)
	flags := cmd.Flags()
	flags.StringVar(&o.model, "model", o.model, "model folder with a chat template, or embedded")
	flags.StringVar(&o.backend, "backend", o.backend, "engine")
	flags.IntVar(&o.clients, "clients", 64, "clients, each with one request at a time")
	flags.IntVar(&o.each, "requests", 3, "requests of a client")
	flags.IntVar(&o.rows, "batch", 64, "answers sampled together")
	flags.IntVar(&o.new, "new", 32, "most tokens of an answer")
	flags.IntVar(&o.words, "words", 4, "words of a message")
	return cmd
}

func (o *serving) run(out io.Writer) error {
	m, err := local.Open(o.backend, o.model)
	if err != nil {
		return err
	}
	defer m.Close()
	url, stop, err := o.start(m)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := o.load(url, 1); err != nil { // compiles
		return err
	}
	began := time.Now()
	all, err := o.load(url, o.each)
	if err != nil {
		return err
	}
	served := time.Since(began)
	stop()
	prompt, rate, err := o.generate(m)
	if err != nil {
		return err
	}
	o.report(out, all, served, prompt, rate)
	return nil
}

// start serves the model on a free port of this machine. stop may be called twice.
func (o *serving) start(m *local.Model) (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := serve.New(serve.Options{Name: "bench", Sampler: m.Sampler, Config: m.Model.Config, Decoder: m.Tokenizer,
		Encoder: &batch.Encoder{Tokenizer: m.Tokenizer}, Rows: o.rows, MaxQueue: o.clients})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx, l)
	}()
	return "http://" + l.Addr().String(), func() { cancel(); <-done }, nil
}

// servedReply is what a client measured.
type servedReply struct {
	first  time.Duration // to the first token
	tokens int
	later  bool // not the client's first request
}

// load runs all clients, which begin together.
func (o *serving) load(url string, each int) (all []servedReply, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for client := range o.clients {
		wg.Go(func() {
			for i := range each {
				r, e := o.ask(url, client*each+i)
				r.later = i > 0
				mu.Lock()
				if all = append(all, r); e != nil {
					err = e
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all, err
}

// message is a client's, different from all others.
func (o *serving) message(i int) string {
	words := strings.Fields("What would the weather in the north of Spain be like on a long walk")
	return fmt.Sprint(i, " ", strings.Join(words[:min(o.words, len(words))], " "))
}

// ask streams an answer.
func (o *serving) ask(url string, i int) (r servedReply, err error) {
	body, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": o.message(i)}},
		"max_tokens": o.new, "seed": i, "stream": true, "stream_options": map[string]bool{"include_usage": true}})
	if err != nil {
		return r, err
	}
	began := time.Now()
	got, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	defer got.Body.Close()
	for lines := bufio.NewScanner(got.Body); lines.Scan(); {
		var chunk struct {
			Usage *struct {
				Tokens int `json:"completion_tokens"`
			}
		}
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if ok && r.first == 0 {
			r.first = time.Since(began)
		}
		if json.Unmarshal([]byte(text), &chunk) == nil && chunk.Usage != nil {
			r.tokens = chunk.Usage.Tokens
		}
	}
	if got.StatusCode != http.StatusOK || r.tokens == 0 {
		return r, fmt.Errorf("status %d, %d tokens: want a whole answer", got.StatusCode, r.tokens)
	}
	return r, nil
}

// generate samples the same answers without the endpoint, and returns the mean length of the prompts and the rate.
func (o *serving) generate(m *local.Model) (prompt, rate float64, err error) {
	var rs []rollout.Request
	encoder := &batch.Encoder{Tokenizer: m.Tokenizer}
	for i := range o.clients * o.each {
		ids, err := encoder.Prompt(data.Text{Messages: []data.Message{{Role: "user", Content: o.message(i)}}})
		if err != nil {
			return 0, 0, err
		}
		prompt += float64(len(ids)) / float64(o.clients*o.each)
		s := rollout.Sampling{MaxNew: o.new, Temperature: 1}
		rs = append(rs, rollout.Request{Sampling: s, Prompt: ids, Seed: uint64(i)}.Samples(1)...)
	}
	sample := func(rs []rollout.Request) (tokens int, err error) {
		for part := range slices.Chunk(rs, o.rows) {
			cs, err := m.Sampler.Sample(context.Background(), part)
			if err != nil {
				return 0, err
			}
			for _, c := range cs {
				tokens += len(c.Tokens)
			}
		}
		return tokens, nil
	}
	if _, err := sample(rs[:min(len(rs), o.rows)]); err != nil { // compiles
		return 0, 0, err
	}
	began := time.Now()
	tokens, err := sample(rs)
	return prompt, float64(tokens) / time.Since(began).Seconds(), err
}

func (o *serving) report(out io.Writer, all []servedReply, took time.Duration, prompt, rate float64) {
	tokens := 0
	firsts := map[bool][]float64{}
	for _, r := range all {
		tokens += r.tokens
		firsts[r.later] = append(firsts[r.later], r.first.Seconds())
	}
	fmt.Fprintf(out, "%d clients, %d requests each, prompts of %.0f tokens, answers of up to %d, batch %d\n",
		o.clients, o.each, prompt, o.new, o.rows)
	table(out, "time to the first token", "requests\tp50 s\tp95 s\tlongest s\t", func(w io.Writer) {
		for _, later := range []bool{false, true} {
			if of := firsts[later]; len(of) > 0 {
				name := map[bool]string{false: "all clients at once, nothing running", true: "joining others"}[later]
				fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t\n", name, median(of), quantile(of, 0.95), slices.Max(of))
			}
		}
	})
	served := float64(tokens) / took.Seconds()
	p50 := median(slices.Concat(firsts[false], firsts[true]))
	fmt.Fprintf(out, "served %.1f tokens/s, generate %.1f tokens/s: ratio %.2f (target %.1f); "+
		"time to the first token, p50 of all requests %.2f s (target %.0f)\n",
		served, rate, served/rate, servingGoal, p50, firstTokenGoal)
}
