// Package tokenizer turns text into the token ids of a Hugging Face model folder and back, and conversations into text.
//
// It reads tokenizer.json, tokenizer_config.json, special_tokens_map.json and chat_template.jinja, in both generations of the
// folder layout, of byte-level BPE (Qwen, Llama 3) and of metaspace BPE with byte fallback (Mistral, Llama 2), and gives the ids
// that Hugging Face's tokenizers library gives. What it does not read it names, with what it does.
//
// Glossary:
//
//	added token   found in the text as a whole before anything else; the special ones among them are markup that
//	              Decode can leave out
//	piece         a stretch of text on its way through the pipeline
//	word          what the pre-tokenizer leaves of a piece: merges never cross its ends
//	symbol        a character or byte, later a merge of several: what BPE works on
//	rank          a merge's place in the list: lower goes first
//
// Encode goes through these steps, each one file:
//
//  1. added.go     cuts added tokens out of the text, before and after normalization
//  2. normalize.go rewrites the text between them: NFC, Prepend, Replace ...
//  3. split.go     cuts it into words; scan.go does the same for the three usual patterns without a regular expression
//  4. bpe.go       merges a word's symbols, lowest rank first, near-linear in its length; words are cached
//  5. post.go      puts BOS and EOS around the ids
//
// Decode is decode.go; conversations are chat.go over the package jinja; load.go and config.go read the files.
package tokenizer
