// Package exchange is the recipe of posttrain model import: Hugging Face folders from llama.cpp's GGUF files, with
// tokenizer, chat template and stop tokens.
//
// names.go and config.go say what the keys and tensors of a file are in a folder, pretokens.go, vocabread.go and
// vocabwrite.go the same of tokenizers.
package exchange
