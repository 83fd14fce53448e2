// Package agent holds conversations of a model with tools: it reads the tool calls in the model's messages, asks an
// environment, and writes what the environment says as the model's chat template does.
package agent

import (
	"encoding/json"

	"github.com/posttrain/posttrain/data"
)

// Call is a tool call in a model's message.
type Call = data.Call

// Environment is what a model's messages act on: a mailbox, notes, a user. It is one episode's own.
type Environment interface {
	// Tools are the tools as a JSON list of functions, in OpenAI's form.
	Tools() json.RawMessage
	// Call makes a tool call. result is what the model reads: also that a tool is unknown or its arguments are wrong.
	// over: the episode has ended, and nobody reads the result. err: the environment itself failed, which ends the run.
	Call(c Call) (result string, over bool, err error)
	// Say gives the user a message without a call. reply is what the user says.
	Say(message string) (reply string, over bool, err error)
}

// Form is how a model writes tool calls.
type Form string

// Forms.
const (
	Hermes  Form = "hermes"  // <tool_call>{"name": …, "arguments": {…}}</tool_call>: Hermes, Qwen
	Llama3  Form = "llama3"  // {"name": …, "parameters": {…}}
	Mistral Form = "mistral" // [TOOL_CALLS] [{"name": …, "arguments": {…}}], or [TOOL_CALLS]NAME[ARGS]{…}
	Text    Form = "text"    // PrivacyLens's Action: NAME, Action Input: {…}, Observation: …
)
