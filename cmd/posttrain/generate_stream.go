package main

import (
	"io"
	"slices"
	"strings"

	"github.com/posttrain/posttrain/rollout"
)

// printer prints a text while its tokens come: whole characters, and nothing of what may be a stop string.
type printer struct {
	out     io.Writer
	decoder rollout.Decoder
	ends    []int32  // tokens that end the text and are no part of it
	stops   []string // texts that do

	tokens  []int32
	context int // tokens before read that are decoded with the next ones: some decoders look back
	read    int // tokens that are decoded for good
	held    string
	printed strings.Builder
}

func (g *generation) printer() *printer {
	p := &printer{out: g.out, decoder: g.tokenizer, stops: g.flags.stops}
	for _, id := range g.model.Config.EOS {
		p.ends = append(p.ends, int32(id))
	}
	return p
}

// add takes a token, and prints what it completes. Bytes that are no whole character yet decode to U+FFFD at the end.
func (p *printer) add(token int32) {
	if slices.Contains(p.ends, token) {
		return
	}
	p.tokens = append(p.tokens, token)
	before := p.decoder.Decode(p.tokens[p.context:p.read], false)
	now := p.decoder.Decode(p.tokens[p.context:], false)
	if strings.HasSuffix(now, "\uFFFD") {
		return
	}
	rest, ok := strings.CutPrefix(now, before)
	if !ok { // bytes that are no character made some decoders take back what they had said
		rest = p.decoder.Decode(p.tokens[p.read:], false)
	}
	p.context, p.read = p.read, len(p.tokens)
	p.held += rest
	n := p.safe()
	p.print(p.held[:n])
	p.held = p.held[n:]
}

// safe is how much of the held text no stop string touches, whatever follows.
func (p *printer) safe() int {
	safe := len(p.held)
	for _, stop := range p.stops {
		if i := strings.Index(p.held, stop); i >= 0 {
			safe = min(safe, i)
		}
		for n := min(len(stop)-1, len(p.held)); n > 0; n-- {
			if strings.HasSuffix(p.held, stop[:n]) {
				safe = min(safe, len(p.held)-n)
				break
			}
		}
	}
	return safe
}

func (p *printer) print(text string) {
	p.printed.WriteString(text)
	io.WriteString(p.out, text)
}

// finish prints what is left of the whole text.
func (p *printer) finish(text string) {
	if rest, ok := strings.CutPrefix(text, p.printed.String()); ok {
		p.print(rest)
	}
}
