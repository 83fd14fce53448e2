"""Downloads files of a model with huggingface_hub, or finds them in its cache.

python hub.py download|find ID FILE...   HF_ENDPOINT and HF_HUB_CACHE are in the environment; prints the files' paths.
"""
import sys

from huggingface_hub import hf_hub_download

how, name, *files = sys.argv[1:]
for file in files:
    print(hf_hub_download(name, file, local_files_only=how == "find"))
