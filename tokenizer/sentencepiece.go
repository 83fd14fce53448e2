package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// modelFile is SentencePiece's form of a tokenizer. It is read where there is no tokenizer.json.
const modelFile = "tokenizer.model"

// Types of pieces and of models in sentencepiece_model.proto.
const (
	normalPiece, unknownPiece, controlPiece, userPiece, unusedPiece, bytePiece = 1, 2, 3, 4, 5, 6

	unigramModel, bpeModel = 1, 2
)

// maxPiece bounds a piece in bytes, and with it the steps that each character of a text takes.
const maxPiece = 1024

// spPiece is a token of a tokenizer.model.
type spPiece struct {
	text  string
	score float32
	kind  uint64
}

// spModel is what is read of a tokenizer.model.
type spModel struct {
	pieces                []spPiece
	kind                  uint64
	byteFallback, suffix  bool
	prefix, escape, strip bool
	charsmap              []byte
	unk, bos, eos         int
}

// parseSentencePiece reads the protobuf message ModelProto.
func parseSentencePiece(data []byte) (*spModel, error) {
	m := &spModel{kind: unigramModel, prefix: true, escape: true, strip: true, bos: 1, eos: 2}
	err := eachField(data, func(field int, number uint64, value []byte) error {
		switch field {
		case 1:
			p, err := parsePiece(value)
			m.pieces = append(m.pieces, p)
			return err
		case 2:
			return m.parseTrainer(value)
		case 3:
			return m.parseNormalizer(value)
		}
		return nil
	})
	if err == nil {
		err = m.check()
	}
	return m, err
}

// eachField goes through a message: a field is a number (also a float's bits) or bytes.
func eachField(data []byte, use func(field int, number uint64, value []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errors.New("not a SentencePiece model: want the file that sentencepiece's trainer writes")
		}
		data = data[n:]
		var number uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(data)
			number = uint64(bits)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("field %d of a SentencePiece model is cut off", field)
		}
		data = data[n:]
		if err := use(int(field), number, value); err != nil {
			return err
		}
	}
	return nil
}

func parsePiece(data []byte) (spPiece, error) {
	p := spPiece{kind: normalPiece}
	err := eachField(data, func(field int, number uint64, value []byte) error {
		switch field {
		case 1:
			p.text = string(value)
		case 2:
			p.score = math.Float32frombits(uint32(number))
		case 3:
			p.kind = number
		}
		return nil
	})
	return p, err
}

func (m *spModel) parseTrainer(data []byte) error {
	return eachField(data, func(field int, number uint64, _ []byte) error {
		switch field {
		case 3:
			m.kind = number
		case 24:
			m.suffix = number != 0
		case 35:
			m.byteFallback = number != 0
		case 41:
			m.bos = int(int32(number))
		case 42:
			m.eos = int(int32(number))
		}
		return nil
	})
}

func (m *spModel) parseNormalizer(data []byte) error {
	return eachField(data, func(field int, number uint64, value []byte) error {
		switch field {
		case 2:
			m.charsmap = value
		case 3:
			m.prefix = number != 0
		case 4:
			m.strip = number != 0
		case 5:
			m.escape = number != 0
		}
		return nil
	})
}

// check refuses what the pipeline does not do.
func (m *spModel) check() error {
	switch {
	case len(m.pieces) == 0:
		return errors.New("found no pieces, want a SentencePiece model")
	case m.kind != bpeModel && m.kind != unigramModel:
		return fmt.Errorf("trainer_spec.model_type: found %d, want 1 (unigram) or 2 (bpe)", m.kind)
	case m.suffix:
		return errors.New("trainer_spec.treat_whitespace_as_suffix: found true, want false")
	case len(m.charsmap) > 0:
		return errors.New("normalizer_spec.precompiled_charsmap: found a table of characters, want none (the rule " +
			"identity), or a tokenizer.json")
	case m.strip:
		return errors.New("normalizer_spec.remove_extra_whitespaces: found true, want false, or a tokenizer.json")
	case !m.escape:
		return errors.New("normalizer_spec.escape_whitespaces: found false, want true")
	}
	return m.checkPieces()
}

func (m *spModel) checkPieces() error {
	seen, unknown := map[string]int{}, -1
	for id, p := range m.pieces {
		if other, twice := seen[p.text]; twice {
			return fmt.Errorf("pieces: found %.60q as token %d and %d, want each once", p.text, other, id)
		}
		seen[p.text] = id
		switch {
		case p.text == "" || !utf8.ValidString(p.text) || len(p.text) > maxPiece:
			return fmt.Errorf("pieces: found %.60q as token %d, want UTF-8 of 1 to %d bytes", p.text, id, maxPiece)
		case p.score != p.score || math.IsInf(float64(p.score), 0):
			return fmt.Errorf("pieces: found the score %g of token %d, want a finite number", p.score, id)
		case p.kind == unusedPiece || p.kind < normalPiece || p.kind > bytePiece:
			return fmt.Errorf("pieces: found type %d of token %d, want 1, 2, 3, 4 or 6", p.kind, id)
		case p.kind == userPiece && m.kind == unigramModel: // whose score is another in each version of sentencepiece
			return fmt.Errorf("pieces: found %.60q, a user-defined token of a unigram model, want a tokenizer.json",
				p.text)
		case p.kind == unknownPiece && unknown >= 0:
			return fmt.Errorf("pieces: found %d and %d as unknown tokens, want one", unknown, id)
		case p.kind == unknownPiece:
			unknown = id
		}
	}
	if m.unk = unknown; unknown < 0 {
		return errors.New("pieces: found no unknown token, want one")
	}
	for b := range 256 {
		if id, ok := seen[byteToken(byte(b))]; m.byteFallback && (!ok || m.pieces[id].kind != bytePiece) {
			return fmt.Errorf("pieces: found no byte token %s, want all 256 for byte_fallback", byteToken(byte(b)))
		}
	}
	return nil
}

// readSentencePiece reads tokenizer.model. What tokenizer_config.json says decides about BOS and EOS, as in
// transformers' LlamaTokenizer.
func (t *Tokenizer) readSentencePiece(data, config []byte) error {
	m, err := parseSentencePiece(data)
	if err != nil {
		return err
	}
	settings := struct {
		AddBOS *bool `json:"add_bos_token"`
		AddEOS bool  `json:"add_eos_token"`
		Legacy *bool `json:"legacy"`
	}{}
	if config != nil {
		_ = json.Unmarshal(config, &settings) // configure reports faults of this file
	}
	spec, err := m.pipeline(settings.AddBOS == nil || *settings.AddBOS, settings.AddEOS,
		settings.Legacy == nil || *settings.Legacy)
	if err != nil {
		return err
	}
	if err := t.readPipeline(spec); err != nil {
		return err
	}
	m.score(t.model)
	return nil
}

type object = map[string]any

// pipeline is tokenizer.json of the model, without merges. each: every text between added tokens begins with a mark,
// not the first alone.
func (m *spModel) pipeline(bos, eos, each bool) ([]byte, error) {
	vocab, added := object{}, []object{}
	for id, p := range m.pieces {
		if vocab[p.text] = id; p.kind == controlPiece {
			added = append(added, object{"id": id, "content": p.text, "special": true, "normalized": false})
		}
	}
	spec := object{"version": "1.0", "added_tokens": added, "model": object{"type": "BPE", "vocab": vocab,
		"merges": []string{}, "unk_token": m.pieces[m.unk].text, "fuse_unk": true, "byte_fallback": m.byteFallback}}
	marks := []object{{"type": "Replace", "pattern": object{"String": " "}, "content": mark}}
	text := []object{{"type": "Replace", "pattern": object{"String": mark}, "content": " "}, {"type": "ByteFallback"},
		{"type": "Fuse"}}
	if m.prefix {
		text = append(text, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	switch {
	case m.prefix && each:
		marks = slices.Insert(marks, 0, object{"type": "Prepend", "prepend": mark})
	case m.prefix:
		spec["pre_tokenizer"] = object{"type": "Metaspace", "replacement": mark, "prepend_scheme": "first",
			"split": false}
		marks = nil
	}
	if marks != nil {
		spec["normalizer"] = object{"type": "Sequence", "normalizers": marks}
	}
	spec["decoder"] = object{"type": "Sequence", "decoders": text}
	if post := m.around(bos, eos); post != nil {
		spec["post_processor"] = post
	}
	return json.Marshal(spec)
}

// around adds BOS and EOS to a text.
func (m *spModel) around(bos, eos bool) object {
	single, special := []object{}, object{}
	token := func(id int) {
		if id < 0 || id >= len(m.pieces) {
			return
		}
		text := m.pieces[id].text
		special[text] = object{"id": text, "ids": []int{id}, "tokens": []string{text}}
		single = append(single, object{"SpecialToken": object{"id": text, "type_id": 0}})
	}
	if bos {
		token(m.bos)
	}
	single = append(single, object{"Sequence": object{"id": "A", "type_id": 0}})
	if eos {
		token(m.eos)
	}
	if len(special) == 0 {
		return nil
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
}

// score gives the model what SentencePiece does with the pieces' scores.
func (m *spModel) score(to *bpe) {
	to.fixed, to.cuts = map[string]int32{}, true
	for id, p := range m.pieces {
		if p.kind == userPiece {
			to.fixed[p.text] = int32(id)
		}
		if p.kind == userPiece || p.kind == normalPiece {
			to.longest = max(to.longest, len(p.text))
			to.cuts = to.cuts && !strings.Contains(strings.TrimLeft(p.text, mark), mark)
		} else { // no text has them
			delete(to.chars, onlyRune(p.text))
		}
	}
	if m.kind == unigramModel {
		to.unigram, to.cuts = newUnigram(m), false
		return
	}
	m.addMerges(to)
}

// onlyRune is the character that is the whole text, or -1.
func onlyRune(text string) rune {
	r, size := utf8.DecodeRuneInString(text)
	if size == len(text) {
		return r
	}
	return -1
}

// addMerges makes merges of scores: any two normal pieces that are a piece together join to it, the highest score
// first, and among equals the leftmost.
func (m *spModel) addMerges(to *bpe) {
	rank := map[float32]int32{}
	for _, p := range m.pieces {
		rank[p.score] = 0
	}
	scores := []float32{}
	for s := range rank {
		scores = append(scores, s)
	}
	slices.SortFunc(scores, func(a, b float32) int { return cmp.Compare(b, a) })
	for i, s := range scores {
		rank[s] = int32(i)
	}
	part := func(text string) (int32, bool) {
		id, ok := to.vocab[text]
		return id, ok && m.pieces[id].kind == normalPiece
	}
	for id, p := range m.pieces {
		if p.kind != normalPiece {
			continue
		}
		for at := range p.text {
			left, ok := part(p.text[:at])
			right, both := part(p.text[at:])
			if at > 0 && ok && both {
				to.merges[pairOf(left, right)] = merge{rank[p.score], int32(id)}
			}
		}
	}
}

// frozen is the longest user-defined piece that a text begins with: its id and length, 0 for none.
func (m *bpe) frozen(text string) (id int32, n int) {
	if len(m.fixed) == 0 {
		return 0, 0
	}
	for n = min(len(text), m.longest); n > 0; n-- {
		if id, ok := m.fixed[text[:n]]; ok {
			return id, n
		}
	}
	return 0, 0
}

// unigram finds the pieces of a text whose scores have the largest sum (Kudo 2018).
type unigram struct {
	pieces  []spPiece
	ids     map[string]int32 // of normal pieces
	unknown float32          // the score of an unknown character
}

func newUnigram(m *spModel) *unigram {
	u := &unigram{pieces: m.pieces, ids: map[string]int32{}}
	low := float32(math.Inf(1))
	for id, p := range m.pieces {
		if p.kind == normalPiece {
			low, u.ids[p.text] = min(low, p.score), int32(id)
		}
	}
	u.unknown = low - 10
	return u
}

// A unigramPath is the best way to a place of a text.
type unigramPath struct {
	score float32
	from  int // where its last piece begins; -1: no way leads here
	id    int32
}

// split gives the pieces of a word in order; an unknown character has the id -1.
func (u *unigram) split(word string, longest int) []unigramPath {
	best := make([]unigramPath, len(word)+1)
	for i := range best {
		best[i].from = -1
	}
	best[0].from = 0
	for at, r := range word {
		reach := func(to int, id int32, score float32) {
			total := score + best[at].score
			if p := &best[to]; p.from < 0 || total > p.score {
				*p = unigramPath{total, at, id}
			}
		}
		width, single := utf8.RuneLen(r), false
		for to := at + 1; to <= min(len(word), at+longest); to++ {
			if id, ok := u.ids[word[at:to]]; ok {
				reach(to, id, u.pieces[id].score)
				single = single || to-at == width
			}
		}
		if !single {
			reach(at+width, -1, u.unknown)
		}
	}
	var path []unigramPath
	for end := len(word); end > 0; end = best[end].from {
		path = append(path, best[end])
	}
	slices.Reverse(path)
	return path
}

// unigramSymbols returns the ids of a word.
func (m *bpe) unigramSymbols(word string) []int32 {
	s := symbolizer{m: m}
	for _, p := range m.unigram.split(word, m.longest) {
		char := ""
		if p.id < 0 {
			r, _ := utf8.DecodeRuneInString(word[p.from:])
			char = string(r)
		}
		s.add(p.id, char)
	}
	s.flush()
	return s.out
}
