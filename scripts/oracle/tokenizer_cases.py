"""Makes the fixtures of the tokenizer package: what Hugging Face's tokenizers and transformers make of awkward texts.

(The file is not called tokenizers.py because that name would hide the library from every script beside it.)

Written under --out (default tokenizer/testdata):

  texts.json            the awkward texts, shared by all folders
  chats.json            the conversations and the other variables that templates are rendered with, likewise
  <folder>/             a tokenizer trained here on the text below, as a model folder has it:
      qwen2-older       Qwen2.5's pipeline; merges as strings, chat template and added_tokens_decoder in
                        tokenizer_config.json
      llama3-newer      Llama 3's pipeline (ignore_merges, TemplateProcessing); merges as pairs, chat_template.jinja
      mistral-newer     Mistral v0.3's: Metaspace pre-tokenizer, byte fallback; chat_template.jinja
      mistral-older     Llama 2's and Mistral v0.1's: Prepend and Replace normalizers; special_tokens_map.json, list of
                        templates
  <folder>/cases.json   encode: per text ids, ids with specials, decoded, decoded without specials;
                        decode: id sequences that no text gives; chats: conversations rendered by apply_chat_template
  pipelines.json        small tokenizers that set every other option, each with texts and ids
  configs.json          tokenizer_config.json and special_tokens_map.json against what transformers makes of them
  ../jinja/testdata/templates.json
                        template snippets with variables and what transformers' Jinja environment renders

Run: python scripts/oracle/tokenizer_cases.py [--out tokenizer/testdata]
"""

import argparse
import datetime
import json
import pathlib
import random
import shutil
import tempfile

import jinja2
import transformers.utils.chat_template_utils as chat_utils
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = """The harbour master wrote down every boat that came in before the storm, and every boat that did not.
"Don't tell them I'm here," she said; they'll ask, and you've already answered. We'd rather wait. It's what he'd do.
Send the invoice to the clinic, not to the landlord: the landlord has no business knowing which doctor you see.
She asked whether the meeting on 14 March 2025 at 09:30 could move to 16:45; nobody answered for 3 days.
The recipe wants 250 g of flour, 3 eggs, 1/2 litre of milk and a pinch of salt (about 0.5 g). Total: 1234567890.
def share(record, reader):\n    if reader.role == "nurse":\n        return record.allergies  # nothing else\n\
    return None
for (int i = 0; i < 10; i++) { sum += values[i] * weights[i]; }\t// a comment\r\nreturn sum;
SELECT name, COUNT(*) FROM visits WHERE year >= 2019 GROUP BY name ORDER BY 2 DESC;
A letter that begins with thanks and ends with thanks may still say nothing; write what you need in between.
Who may know this? The person it is about, the person who needs it, and nobody else unless they have been asked.
Il a répondu à la lettre en français; l'été, à l'hôtel, où l'on dîne. Größe, Straße, Übung, schön, naïve, señor.
Привет, как дела? Всё хорошо, спасибо. Γειά σου Κόσμε. 你好，世界！今日は良い天気です。안녕하세요 세계. שלום עולם مرحبا بالعالم
The weather was warm and bright, then cold and wet, then warm again. The children counted the birds on the water.
What should the assistant answer when the question is not the asker's to ask? It should answer with what fits.
\n\n\n    indented by four spaces\n\tindented by a tab\n  two  double  spaces   and three\n
"""

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "Hello, world!",
    " leading and trailing ",
    "   three before",
    "three after   ",
    "a\tb\t\tc",
    "line\r\nline\r\n\r\nline\rline\n\n\nend\n",
    "It's what they've said: WE'RE here, I'LL go, he'D, I'M, DON'T, 'S 's 'ſ x'ſy ''s'",
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥ १२३",
    "naïve café — “quotes” … ‚low‘ «guillemets»",
    ("e\u0301 and \u00e9, A\u030a and \u00c5 and \u212b, \u1e9b\u0323, \uac00 and \u1100\u1161\u11a8, "
        "q\u0307\u0323 q\u0323\u0307"),
    "z" + "\u0300\u0316" * 25 + "!",
    "🙂 👩‍👩‍👧‍👦 👍🏽 🇩🇪 🏳️‍🌈 1️⃣ ❤️",
    "你好，世界！今日は、いい天気ですね。안녕하세요. 𠮷野家 龍龖",
    "שלום עולם مرحبا بالعالم नमस्ते สวัสดี",
    "Ωμέγα Ünïcödé ǅ ʰ ﬁ ﬂ ß ẞ İ ı",
    "def f(x):\n    return {'a': [x, -x**2], \"b\": x != 0}  # comment\n\n\nclass C: pass\n",
    "<div class=\"a b\">&amp; &lt;tag&gt;</div><!-- c --><br/>",
    "path/to/file_name-2.txt C:\\Users\\me https://example.org/?q=a%20b&c=d#e",
    "!!! ??? ... --- *** ((())) [[]] {{}} ~~ `` $$ %% ^^ && ++ == __ ## @@",
    ("\u00a0nbsp\u00a0 \u2003em \u3000ideographic \u200bzero \ufeffbom \u0085nel \u2028ls \u2029ps \u1680ogham "
        "\u180emongol"),
    "\x00\x01\x07\x08\x0b\x0c\x1b\x1c\x1f\x7f\x80\x9f\xad control",
    "\ufffd replacement, \ue000 private, \U0010ffff last, \ufdd0 non-character, \U00013000 hieroglyph",
    "Ġ Ċ ▁ ▁▁ Ã ÿ <0x0A> <0x41> <0xFF> <unk> literal",
    "word\u2581word \u2581 x",
    "spaces     in   between\n \n  \n   \n mixed",
    "tab\t\n tab \t \n\t\tend \t",
    "ABCdefGHI camelCaseWord snake_case_word SCREAMING kebab-case x1y2z3",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<|endoftext|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "before<|im_end|>after <|im_end|> spaced <|im_end|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
    "<s>[INST] Hi [/INST]there</s> <s>again</s>  x",
    "<s> <s>a <unk> </s>",
    "almost <|im_end <|im_en|> |im_end|> <|im_start|<|im_start|> <<|im_end|>>",
    "<think>\nplan\n</think>\n<answer>It's 42.</answer>",
    "x<tool_call>y</tool_call>z TOOL tool toolbox a tool, tools ",
    "wide<|wide|>   here   <|wide|>x<|right|>   y   <|right|>z   <|left|>w",
    "The harbour master asked whether the clinic's invoice was sent.",
]
LONG = ["".join(random.Random(7).choice("abcdefghij") for _ in range(5000)), "the " * 400,
    "é" * 300 + " " * 300 + "1" * 300]


def qwen_like(merges):
    """Qwen2 and Qwen2.5: NFC, one digit at a time, byte level."""
    split = Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tok = byte_level(split, merges)
    tok.normalizer = normalizers.NFC()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok.add_special_tokens([AddedToken(s, special=True) for s in specials])
    tok.add_tokens([AddedToken(s, normalized=False) for s in ("<tool_call>", "</tool_call>")])
    return tok


def llama3_like(merges):
    """Llama 3: up to three digits, ignore_merges, <|begin_of_text|> by the post-processor."""
    split = Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tok = byte_level(split, merges)
    tok.model.ignore_merges = True
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
        "<|eom_id|>", "<|python_tag|>"]
    tok.add_special_tokens([AddedToken(s, special=True) for s in specials])
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", bos)]
            ),
        ]
    )
    return tok


def byte_level(split, merges):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(split, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=alphabet, show_progress=False)
    tok.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    return tok


def metaspace_like(merges, older):
    """Mistral and Llama 2: spaces as ▁, unknown characters as bytes."""
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]
    if older:
        specials = specials[:3]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    size = len(specials) + len(bytes_) + merges
    # No CJK in the vocabulary, so that it falls back to bytes.
    corpus = ["".join(c for c in line if ord(c) < 0x2000) for line in CORPUS.splitlines()]
    trained.train_from_iterator(corpus,
        trainers.BpeTrainer(vocab_size=size, special_tokens=specials + bytes_, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    tok = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, unk_token="<unk>", fuse_unk=True,
        byte_fallback=True))
    tail = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    if older:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tok.decoder = decoders.Sequence(tail)
    tok.add_special_tokens([AddedToken(s, special=True) for s in specials])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
        special_tokens=[("<s>", 1)])
    return tok


# The four templates below exercise what the real ones use: trims on both sides, namespaces, loop variables, tools with
# tojson and its indent, macros, method calls, slices, raise_exception, tests, filters with arguments. Python joins the
# literals of a line that is too long for one.
QWEN = (r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You help with everyday questions.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nThese functions may be called; their signatures stand within <tools></tools>:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nA call is a JSON object within <tool_call></tool_call>:\n<tool_call>\n"""
    r"""{\"name\": <name>, \"arguments\": <object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou help with everyday questions.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not(message.content.startswith('<tool_response>')"""
    r""" and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first)"""
    r""" or (message.role == "assistant" and not message.tool_calls and '</think>' not in message.content) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- set content = message.content if message.content is string else '' %}
        {%- if '</think>' in content %}
            {%- set thought = ((content.split('</think>')|first).rstrip('\n').split('<think>')|last).lstrip('\n') %}
            {%- set content = (content.split('</think>')|last).lstrip('\n') %}
            {%- if loop.index0 > ns.last_query %}
                {{- '\n<think>\n' + thought.strip('\n') + '\n</think>\n' }}
            {%- endif %}
        {%- endif %}
        {%- if content %}
            {{- '\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""")

LLAMA = (r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and false %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "02 Feb 2025" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message goes into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message and built-in tools #}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Knowledge ends: December 2023\n" }}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Answer with JSON to call one of these functions.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{#- Tools may come with the first user message. #}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Tools cannot go into the first user message: there is none!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "With these functions, answer with JSON " }}
    {{- 'in the form {"name": function name, "parameters": dictionary}.' }}
    {{- "\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"""
    r"""+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- if builtin_tools is defined and tool_call.name in builtin_tools %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- "<|python_tag|>" + tool_call.name + ".call(" }}
            {%- for arg_name, arg_val in tool_call.arguments | items %}
                {{- arg_name + '="' + arg_val + '"' }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- endif %}
                {%- endfor %}
            {{- ")" }}
        {%- else  %}
            {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
            {{- '{"name": "' + tool_call.name + '", ' }}
            {{- '"parameters": ' }}
            {{- tool_call.arguments | tojson }}
            {{- "}" }}
        {%- endif %}
        {%- if builtin_tools is defined %}
            {{- "<|eom_id|>" }}
        {%- else %}
            {{- "<|eot_id|>" }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""")

MISTRAL = (r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Roles must alternate, tool messages aside. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" """
    r"""or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, """
    r"""roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call ids are nine letters or digits long!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {%- if not message.tool_call_id is defined or message.tool_call_id|length != 9 %}
            {{- raise_exception("Tool call ids are nine letters or digits long!") }}
        {%- endif %}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool roles are known, besides a first system message!") }}
    {%- endif %}
{%- endfor %}
""")

PLAIN_INST = (
    r"{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    r"{% set system_message = messages[0]['content'] %}"
    r"{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    r"{% for message in loop_messages %}"
    r"{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    r"{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    r"{% if loop.index0 == 0 and system_message != false %}"
    r"{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}"
    r"{% else %}{% set content = message['content'] %}{% endif %}"
    r"{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    r"{% elif message['role'] == 'assistant' %}"
    r"{% generation %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}"
    r"{% endfor %}"
)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_doctor",
            "description": "Finds a doctor's \"practice\" near a place, café or not.",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string", "description": "Town or ZIP"},
                    "km": {"type": "number", "default": 2.5}},
                "required": ["place"],
            },
            "return": {"type": "string"},
        },
    },
    {"type": "function", "function": {"name": "clock", "description": "Tells the time.",
        "parameters": {"type": "object", "properties": {}}}},
]
CALL = {"id": "abc123xyz", "type": "function",
    "function": {"name": "find_doctor", "arguments": {"place": "Zürich", "km": 1}}}
CHATS = {
    "user": [{"role": "user", "content": "Hi"}],
    "system": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "  Where is the report?\n"}],
    "turns": [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": " 2 "},
        {"role": "user", "content": "And don't you \"quote\" <b>&amp;</b> me; it's 'so'"},
        {"role": "assistant", "content": "Right."},
    ],
    "unicode": [{"role": "user", "content": "今日は 👩‍👩‍👧 e\u0301\r\n\tnaïve {{ not }} {% a tag %} {# nor this #} \\n"}],
    "thinking": [
        {"role": "user", "content": "First?"},
        {"role": "assistant", "content": "<think>\nold\n</think>\n\nOne."},
        {"role": "user", "content": "Second?"},
        {"role": "assistant", "content": "<think>\n new \n\n</think>\n\nTwo."},
    ],
    "order": [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "No."}],
    "call": [
        {"role": "user", "content": "A doctor in Zürich?"},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "name": "find_doctor", "content": "Dr. Åse", "tool_call_id": "abc123xyz"},
        {"role": "assistant", "content": "Dr. Åse."},
        {"role": "user", "content": "Thanks"},
    ],
    "calls": [
        {"role": "user", "content": "Two things"},
        {"role": "assistant", "content": "Looking.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "a", "tool_call_id": "abc123xyz"},
        {"role": "tool", "content": "b", "tool_call_id": "abc123xyz"},
    ],
    "unknown": [{"role": "user", "content": "a"}, {"role": "wizard", "content": "b"}],
}
EXTRAS = [{}, {"tools": TOOLS}, {"tools": TOOLS, "tools_in_user_message": False},
    {"tools": TOOLS[:1], "builtin_tools": ["find_doctor", "code_interpreter"]}]


def rendered(tok, name, extra, prompt):
    case = {"messages": name, "extra": extra, "prompt": prompt}
    try:
        case["text"] = tok.apply_chat_template(CHATS[name], tokenize=False, add_generation_prompt=prompt,
            **EXTRAS[extra])
    except Exception as e:  # raise_exception, or an undefined value
        case["error"] = str(e) if isinstance(e, jinja2.exceptions.TemplateError) else "fault"
    return case


def chats(tok):
    return [rendered(tok, m, x, prompt) for m in CHATS for x in range(len(EXTRAS)) for prompt in (False, True)]


def encodings(tok, texts):
    """For each text: ids; full, with special tokens; decoded from full; skipped, decoded without special tokens.

    What is absent equals: full the ids, decoded the text, skipped the decoded text.
    """
    out = []
    for text in texts:
        ids, full = (tok.encode(text, add_special_tokens=s).ids for s in (False, True))
        decoded, skipped = (tok.decode(full, skip_special_tokens=s) for s in (False, True))
        row = {"ids": ids, "full": full, "decoded": decoded, "skipped": skipped}
        for key, same in (("skipped", decoded), ("decoded", text), ("full", ids)):
            if row[key] == same:
                del row[key]
        out.append(row)
    return out


def odd_ids(tok):
    """Id sequences that no text gives: cut characters, specials between bytes, ids that do not exist."""
    rng = random.Random(3)
    size = tok.get_vocab_size()
    whole = tok.encode("🙂é今x", add_special_tokens=False).ids
    rows = [whole[:n] for n in range(1, len(whole))] + [whole[n:] for n in range(1, len(whole))]
    rows += [[rng.randrange(size) for _ in range(12)] for _ in range(25)] + [[0, size + 5, 1], []]
    return [{"ids": r, "decoded": tok.decode(r, skip_special_tokens=False), "skipped": tok.decode(r)} for r in rows]


def compact(path, value, **kw):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), **kw) + "\n", encoding="utf-8")


def save(out, name, tok, config, template=None, special_tokens_map=None, string_merges=False):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    spec = json.loads(tok.to_str())
    if string_merges:
        spec["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    compact(folder / "tokenizer.json", spec)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    if template:
        (folder / "chat_template.jinja").write_text(template)
    if special_tokens_map:
        (folder / "special_tokens_map.json").write_text(json.dumps(special_tokens_map, indent=2) + "\n")
    hf = PreTrainedTokenizerFast.from_pretrained(folder)
    backend = hf.backend_tokenizer
    case = {
        "size": len(hf), "bos": hf.bos_token_id, "eos": hf.eos_token_id, "pad": hf.pad_token_id,
        "encode": encodings(backend, TEXTS + LONG), "decode": odd_ids(backend), "chats": chats(hf),
    }
    compact(folder / "cases.json", case)


def decoder_of(tok):
    return {str(i): {"content": t.content, "lstrip": t.lstrip, "normalized": t.normalized, "rstrip": t.rstrip,
        "single_word": t.single_word, "special": t.special}
            for i, t in sorted(tok.get_added_tokens_decoder().items())}


def folders(out):
    tok = qwen_like(300)
    save(out, "qwen2-older", tok, {
        "add_prefix_space": False, "added_tokens_decoder": decoder_of(tok),
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": None, "chat_template": QWEN, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 32768, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }, string_merges=True)
    save(out, "llama3-newer", llama3_like(300), {
        "backend": "tokenizers", "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "is_local": True,
        "model_max_length": 131072,
        "model_input_names": ["input_ids", "attention_mask"], "tokenizer_class": "TokenizersBackend",
    }, template=LLAMA)
    save(out, "mistral-newer", metaspace_like(300, older=False), {
        "add_bos_token": True, "add_eos_token": False, "backend": "tokenizers", "bos_token": "<s>", "eos_token": "</s>",
        "unk_token": "<unk>",
        "legacy": False, "spaces_between_special_tokens": False, "tokenizer_class": "TokenizersBackend",
    }, template=MISTRAL)
    save(out, "mistral-older", metaspace_like(300, older=True), {
        "add_bos_token": True, "add_eos_token": True, "legacy": True, "pad_token": None,
        "model_max_length": 1000000000000000019884624838656,
        "chat_template": [{"name": "default", "template": PLAIN_INST},
            {"name": "tool_use", "template": "{{ tools | tojson }}"}],
        "tokenizer_class": "LlamaTokenizer", "use_default_system_prompt": False,
    }, special_tokens_map={
        "bos_token": {"content": "<s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False},
        "eos_token": {"content": "</s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False},
        "unk_token": "<unk>",
    }, string_merges=True)


def tiny(**options):
    """A model of ASCII letters with a few merges, so that splits show in the ids."""
    pieces = [chr(c) for c in range(32, 127)] + ["▁", "Ġ", "Ċ", "ĉ", "é", "Ã", "©", "<unk>"]
    merges = [("t", "h"), ("th", "e"), ("a", "n"), ("an", "d"), ("▁", "a"), ("Ġ", "a"), (" ", "a"), ("1", "2"),
        ("12", "3"), ("o", "o"), ("t", "oo"), ("▁", "▁"), ("l", "l"), ("'", "s"), (" ", " ")]
    pieces += [a + b for a, b in merges] + ["whole word", "Ġwhole"]
    return Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges, **options))


def pipelines(out):
    texts = TEXTS[:31] + TEXTS[-3:] + ["the and 123 too, the  and", " a a  a", "TOOL", "yes!no", "whole word", " whole",
        "xx-yy--zz", "12a3b 4"]
    rows = []

    def add(name, tok):
        rows.append({"name": name, "tokenizer": json.loads(tok.to_str()), "encode": encodings(tok, texts)})

    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            tok = tiny(unk_token="<unk>")
            tok.pre_tokenizer = pre_tokenizers.Split(Regex(r"[a ]+|-"), behavior, invert)
            add(f"split {behavior} {invert}", tok)
        tok = tiny(unk_token="<unk>", fuse_unk=True)
        tok.pre_tokenizer = pre_tokenizers.Split("a", behavior)
        add(f"split string {behavior}", tok)
    for individual in (False, True):
        tok = tiny()
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual), pre_tokenizers.ByteLevel(add_prefix_space=individual)])
        tok.decoder = decoders.ByteLevel()
        add(f"digits {individual}", tok)
    tok = tiny()
    tok.pre_tokenizer = pre_tokenizers.ByteLevel()
    tok.post_processor = processors.ByteLevel()
    add("gpt2, no decoder", tok)
    for scheme in ("always", "first", "never"):
        for split in (False, True):
            tok = tiny(unk_token="<unk>")
            tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
            tok.decoder = decoders.Metaspace(prepend_scheme=scheme, split=split)
            tok.add_tokens(["yes!"])
            add(f"metaspace {scheme} {split}", tok)
    tok = tiny(unk_token="<unk>", ignore_merges=True)
    tok.normalizer = normalizers.Sequence(
        [normalizers.Strip(left=True, right=False), normalizers.NFKC(), normalizers.Lowercase(),
            normalizers.Replace(Regex("x+"), "y"), normalizers.Replace("--", "-")])
    tok.decoder = decoders.Sequence(
        [decoders.Strip("e", 0, 1), decoders.Replace(Regex("a+"), "A"), decoders.Strip("t", 2, 0), decoders.Fuse()])
    add("normalizers and decoders", tok)
    for form in (normalizers.NFD(), normalizers.NFKD(), normalizers.Strip(left=False, right=True)):
        tok = tiny(unk_token="<unk>", fuse_unk=True)
        tok.normalizer = form
        add(type(form).__name__, tok)
    tok = tiny(unk_token="<unk>")
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.add_special_tokens([AddedToken("<s>", normalized=True, special=True)])
    tok.add_tokens([
        AddedToken("tool", single_word=True), AddedToken("TOOL", single_word=True, normalized=False),
        AddedToken("<|wide|>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("<|right|>", rstrip=True, normalized=False), AddedToken("<|left|>", lstrip=True),
        AddedToken("yes", normalized=False), AddedToken("yes!n", normalized=False),
        AddedToken("the and", normalized=True), AddedToken("the", normalized=True),
    ])
    tok.post_processor = processors.Sequence(
        [processors.TemplateProcessing(single="<s> $A tool <s>",
            special_tokens=[("<s>", tok.token_to_id("<s>")), ("tool", 3)])])
    add("added tokens", tok)
    compact(out / "pipelines.json", {"texts": texts, "rows": rows})


def configs(out):
    """Rules of tokenizer_config.json, from what transformers makes of one tokenizer and many configurations."""
    base = json.loads((out / "mistral-newer" / "tokenizer.json").read_text())
    unmarked = dict(base, added_tokens=[t for t in base["added_tokens"] if t["content"] in ("<unk>", "<s>")])
    without = dict(base, post_processor=None)
    token = {"content": "<extra>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False,
        "special": False}
    size = len(base["model"]["vocab"])
    tries = [
        (base, {}, None), (base, {"bos_token": "<s>", "eos_token": "</s>"}, None),
        (base, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False}, None),
        (base, {"bos_token": "<s>", "eos_token": "</s>", "add_eos_token": True}, None),
        (base, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}, None),
        (base, {"eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}, None),
        (base, {"bos_token": "<s>", "eos_token": None, "add_bos_token": None, "add_eos_token": None}, None),
        (without, {"bos_token": "<s>", "eos_token": "</s>"}, None),
        (without, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}, None),
        (unmarked, {"bos_token": "<s>", "eos_token": "</s>"}, None),
        (unmarked, {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "rstrip": True}},
            None),
        (unmarked, {"bos_token": "<s>", "additional_special_tokens": ["[INST]", "<new>"]}, None),
        (unmarked, {"bos_token": "<s>", "extra_special_tokens": {"image_token": "<image>"}, "pad_token": "<pad>"},
            None),
        (unmarked, {"bos_token": "<s>", "image_token": "<image>"}, None),
        (base, {"bos_token": "<s>", "added_tokens_decoder": {str(size): token}}, None),
        (base, {"bos_token": "<s>", "added_tokens_decoder": {str(size): token}, "eos_token": "<extra>"}, None),
        (base, {"bos_token": "<s>", "added_tokens_decoder": {"2": dict(token, content="</s>", rstrip=True)},
            "eos_token": "</s>"}, None),
        (unmarked, {}, {"bos_token": "<s>", "eos_token": {"content": "</s>", "rstrip": True}}),
        (unmarked, {"eos_token": "<s>"}, {"eos_token": "</s>", "pad_token": "<unk>"}),
        (unmarked, {"eos_token": "</s>", "added_tokens_decoder": {}}, {"eos_token": "<s>"}),
        (unmarked, {"additional_special_tokens": ["[INST]"]},
            {"additional_special_tokens": ["[/INST]", {"content": "<x>", "lstrip": True}]}),
    ]
    text = "Hi <s> there </s>  x [INST] y [/INST] <new> <image> <pad> <extra>  z <x>"
    rows = []
    for spec, config, special in tries:
        with tempfile.TemporaryDirectory() as d:
            folder = pathlib.Path(d)
            compact(folder / "tokenizer.json", spec)
            compact(folder / "tokenizer_config.json", config)
            if special:
                compact(folder / "special_tokens_map.json", special)
            tok = PreTrainedTokenizerFast.from_pretrained(folder)
            full = tok(text)["input_ids"]
            rows.append({
                "added": "unmarked" if spec is unmarked else "", "processor": spec is not without, "config": config,
                "special": special,
                "size": len(tok), "bos": tok.bos_token_id, "eos": tok.eos_token_id, "pad": tok.pad_token_id,
                "full": full,
                "ids": tok(text, add_special_tokens=False)["input_ids"],
                "skipped": tok.decode(full, skip_special_tokens=True),
            })
    compact(out / "configs.json", {"text": text, "keep": ["<unk>", "<s>"], "rows": rows})


def snippets():
    """Templates that each show one thing of the language."""
    return [line for line in (pathlib.Path(__file__).parent / "templates.txt").read_text().split("\n---\n") if line]


def templates(out):
    variables = {
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " u's \"q\" "},
            {"role": "assistant", "content": "<think>t</think>a", "n": 3}],
        "tools": None, "words": ["b", "A", "c", "a"], "numbers": [3, 1, 2],
        "nested": {"b": {"x": [1, 2.5, None, True]}, "a": "é\n\t\"'\\/\u2028<>&"},
        "empty": [], "text": "  Hello, wörld 🙂\n  second line\n\nlast  ", "one": ["only"], "zero": 0, "float": 2.0,
        "pairs": [["k", 1], ["l", 2]], "yes": True,
    }
    rows = []
    for source in snippets():
        row = {"source": source}
        try:
            row["text"] = chat_utils._compile_jinja_template(source).render(**variables)
        except jinja2.exceptions.TemplateSyntaxError:
            row["error"] = "syntax"
        except jinja2.exceptions.TemplateError as e:
            row["error"] = str(e)
        except Exception:
            row["error"] = "fault"
        rows.append(row)
    out.mkdir(parents=True, exist_ok=True)
    compact(out / "templates.json", {"variables": variables, "rows": rows})


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 4, 5, 6, 7)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tokenizer/testdata"))
    out = args.parse_args().out
    chat_utils.datetime = FixedDate
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    compact(out / "texts.json", TEXTS + LONG)
    compact(out / "chats.json", {"messages": CHATS, "extras": EXTRAS})
    folders(out)
    pipelines(out)
    configs(out)
    templates(out.parent / "jinja" / "testdata")
    print("wrote", sum(f.stat().st_size for d in (out, out.parent / "jinja" / "testdata")
        for f in d.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
