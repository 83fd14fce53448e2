package remote

import (
	"encoding/json"

	"github.com/sashabaranov/go-openai"

	"github.com/posttrain/posttrain/data"
)

// sent is a message as OpenAI's protocol has it: with its calls, whose arguments are texts there, and what it is a
// result of.
func sent(m data.Message) openai.ChatCompletionMessage {
	out := openai.ChatCompletionMessage{Role: m.Role, Content: m.Content}
	var whole struct {
		Name  string
		ID    string `json:"tool_call_id"`
		Calls []struct {
			ID       string
			Function struct {
				Name      string
				Arguments json.RawMessage
			}
		} `json:"tool_calls"`
	}
	if m.Whole == "" || json.Unmarshal([]byte(m.Whole), &whole) != nil {
		return out
	}
	out.Name, out.ToolCallID = whole.Name, whole.ID
	for _, c := range whole.Calls {
		arguments := string(c.Function.Arguments)
		_ = json.Unmarshal(c.Function.Arguments, &arguments) // they may be a text already
		out.ToolCalls = append(out.ToolCalls, openai.ToolCall{ID: c.ID, Type: openai.ToolTypeFunction,
			Function: openai.FunctionCall{Name: c.Function.Name, Arguments: arguments}})
	}
	return out
}

// calls are the tool calls of a choice as text.
func (c *choice) calls() (text string) {
	for _, call := range c.Message.ToolCalls {
		one, err := data.Marshal(data.Object{{Key: "name", Value: call.Function.Name},
			{Key: "arguments", Value: call.Function.Arguments}})
		if err == nil { // they were read from JSON
			text += "\n<tool_call>\n" + string(one) + "\n</tool_call>"
		}
	}
	return text
}
