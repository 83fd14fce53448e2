// Package gguf reads and writes the container of llama.cpp's models: metadata, and tensors in blocks of a few bits a
// number. It knows no model: what the keys and names mean is recipe/exchange's.
//
// A file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian) has four parts:
//
//  1. magic, version, number of tensors, number of keys
//  2. the keys: a name, a kind and a value each; an array has a kind and a length (values.go)
//  3. a line for each tensor: name, dimensions from the fastest on, type, place (file.go)
//  4. from the next multiple of general.alignment on, the tensors' bytes (types.go, blocks.go, grids.go)
//
// Glossary:
//
//	block   the numbers that share scales: 32 of them, or 256 in the K types; a row has whole blocks
//	type    how a block is stored, such as q8_0
//
// Open reads the first three parts; [File.Read] decodes a tensor in pieces. Write writes a file in one pass, under
// another name until it is whole.
package gguf
