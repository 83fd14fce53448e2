// Package exchange is the recipe of posttrain model import and model export: Hugging Face folders from llama.cpp's GGUF
// files and back, with tokenizer, chat template and stop tokens.
//
// names.go and config.go say what the keys and tensors of a file are in a folder, pretokens.go, vocabread.go and
// vocabwrite.go the same of tokenizers. import.go and export.go are the two ways; proof.go reads an export back and
// compares it with the folder.
package exchange
