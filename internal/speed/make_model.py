"""Makes a random model folder with a tokenizer trained on real text, for the benchmarks.

  python internal/speed/make_model.py --data ../shared/data/hh-rlhf/harmless-base-test.jsonl.gz DIR

DIR becomes a Hugging Face folder: a Llama of the preset's size with random weights, and a byte-level BPE tokenizer of
the preset's vocabulary trained on the dialogues, with <|endoftext|> as end of text and <|pad|> as padding, no beginning
token and no chat template (the dialogues are plain text). The same data and preset give the same folder.
"""

import argparse
import json
import pathlib

from decoder import PRESETS, build, save
from texts import read_pairs
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = ["<|endoftext|>", "<|pad|>"]


def train_tokenizer(texts, size):
    t = Tokenizer(BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size - len(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    t.train_from_iterator(texts, trainer)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    if t.get_vocab_size() != size:
        got = t.get_vocab_size()
        raise SystemExit(f"the text gives a vocabulary of {got}, want {size}: use a smaller preset or more text")
    return t


def save_tokenizer(t, folder):
    t.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": SPECIALS[0],
        "pad_token": SPECIALS[1],
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--data", required=True, help="a .jsonl or .jsonl.gz file with chosen and rejected texts")
    parser.add_argument("--preset", choices=["5.4M", "56M"], default="5.4M")
    args = parser.parse_args()
    shape = PRESETS[args.preset]
    t = train_tokenizer((row[side] for row in read_pairs(args.data) for side in ("chosen", "rejected")), shape.vocab)
    eos, pad = (t.token_to_id(s) for s in SPECIALS)
    model = build(shape)
    save(model, args.dir, bos_token_id=None, eos_token_id=eos, pad_token_id=pad)
    save_tokenizer(t, args.dir)
    print(f"{args.dir}: {sum(p.numel() for p in model.parameters()):,} parameters, vocabulary {t.get_vocab_size()}")


if __name__ == "__main__":
    main()
