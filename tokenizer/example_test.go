package tokenizer_test

import (
	"fmt"

	"github.com/posttrain/posttrain/tokenizer"
)

func Example() {
	tok, err := tokenizer.Load("testdata/qwen2-older")
	if err != nil {
		fmt.Println(err)
		return
	}
	question := []tokenizer.Message{{Role: "user", Content: "Who may know?"}}
	text, err := tok.Render(question, tokenizer.RenderOptions{AddGenerationPrompt: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(text)
	ids, err := tok.Encode(text, false) // the template has written the special tokens
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(ids), "ids,", tok.Decode(ids, false) == text)
	// Output:
	// <|im_start|>system
	// You help with everyday questions.<|im_end|>
	// <|im_start|>user
	// Who may know?<|im_end|>
	// <|im_start|>assistant
	// 45 ids, true
}
