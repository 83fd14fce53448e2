package judge

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/posttrain/posttrain/rollout"
)

// try sends one request, when there is room for it. Waits end when nobody wants the reply any more, a request that is
// sent does not.
func (c *Client) try(wanted context.Context, prompt string, tries int) (rollout.Answer, rollout.Usage, error) {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-wanted.Done():
		return rollout.Answer{}, rollout.Usage{}, context.Cause(wanted)
	}
	guess := c.guess(prompt)
	if err := c.room(wanted, guess); err != nil {
		return rollout.Answer{}, rollout.Usage{}, err
	}
	c.ledger.sent(tries > 0)
	answer, usage, err := c.send(c.alive, prompt, tries)
	used := paid(guess, usage, err)
	c.ledger.settle(guess, used, usage)
	c.limits.settle(guess.total(), used.total())
	return answer, usage, err
}

// room waits until budget and limits allow a request of so many tokens.
func (c *Client) room(wanted context.Context, guess tokens) error {
	if err := c.ledger.reserve(wanted, guess); err != nil {
		return err
	}
	err := c.limits.wait(wanted, guess.total())
	if err == nil && wanted.Err() != nil {
		err = context.Cause(wanted)
	}
	if err != nil {
		c.ledger.release(guess)
	}
	return err
}

// tokens of a request.
type tokens struct{ prompt, completion int }

func (t tokens) total() int { return t.prompt + t.completion }

// guess is what a request takes at most, as a rule: English has four bytes and more to a token, and there are a few tokens
// around the prompt.
func (c *Client) guess(prompt string) tokens {
	return tokens{len(prompt)/3 + 16, c.options.MaxTokens}
}

// paid is what a request took. Where the server does not say, or its reply was lost after it may have been made, that is
// the guess; where it made none, nothing.
func paid(guess tokens, usage rollout.Usage, err error) tokens {
	var failed *rollout.RemoteError
	if errors.As(err, &failed) && failed.Kind != rollout.Lost && failed.Kind != rollout.Foreign {
		return tokens{}
	}
	if usage.PromptTokens+usage.CompletionTokens > 0 {
		return tokens{usage.PromptTokens, usage.CompletionTokens}
	}
	return guess
}

// triesOfStranger is how often an unreachable server or one with foreign replies is tried that never answered.
const triesOfStranger = 3

// again tells whether another try may help after so many failed ones before the last, and what to wait until then.
func (c *Client) again(err error, before int) (time.Duration, bool) {
	var failed *rollout.RemoteError
	if !errors.As(err, &failed) || failed.Kind == rollout.Refused {
		return 0, false
	}
	most := c.options.Retries
	if (failed.Kind == rollout.Unreachable || failed.Kind == rollout.Foreign) && !c.answered.Load() {
		most = min(most, triesOfStranger-1)
	}
	return failed.Wait + backoff(c.options.Wait, before), before < most
}

// backoff doubles the wait with each try, and shortens it by up to a half: those who failed together come back apart.
func backoff(wait time.Duration, before int) time.Duration {
	for range before {
		wait = min(2*wait, max(longestWait, wait))
	}
	return wait - rand.N(wait/2+1)
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
