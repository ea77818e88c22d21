"""Preprocess with a Spark that spark-submit knows: `relkit data preprocess --engine spark`.

    spark-submit --executor-cores=2 --num-executors=2 examples/pyspark_preprocess.py \\
        --input web.jsonl --output-prefix out/web --vocab 20B_tokenizer.json \\
        --tokenizer-type HFTokenizer --append-eod --jsonl-keys text --workers 64

The master, and whatever else spark-submit is told, holds: nothing of it is set here.
"""

from __future__ import annotations

import sys

from relkit.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["data", "preprocess", "--engine", "spark"]
    main()
