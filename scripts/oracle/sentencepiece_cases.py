"""Makes tiny tokenizer.model files and what sentencepiece encodes with them.

  python scripts/oracle/sentencepiece_cases.py [--out tokenizer/testdata/sentencepiece]

For each of MODELS a folder with tokenizer.model, trained here on the text of models.py, and cases.json: a list of text,
ids (without BOS and EOS) and decoded, the text of the ids.
"""

import argparse
import json
import pathlib
import random
import shutil
import tempfile

import sentencepiece
from models import PAIRS, ROWS, TEXT

MODELS = {
    "llama": dict(model_type="bpe", vocab_size=440, byte_fallback=True, split_digits=True),
    "gemma": dict(model_type="bpe", vocab_size=460, byte_fallback=True, add_dummy_prefix=False,
        allow_whitespace_only_pieces=True, user_defined_symbols=["\n", "\n\n", "▁▁", "▁▁▁▁", "<turn>", "aa", "report"],
        pad_id=0, eos_id=1, bos_id=2, unk_id=3),
    "bpe": dict(model_type="bpe", vocab_size=160),
    "unigram": dict(model_type="unigram", vocab_size=150),
    "unigram-bytes": dict(model_type="unigram", vocab_size=420, byte_fallback=True, add_dummy_prefix=False),
}

HOSTILE = [
    "", " ", "  ", "   a  b   ", "\n", "\n\n\n", "\t\ttab", "a\u00a0b", "aaaaaaaa", "aaaaaaaaaaaaaaa", "aabaaab", "ababababa",
    "thethethe the  the", "  the report", "report report reportreport", "▁", "▁▁▁", " ▁ ▁▁", "x▁y", "🙂", "👩‍👩‍👧‍👦 family", "é", "e\u0301",
    "\u202eright", "\ufeffbom", "\u0000", "a\u0000b", "�", "ﬁ ligature", "ＡＢＣ", "今日は晴れです。", "مرحبا", "हिन्दी", "<0x41>", "<unk>x",
    "12 + 30 = 42", "1234567890", "4242424", "It's what we'd've", "def send(report, to):\n    return 1", "<turn>user<turn>",
    "mississippi", "zzzz the zzz", "\U0010ffff", "a" * 300, " " * 70, "ab " * 60, "\r\n\r\n",
]


def texts():
    """Hostile texts, those of the models, and random ones of the alphabet and of anything."""
    r = random.Random(7)
    letters = sorted(set(TEXT)) + ["▁", "\u0301", "🙂"]
    made = ["".join(r.choice(letters) for _ in range(r.randint(1, 40))) for _ in range(120)]
    made += ["".join(r.choice("ab ▁") for _ in range(r.randint(1, 24))) for _ in range(60)]
    words = TEXT.split()
    made += ["".join(r.choice(words) + r.choice(["", " ", "  ", "\n"]) for _ in range(8)) for _ in range(60)]
    chats = [m["content"] for p in PAIRS for m in p["prompt"]]
    return HOSTILE + ROWS + chats + TEXT.splitlines() + made


def make(out, name):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as d:
        text = pathlib.Path(d) / "text"
        text.write_text(TEXT + "aa aaa aaaa\naab abab ababab baba\n")
        sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=d + "/m", normalization_rule_name="identity",
            remove_extra_whitespaces=False, character_coverage=0.98, hard_vocab_limit=False, minloglevel=2,
            **MODELS[name])
        shutil.copy(d + "/m.model", folder / "tokenizer.model")
    sp = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    cases = [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))} for t in texts()]
    lines = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    (folder / "cases.json").write_text("[\n" + lines + "\n]\n")
    print(name, sp.vocab_size(), "pieces,", len(cases), "texts,", sum(len(c["ids"]) for c in cases), "ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=pathlib.Path, default=root / "tokenizer" / "testdata" / "sentencepiece")
    args = parser.parse_args()
    for name in MODELS:
        make(args.out, name)


if __name__ == "__main__":
    main()
