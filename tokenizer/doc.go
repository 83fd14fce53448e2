// Package tokenizer turns text into the token ids of a Hugging Face model folder and back, and conversations into text.
//
// It reads tokenizer.json, tokenizer_config.json, special_tokens_map.json and chat_template.jinja, in both generations
// of the folder layout, for byte-level BPE (Qwen, Llama 3) and metaspace BPE with byte fallback (Mistral, Llama 2). The
// ids are the ids of Hugging Face's tokenizers library. An error names what the package cannot read, and what it can.
//
// Glossary:
//
//	added token   a token that is cut out of the text before anything else; special ones are markup, which Decode can
//	              leave out
//	piece         a stretch of text on its way through the pipeline
//	word          a part of a piece, cut by the pre-tokenizer; no merge crosses its ends
//	symbol        what BPE works on: a character or byte, later several merged ones
//	rank          a merge's place in the list: lower goes first
//
// Encode takes these steps, each in one file:
//
//  1. added.go     cuts added tokens out of the text, before and after normalization
//  2. normalize.go rewrites the text between them: NFC, Prepend, Replace ...
//  3. split.go     cuts it into words; scan.go is the fast way for the three usual patterns
//  4. bpe.go       merges a word's symbols, lowest rank first, in n log n steps; it caches words
//  5. post.go      adds BOS and EOS
//
// Decode is decode.go; conversations are chat.go over the package jinja; load.go and config.go read the files.
package tokenizer
